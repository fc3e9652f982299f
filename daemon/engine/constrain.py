"""What may come next: grammars that an answer must follow, compiled and run by llguidance.

Output is canonical: no white space outside strings, keys in the order of the schema, plain numbers and characters.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol, assert_never

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from daemon.engine.grammar_guard import GrammarRefused, Kind, build_matcher, try_out
from daemon.engine.json_schema import Schema, prepare_schema
from daemon.engine.sampling import Mask
from daemon.engine.schema_checks import SchemaRefused
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import JsonObject, JsonSchema, Regex
from daemon.errors import GenerationFailed, InvalidRequest

_ANY_OBJECT = '{"type":"object"}'
_KEPT_GRAMMARS = 32
_UP_TO_PUNCTUATION = re.compile(rb'[\x00-\x7f]*[":,{}\[\]]')


class Constrainer(Protocol):
    """Steers one answer; it has seen every token of the answer so far."""

    @property
    def complete(self) -> bool:
        """True where the answer is whole and nothing can follow."""

    def take_forced(self, limit: int) -> Sequence[int]:
        """Take the tokens (at most `limit`) that alone can come next; they count as accepted. Often none."""

    def allowed(self) -> Mask | None:
        """The tokens that may come next, shape `[vocab_size]`; None where all may."""

    def accept(self, token_id: int) -> None:
        """Take the token that was drawn, which is no end token."""


class Unconstrained:
    """Lets everything through."""

    complete = False

    def take_forced(self, limit: int) -> Sequence[int]:  # noqa: ARG002
        """No token is ever forced."""
        return ()

    def allowed(self) -> Mask | None:
        """All tokens may come next."""
        return None

    def accept(self, token_id: int) -> None:
        """Nothing to remember."""


class Grammar:
    """One answer's way through a grammar."""

    def __init__(self, matcher: LLMatcher, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    @property
    def complete(self) -> bool:
        """True where only the end can follow."""
        return self._matcher.is_stopped()

    def take_forced(self, limit: int) -> Sequence[int]:
        """See the protocol. Raises GenerationFailed where the grammar became too complex to follow."""
        forced = self._take(self._matcher.compute_ff_tokens()[:limit])
        return forced + self._take(self._certain_tokens()[: limit - len(forced)])

    def _take(self, tokens: list[int]) -> list[int]:
        end = next((i for i, token in enumerate(tokens) if token in self._tokenizer.end_ids), len(tokens))
        if tokens[:end] and not self._matcher.consume_tokens(tokens[:end]):
            self._fail()
        return tokens[:end]

    def _certain_tokens(self) -> list[int]:
        """The usual tokens of text that is forced, but that llguidance leaves open.

        It waits where what follows might belong to the same token. Behind a mark of punctuation words begin anew, so
        up to there nothing is lost by not asking the model.
        """
        forced = self._matcher.compute_ff_bytes()
        certain = _UP_TO_PUNCTUATION.match(forced)
        return self._tokenizer.encode_continuation(certain[0].decode()) if certain else []

    def allowed(self) -> Mask:
        """See the protocol. Raises GenerationFailed where the grammar became too complex to follow."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            self._fail()
        return np.unpackbits(bits, count=self._vocab_size, bitorder="little").astype(bool)

    def accept(self, token_id: int) -> None:
        """See the protocol. Raises GenerationFailed where the grammar became too complex to follow."""
        if not self._matcher.consume_token(token_id):
            self._fail()

    def _fail(self) -> None:
        # The matcher's own words may quote the answer, which must not reach a log.
        raise GenerationFailed(f"the grammar cannot be followed any further ({self._matcher.stop_reason()})")


class GrammarCompiler:
    """Compiles constraints for one tokenizer and keeps the last ones compiled."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """`vocab_size`: rows of the model's logits. Takes about a second; holds the GIL."""
        self._vocab_size = vocab_size
        self._tokenizer = tokenizer
        self._vocabulary = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokenizer, vocab_size)),
            n_vocab=vocab_size,
            eos_token=sorted(tokenizer.end_ids),
        )
        self._known: OrderedDict[tuple[Kind, str], LLMatcher | GrammarRefused] = OrderedDict()

    def grammar(self, constraint: JsonObject | JsonSchema | Regex) -> Grammar:
        """A fresh way through the constraint's grammar. Raises InvalidRequest naming the field and the reason."""
        match constraint:
            case JsonObject():
                return self._start("json_schema", _ANY_OBJECT, harmless=True)
            case JsonSchema(schema):
                return self._schema(schema)
            case Regex(pattern):
                return self._regex(pattern)
            case _:
                assert_never(constraint)

    def _schema(self, schema: Schema) -> Grammar:
        try:
            prepared = prepare_schema(schema)
            return self._start("json_schema", prepared.text, harmless=prepared.harmless)
        except (SchemaRefused, GrammarRefused) as error:
            message = f"the schema cannot be enforced: {error}"
            raise InvalidRequest(message, "response_format.json_schema.schema") from error

    def _regex(self, pattern: str) -> Grammar:
        try:
            return self._start("regex", pattern, harmless=False)
        except GrammarRefused as error:
            message = f"the regular expression cannot be used: {error}"
            raise InvalidRequest(message, "structured_outputs.regex") from error

    def _start(self, kind: Kind, text: str, *, harmless: bool) -> Grammar:
        key = (kind, text)
        if key not in self._known:
            self._known[key] = self._compile(kind, text, harmless=harmless)
        self._known.move_to_end(key)
        if len(self._known) > _KEPT_GRAMMARS:
            self._known.popitem(last=False)
        known = self._known[key]
        if isinstance(known, GrammarRefused):
            raise known
        return Grammar(known.deep_copy(), self._tokenizer, self._vocab_size)

    def _compile(self, kind: Kind, text: str, *, harmless: bool) -> LLMatcher | GrammarRefused:
        try:
            if not harmless:
                try_out(kind, text)
            return build_matcher(self._vocabulary, kind, text)
        except GrammarRefused as error:
            return GrammarRefused(str(error))  # without the traceback, which would keep this frame alive


class _Vocabulary:
    """A tokenizer as llguidance wants to see it; special tokens have no bytes, so no grammar can ask for them."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(index) for index in range(vocab_size)]
        self.special_token_ids = [index for index in range(vocab_size) if tokenizer.is_special(index)]
        self.eos_token_id = min(tokenizer.end_ids, default=0)

    def __call__(self, text: str) -> list[int]:
        """Plain text to tokens, for llguidance to find the usual spelling of forced text."""
        return self._tokenizer.encode_continuation(text)

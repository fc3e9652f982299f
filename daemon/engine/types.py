"""The engine's vocabulary: what goes in (a task), what comes out (events, then a result), and the model port."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
"""Raw scores before temperature, float32, shape `[positions, vocab_size]`."""

StopCheck = Callable[[], bool]
"""Asked between two `extend` calls; True ends the generation at once."""


@dataclass(frozen=True)
class Message:
    """One turn of the conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class JsonObject:
    """The answer is one JSON object of any shape."""


@dataclass(frozen=True)
class JsonSchema:
    """The answer is a JSON value that validates against `schema` (draft 2020-12)."""

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True)
class Regex:
    """The whole answer matches `pattern` (llguidance's dialect)."""

    pattern: str


@dataclass(frozen=True)
class Choice:
    """The answer is exactly one of `labels`."""

    labels: tuple[str, ...]


Constraint = JsonObject | JsonSchema | Regex | Choice


@dataclass(frozen=True)
class Task:
    """One generation, as the engine sees it. Bounds are those of the contract, section 2.

    `temperature` below 1e-5 is greedy; `top_k` 0 is off; `seed` None draws a fresh one.
    """

    messages: tuple[Message, ...]
    max_new_tokens: int = 256
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    constraint: Constraint | None = None
    logprobs: bool = False
    top_logprobs: int = 0


class Source(StrEnum):
    """How a token came about: drawn from the model, forced by a grammar, or drafted and verified."""

    SAMPLED = "sampled"
    FORCED = "forced"
    DRAFTED = "drafted"


@dataclass(frozen=True)
class TokenLogprob:
    """A token with its natural-log probability from the raw logits; `top` holds the best alternatives."""

    token: str
    bytes: bytes
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True)
class TextEvent:
    """Text that became certain, with the one or more tokens that brought it (its `text` may be empty)."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    source: Source = Source.SAMPLED


@dataclass(frozen=True)
class Usage:
    """Token counts; `completion_tokens` includes the end token where one was generated."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True)
class Timings:
    """Wall-clock seconds of the two phases; `tokens_per_second` is that of decoding, 0.0 where nothing was decoded."""

    prefill_seconds: float
    decode_seconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class Result:
    """The end of a generation. `interrupted`: the stop check ended it, and `text` is what there was by then."""

    text: str
    finish_reason: Literal["stop", "length", "interrupted"]
    usage: Usage
    timings: Timings
    label_probs: Mapping[str, float] | None = None
    logprobs: tuple[TokenLogprob, ...] = field(default=())


Emit = Callable[[TextEvent], None]
"""Takes each event in the engine's thread; must return quickly and never raise."""


OwnState = Any
"""A state that the same model made; each model knows only its own kind."""


class State(Protocol):
    """What the model remembers of the tokens it has seen (keys and values)."""

    @property
    def length(self) -> int:
        """Number of tokens held."""


class Model(Protocol):
    """The model port: everything generation needs of a language model."""

    @property
    def vocab_size(self) -> int:
        """Rows of the logits; may exceed the tokenizer's vocabulary."""

    @property
    def context_tokens(self) -> int:
        """The most tokens a state can hold."""

    @property
    def piece_tokens(self) -> int:
        """The most tokens that one `extend` call should be given, so that it returns within about half a second."""

    @property
    def exact(self) -> bool:
        """Whether the logits after a token depend on the tokens before it alone, to the bit.

        False where they depend, if only by a rounding, on how the tokens were divided among calls. Then what is
        computed in another way than usual could change an answer: nothing is drafted, and less is kept of a prompt.
        """

    def new_state(self) -> State:
        """An empty state."""

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """Append `token_ids` to `state` and return logits of the new positions: none, the last, or all.

        Shape `[0 | 1 | len(token_ids), vocab_size]`, float32, fresh memory that the caller may keep.
        Raises ValueError when the state would exceed `context_tokens`.
        """

    def truncate(self, state: OwnState, length: int) -> None:
        """Forget all but the first `length` tokens of `state`."""

    def fork(self, state: OwnState) -> State:
        """An independent copy of `state`; extending one leaves the other as it was."""


@runtime_checkable
class BranchingModel(Model, Protocol):
    """A model that can also continue one state in several ways at once, reading its weights only once."""

    def branches(
        self, state: OwnState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> tuple[Logits, Sequence[Logits]]:
        """Append `token_ids`, which may be none, to `state`; the logits after the last, and those of what might follow.

        Shape `[0 | 1, vocab_size]` and, after each token of each continuation, `[len(continuation), vocab_size]`, all
        float32. `state` does not hold the continuations. None of them is empty, and with `token_ids` they hold at most
        `piece_tokens` tokens, counting each as long as the longest. Raises ValueError beyond `context_tokens`.
        """


class PromptCache(Protocol):
    """Keeps keys and values from one request to the next; a warm run must equal a cold one to the bit.

    Of a model that is not `exact`, prefill goes in pieces that end at multiples of its `piece_tokens`; only whole such
    pieces may be kept, and nothing decoded.
    """

    def acquire(self, token_ids: Sequence[int]) -> tuple[State, int]:
        """A state for a prompt and the number of its first tokens that the state already holds, always fewer than all.

        The caller may extend the state as it likes.
        """

    def release(self, token_ids: Sequence[int], state: OwnState) -> None:
        """Give the state back; it begins with `token_ids` and may hold other tokens after them.

        Not called after a failure: such a state may be unsound.
        """

"""The model's tokenizer: prompts from messages, exact bytes of tokens, and which tokens end an answer.

It reads `tokenizer.json` with the `tokenizers` library and the chat template with jinja2, so that neither transformers
nor torch is imported; only a directory without `tokenizer.json` is converted by transformers.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from daemon.engine.chat_template import ChatTemplate, Rendered
from daemon.engine.token_bytes import piece_decoder
from daemon.engine.types import Message
from daemon.errors import ConfigurationError, InvalidRequest

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """Encodes conversations and labels, and gives the bytes of every token.

    `backend`: the tokenizer proper; `template`: its chat template; `end_ids`: the ids that end an answer.
    """

    def __init__(self, backend: tokenizers.Tokenizer, template: ChatTemplate, end_ids: Iterable[int]) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self._bare = _without_added_tokens(backend)
        self.end_ids = frozenset(end_ids)
        self._template = template
        self._added = backend.get_added_tokens_decoder()
        self._special = frozenset(index for index, token in self._added.items() if token.special)
        self._known_bytes: dict[int, bytes] = {}
        self._piece_bytes: Callable[[str], bytes] = piece_decoder(_description(backend))
        control = {i: token.content for i, token in self._added.items() if self._is_control(token)}
        self._control_ids = frozenset(control)
        self._control_tokens = tuple(sorted(control.values(), key=len, reverse=True))
        template.guard(self._control_tokens)

    def _is_control(self, token: tokenizers.AddedToken) -> bool:
        """Special tokens, the template's markers and everything that looks like one; runs of white space are text."""
        text = token.content
        marker = token.special or self._template.mentions(text) or (text.startswith("<|") and text.endswith("|>"))
        return bool(marker and text.strip())

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included; the model's logits may have more rows."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def is_special(self, token_id: int) -> bool:
        """True for tokens that are no text, such as turn markers."""
        return token_id in self._special

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token; empty for special tokens and for ids beyond the vocabulary."""
        data = self._known_bytes.get(token_id)
        if data is None:
            data = self._known_bytes[token_id] = self._look_up_bytes(token_id)
        return data

    def _look_up_bytes(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return b"" if added.special else added.content.encode()
        piece = self.backend.id_to_token(token_id)
        return b"" if piece is None else self._piece_bytes(piece)

    def token_text(self, token_id: int) -> str:
        """A token as text for display: a special token's own name, U+FFFD for bytes that are no whole character."""
        added = self._added.get(token_id)
        return added.content if added else self.token_bytes(token_id).decode("utf-8", errors="replace")

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The prompt for `messages`; control tokens appear only where the template put them.

        Raises InvalidRequest (`messages`) where the template refuses the messages or renders nothing.
        """
        rendered = self._template.render(messages)
        if rendered.break_mark in rendered.text:
            ids = self._encode_guarded(rendered, suspicious=lambda text: rendered.break_mark in text)
        else:
            ids = self._encode(rendered.text)
        if self._count_control(ids) > len(self._own_control(rendered).findall(rendered.text)):
            # A normaliser made a control token out of text that is none: trust no text between the template's tokens.
            ids = self._encode_guarded(rendered, suspicious=bool)
        if not ids:
            raise InvalidRequest("the model's chat template makes an empty prompt of these messages", "messages")
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        """The tokens of plain `text` that follows other text; control tokens' strings in it stay text.

        Raises ValueError where the vocabulary cannot spell `text` exactly.
        """
        data = text.encode()
        for encode in (self._encode, self._encode_after_newline, self._encode_bare, self._spell):
            ids = encode(text)
            if self._bytes(ids) == data and not self._count_control(ids):
                return ids
        raise ValueError(f"the model's vocabulary cannot spell {text!r}")

    def _encode(self, text: str) -> list[int]:
        return _ids(self.backend, text)

    def _encode_after_newline(self, text: str) -> list[int]:
        """Without the space that SentencePiece-like tokenizers put before the first word of a text."""
        head, ids = self._encode("\n"), self._encode("\n" + text)
        return ids[len(head) :] if ids[: len(head)] == head else self._encode(text)

    def _encode_bare(self, text: str) -> list[int]:
        """As if there were no added tokens at all."""
        return _ids(self._bare, text)

    def _spell(self, text: str) -> list[int]:
        """Byte by byte, for text that the normaliser would change."""
        spelled = (self._byte_ids.get(byte) for byte in text.encode())
        return [index for index in spelled if index is not None]

    @cached_property
    def _byte_ids(self) -> Mapping[int, int]:
        """The id of the token that is a single byte, for each byte that has one."""
        single = ((self.token_bytes(index), index) for index in range(self.vocab_size))
        return {data[0]: index for data, index in single if len(data) == 1}

    def _bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(map(self.token_bytes, ids))

    def _count_control(self, ids: Iterable[int]) -> int:
        return sum(index in self._control_ids for index in ids)

    def _own_control(self, rendered: Rendered) -> re.Pattern[str]:
        """Matches the template's own control tokens; one of a single character in user text has a mark behind it."""
        names = (re.escape(t) + (f"(?!{rendered.break_mark})" if len(t) == 1 else "") for t in self._control_tokens)
        return re.compile("|".join(names) or "(?!)")

    def _encode_guarded(self, rendered: Rendered, suspicious: Callable[[str], bool]) -> list[int]:
        """Encode the stretches that are `suspicious` without added tokens, and all between them as usual."""
        ids: list[int] = []
        usual, start = "", 0
        own = [*self._own_control(rendered).finditer(rendered.text)]
        for stretch_end, own_end in [*(match.span() for match in own), (len(rendered.text), len(rendered.text))]:
            stretch = rendered.text[start:stretch_end]
            if suspicious(stretch):
                ids += self._encode_inner(usual, first=not ids)
                ids += self._encode_as_text(stretch, rendered.break_mark)
                stretch = usual = ""
            usual += stretch + rendered.text[stretch_end:own_end]
            start = own_end
        return ids + self._encode_inner(usual, first=not ids)

    def _encode_inner(self, text: str, *, first: bool) -> list[int]:
        return self._encode(text) if first else self._encode_after_newline(text)

    def _encode_as_text(self, stretch: str, mark: str) -> list[int]:
        """The tokens of requester's text, never a control token. Raises InvalidRequest where that cannot be."""
        whole = self._encode_bare(stretch.replace(mark, ""))
        if not self._count_control(whole):
            return whole
        # The vocabulary holds the control token as a plain piece (Unigram): encode what lies between the marks.
        parts = [index for part in stretch.split(mark) for index in self._encode_bare(part)]
        if self._count_control(parts):
            raise InvalidRequest("a control token in the messages cannot be written as text for this model", "messages")
        return parts


def _ids(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    """Encode a batch of one: unlike `encode`, that lets other threads run meanwhile; a megabyte takes a second."""
    return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _without_added_tokens(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same model (shared, not copied) between the same normaliser and splitter."""
    bare = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        bare.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        bare.pre_tokenizer = backend.pre_tokenizer
    return bare


def load_tokenizer(model_dir: Path) -> Tokenizer:
    """Read the tokenizer of a model directory. Raises ConfigurationError where it is missing or unusable."""
    backend, settings = _backend(model_dir), read_json(model_dir / "tokenizer_config.json")
    template = ChatTemplate(_template_source(model_dir, settings), _named_tokens(settings))
    return Tokenizer(backend, template, _end_ids(model_dir, backend, settings))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is no file. Raises ConfigurationError on anything else."""
    try:
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds no JSON object")
    return content


def _backend(model_dir: Path) -> tokenizers.Tokenizer:
    path = model_dir / "tokenizer.json"
    try:
        return tokenizers.Tokenizer.from_file(str(path)) if path.exists() else _converted(model_dir)
    except Exception as error:  # tokenizers raises nothing narrower
        raise ConfigurationError(f"the tokenizer in {model_dir} cannot be loaded: {error}") from error


def _converted(model_dir: Path) -> tokenizers.Tokenizer:
    """Read older tokenizer files by way of transformers."""
    import transformers  # noqa: PLC0415 - takes seconds, and most models do not need it

    loaded = transformers.AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    backend: tokenizers.Tokenizer = loaded.backend_tokenizer
    return backend


def _template_source(model_dir: Path, settings: Mapping[str, Any]) -> str:
    """The chat template: its own file first, then the settings' (a string, or a list of named ones)."""
    path = model_dir / "chat_template.jinja"
    source = path.read_text("utf-8") if path.exists() else settings.get("chat_template")
    if isinstance(source, list):
        source = {entry.get("name"): entry.get("template") for entry in source}.get("default")
    if not isinstance(source, str):
        raise ConfigurationError(f"{model_dir} has no chat template: add chat_template.jinja, or use a chat model")
    return source


def _named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """The tokens that a template may name; older files write them as objects."""
    named = {name: settings.get(name) for name in _NAMED_TOKENS}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()}
    return {name: token for name, token in texts.items() if isinstance(token, str)}


def _end_ids(model_dir: Path, backend: tokenizers.Tokenizer, settings: Mapping[str, Any]) -> set[int]:
    """Every id that the model's files call an end of sequence; nothing else of `generation_config.json` is used."""
    found: list[Any] = [backend.token_to_id(_named_tokens(settings).get("eos_token", ""))]
    for name in ("generation_config.json", "config.json"):
        ids = read_json(model_dir / name).get("eos_token_id")
        found += ids if isinstance(ids, list) else [ids]
    return {index for index in found if isinstance(index, int)}


def _description(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """How the tokenizer is built, without its vocabulary."""
    parts = {"decoder": backend.decoder, "pre_tokenizer": backend.pre_tokenizer}
    return {name: json.loads(part.__getstate__()) for name, part in parts.items() if part is not None}

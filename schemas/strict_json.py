"""Strict JSON: what RFC 8259 leaves to the receiver is refused here, with the place named.

Refused: text that is not UTF-8 (a byte order mark is allowed), duplicate keys, NaN and infinities, numbers that a
double cannot hold, lone surrogates, nesting deeper than 64, and anything after the value.
"""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from schemas.errors import PathPart, RequestError, refused, shown

MAX_DEPTH = 64
"""Deepest nesting of objects and lists; the root is depth 1."""

# A whole string, or one bracket. Possessive, so that no input makes it look twice at a character.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[{]|[\]}]', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class _Fault:
    """Stands in the parsed tree for something refused, until the walk through the tree has found where it is."""

    got: str
    expected: str
    key: str | None = None
    """The key below the place where the fault stands, where that is to blame."""


class _Parser:
    """One run of the standard parser that notes faults instead of raising where the place is not known."""

    def __init__(self) -> None:
        self.faulty = False

    def parse(self, text: str) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=self._integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )

    def _fault(self, got: str, expected: str) -> _Fault:
        self.faulty = True
        return _Fault(got, expected)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Fault:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        self.faulty = True
        return _Fault("this key twice", "every key once", twice)

    def _integer(self, literal: str) -> int | _Fault:
        """Finite as a double means at most 309 digits: below every interpreter's limit for `int`."""
        return int(literal) if math.isfinite(float(literal)) else self._too_large(literal)

    def _float(self, literal: str) -> float | _Fault:
        value = float(literal)
        return value if math.isfinite(value) else self._too_large(literal)

    def _too_large(self, literal: str) -> _Fault:
        return self._fault(literal if len(literal) <= 40 else f"{literal[:39]}…", "a number that a double can hold")

    def _constant(self, literal: str) -> _Fault:
        return self._fault(literal, "a finite number")


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse one JSON value, strictly. Raises RequestError, whatever the bytes are, and nothing else."""
    text = _decode(body)
    _check_depth(text)
    parser = _Parser()
    try:
        value = parser.parse(text)
    except json.JSONDecodeError as error:
        raise _not_json(error) from error
    if parser.faulty or _SURROGATE_ESCAPE.search(text):
        _check_tree(value, ())
    return value


def _decode(body: bytes) -> str:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{body[error.start]:02x} at offset {error.start}"
        raise RequestError(f"body: got {byte}, expected JSON in UTF-8") from error
    if not text.strip(" \t\n\r"):
        raise RequestError("body: got nothing, expected a JSON object")
    return text


def _check_depth(text: str) -> None:
    """Count brackets before the recursive parser sees them, so that the limit is the same on every interpreter."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if text[match.start()] in "[{":
            depth += 1
        elif text[match.start()] in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise RequestError(
                f"body: got nesting of {depth} levels at character {match.start()}, expected at most {MAX_DEPTH}"
            )


def _not_json(error: json.JSONDecodeError) -> RequestError:
    rest = error.doc[error.pos : error.pos + 40]
    got = f"{shown(rest)} at character {error.pos}" if rest else "the end of the body"
    return RequestError(f"body: got {got}, expected valid JSON ({error.msg})")


def _check_tree(value: object, path: tuple[PathPart, ...]) -> None:
    """Find the first fault, in the order of the text, and raise it with its place."""
    if isinstance(value, _Fault):
        place = path if value.key is None else (*path, value.key)
        raise refused(place, value.got, value.expected)
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_tree(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, (*path, key))
            _check_tree(item, (*path, key))


def _check_text(text: str, path: tuple[PathPart, ...]) -> None:
    if _SURROGATE.search(text):
        raise refused(path, shown(text), "text without lone surrogates")

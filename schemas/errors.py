"""The error of a bad request, and how it names a place in a JSON body and shows the value found there."""

import json
import re
from collections.abc import Sequence

PathPart = str | int

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SHOWN_CHARACTERS = 80


class RequestError(ValueError):
    """A request that cannot be served as it stands.

    The message names the place, the offending value (shortened) and what was expected. `param` is the JSON path of
    the place, such as `messages[0].content`, or None where the whole body is to blame. Both are safe to send: they
    hold no lone surrogates. The message may quote the prompt, so it belongs into the reply and not into a log.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def shown(value: object) -> str:
    """Give the value as JSON, cut to 80 characters; a lone surrogate is shown as its escape."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def json_path(parts: Sequence[PathPart]) -> str:
    """Write `("messages", 0, "content")` as `messages[0].content`; unusual keys as `["a b"]`."""
    path = ""
    for part in parts:
        if isinstance(part, str) and _PLAIN_KEY.fullmatch(part):
            path += f".{part}" if path else part
        else:
            path += f"[{shown(part)}]"
    return path


def refused(parts: Sequence[PathPart], got: str, expected: str) -> RequestError:
    """Build the error for the place `parts`: what was found there, already fit to show, and what was expected."""
    path = json_path(parts)
    return RequestError(f"{path or 'body'}: got {got}, expected {expected}", path or None)

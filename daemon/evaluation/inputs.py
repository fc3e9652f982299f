"""The files that belong to the cases: prompts and schemas."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from daemon.evaluation.cases import CasesError
from daemon.evaluation.requests import TEXT
from schemas.refusals import first_refusal
from schemas.request import ChatMessage

_MESSAGES = TypeAdapter(tuple[ChatMessage, ...])


def read_before(system: Path | None, before: Path | None) -> tuple[Mapping[str, str], ...]:
    """The messages put before each case: a system message from a text file, then those of a JSON list.

    Raises CasesError where a file cannot be read or holds something else.
    """
    messages: list[Mapping[str, str]] = []
    if system is not None:
        messages.append({"role": "system", "content": _text(system).removesuffix("\n")})
    if before is not None:
        found = read_json(before)
        try:
            messages += [{"role": turn.role, "content": turn.content} for turn in _MESSAGES.validate_python(found)]
        except ValidationError as error:
            raise CasesError(f"{before}: {first_refusal(error, found)}") from error
    return tuple(messages)


def read_template(path: Path | None) -> str | None:
    """A template for user messages, less its last line end. Raises CasesError where it has no place for the message."""
    if path is None:
        return None
    template = _text(path).removesuffix("\n")
    if TEXT not in template:
        raise CasesError(f"{path}: has no {TEXT}, which stands for the user's message")
    return template


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file. Raises CasesError."""
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise CasesError(f"{path}: holds no JSON: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise CasesError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CasesError(f"{path}: is not UTF-8: {error}") from error

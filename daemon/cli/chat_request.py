"""What `leveret chat` sends: the options as fields of the request, texts from the argument, a pipe and files."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

Turn = dict[str, str]
"""One message of a conversation: its role and its content."""


def user_text(text: str | None, attached: Sequence[str]) -> str:
    """The files, then the argument or what comes through the pipe, with blank lines between. Raises typer.BadParameter.

    Files come first so that the daemon's prompt cache holds them when the next question is about the same ones.
    """
    if text is None and attached:
        return with_files(attached)
    try:
        if text is None or text == "-":
            return with_files(attached, sys.stdin.buffer.read().decode().removesuffix("\n"))
        text.encode()
    except UnicodeError as error:
        raise typer.BadParameter(f"the message is not UTF-8: {error}", param_hint="TEXT") from error
    return with_files(attached, text)


def with_files(attached: Sequence[str], *text: str) -> str:
    """One content out of the files and a text."""
    return "\n\n".join((*attached, *text))


def read_files(paths: Sequence[Path], most_bytes: int) -> list[str]:
    """The texts of files, each without its byte order mark and last line end. Raises typer.BadParameter."""
    return [_read_file(path, most_bytes) for path in paths]


def _read_file(path: Path, most_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)  # not the size that the file system tells: pipes and devices have none
        if len(data) > most_bytes:
            reason = f"is larger than a request may be, {most_bytes} bytes (LEVERET_MAX_BODY_BYTES)"
            raise typer.BadParameter(f"{str(path)!r} {reason}", param_hint="--file")
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeError as error:
        raise typer.BadParameter(f"{str(path)!r} is not UTF-8: {error}", param_hint="--file") from error
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{str(path)!r} cannot be read: {error}", param_hint="--file") from error


def opening(system: str | None) -> list[Turn]:
    """What stands before the first user message."""
    return [] if system is None else [{"role": "system", "content": system}]


def form(json_schema: Path | None, choice: str | None) -> dict[str, Any]:
    """The fields that prescribe the answer's form. Raises typer.BadParameter."""
    if json_schema is not None and choice is not None:
        raise typer.BadParameter("not together with --json-schema", param_hint="--choice")
    if json_schema is not None:
        named = {"name": "answer", "schema": _read_json(json_schema)}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if choice is not None:
        return {"structured_outputs": {"choice": [label.strip() for label in choice.split(",")]}}
    return {}


def _read_json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{str(path)!r} holds no JSON: {error}", param_hint="--json-schema") from error


def sendable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value, unless JSON cannot hold them. Whether they are right is the daemon's to say."""
    request = {name: value for name, value in fields.items() if value is not None}
    try:
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the request is no JSON: {error}") from error
    return request

"""`leveret chat`: one request over the bus, its answer on the terminal as it comes."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.cli.bus import connect
from daemon.client import (
    MARGIN_SECONDS,
    Answer,
    AnswerTimeout,
    Client,
    ClientError,
    Envelope,
    RequestRefused,
)
from daemon.settings import Settings, load_settings

ERROR_REPLY = 1
NO_ANSWER = 3
CANCEL_SECONDS = 5.0
"""How long to wait for the end of a request that Ctrl-C has cancelled."""

app = typer.Typer()


@app.command()
def chat(  # noqa: PLR0913 - one parameter an option
    text: Annotated[str | None, typer.Argument(help="The user's message; `-`, or none in a pipe, reads it.")] = None,
    *,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="File with a JSON schema that the answer follows.")] = None,
    choice: Annotated[str | None, typer.Option(help="Labels to choose from, with commas between them.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for everything.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print each reply as one JSON line.")] = False,
) -> None:
    """Send one request and stream its answer. Ctrl-C cancels it; twice leaves at once.

    Exit status 0 answered, 1 error reply, 2 usage, 3 no broker or no answer in time.
    """
    fields: dict[str, Any] = {
        "messages": _messages(_user_text(text), system),
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
        "timeout": timeout,
        **_form(json_schema, choice),
    }
    request = _sendable({name: value for name, value in fields.items() if value is not None})
    settings = load_settings()
    budget = settings.max_seconds if timeout is None else max(timeout, 0.0)
    raise typer.Exit(asyncio.run(_ask(settings, request, Envelope(wait_seconds=budget + MARGIN_SECONDS), raw=raw)))


def _user_text(text: str | None) -> str:
    """The argument, or standard input without its last line end. Raises typer.BadParameter."""
    if text is None and sys.stdin.isatty():
        raise typer.BadParameter("missing; give the message as an argument or through a pipe", param_hint="TEXT")
    try:
        if text is None or text == "-":
            return sys.stdin.buffer.read().decode().removesuffix("\n")
        text.encode()
    except UnicodeError as error:
        raise typer.BadParameter(f"the message is not UTF-8: {error}", param_hint="TEXT") from error
    return text


def _messages(text: str, system: str | None) -> list[dict[str, str]]:
    user = {"role": "user", "content": text}
    return [user] if system is None else [{"role": "system", "content": system}, user]


def _form(json_schema: Path | None, choice: str | None) -> dict[str, Any]:
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


def _sendable(request: dict[str, Any]) -> dict[str, Any]:
    """The request as it is, unless JSON cannot hold it. Whether its values are right is the daemon's to say."""
    try:
        json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the request is no JSON: {error}") from error
    return request


async def _ask(settings: Settings, request: dict[str, Any], envelope: Envelope, *, raw: bool) -> int:
    """Send, show, and give the exit status."""
    try:
        async with (
            await connect(settings) as client,
            await client.stream(request, envelope) as answer,
        ):
            with _cancelled_by_interrupt(client, answer):
                return await (_show_raw if raw else _show)(answer)
    except ClientError as error:
        return _complain(str(error), NO_ANSWER)


async def _show(answer: Answer) -> int:
    """Write the text as it comes; a text that begins anew goes to a line of its own."""
    last = ""
    try:
        async for chunk in answer:
            if chunk.restarted:
                typer.echo(b"\n", nl=False)
                _complain("the answer begins anew, after a fault", 0)
            typer.echo(chunk.text.encode(), nl=False)
            last = chunk.text or last
    except RequestRefused as error:
        return _refused(error)
    finally:
        if last and not last.endswith("\n"):
            typer.echo(b"\n", nl=False)
    return 0


async def _show_raw(answer: Answer) -> int:
    """Write each reply as it is, a line each."""
    try:
        async for chunk in answer:
            if chunk.raw is not None:
                _line(chunk.raw)
    except RequestRefused as error:
        return _refused(error)
    finally:
        if answer.raw is not None:
            _line(answer.raw)
    return 0


def _line(body: bytes) -> None:
    typer.echo(json.dumps(json.loads(body), ensure_ascii=False).encode())


def _refused(error: RequestRefused) -> int:
    return _complain(f"{error.code}: {error}", ERROR_REPLY)


def _complain(message: str, status: int) -> int:
    typer.echo(f"leveret chat: {message}", err=True)
    return status


@contextlib.contextmanager
def _cancelled_by_interrupt(client: Client, answer: Answer) -> Iterator[None]:
    """Cancel on the bus at the first Ctrl-C, then wait for the end; the second one is Python's own."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        tasks.append(loop.create_task(_cancel(client, answer), name="cancel"))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _cancel(client: Client, answer: Answer) -> None:
    try:
        await client.cancel(answer.correlation_id)
    except ClientError as error:
        answer.fail(error)
        return
    loop = asyncio.get_running_loop()
    loop.call_later(CANCEL_SECONDS, answer.fail, AnswerTimeout(f"cancelled, but not confirmed in {CANCEL_SECONDS:g} s"))

"""One answer on the terminal: its text as it comes, what Ctrl-C does meanwhile, what went wrong."""

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from daemon.client import Answer, AnswerTimeout, Client, ClientError, Envelope, RequestRefused
from schemas.replies import ChatCompletion

ERROR_REPLY = 1
NO_ANSWER = 3
CANCEL_SECONDS = 5.0
"""How long to wait for the end of a request that Ctrl-C has cancelled."""

Show = Callable[[Answer], Awaitable[float | None]]
"""Writes an answer to its end; gives the monotonic time of the first text, None without any. Raises ClientError."""

_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
"""Control characters to symbols: the text of a model must not move the cursor or write the window's title."""


@dataclass(frozen=True)
class Answered:
    """A whole answer, and what the requester waited for it: seconds until its first text and until its end."""

    completion: ChatCompletion
    first_seconds: float | None
    total_seconds: float


async def ask(client: Client, request: Mapping[str, Any], envelope: Envelope, show: Show) -> Answered:
    """Send a request and write its answer; Ctrl-C cancels it on the bus. Raises ClientError."""
    start = time.monotonic()
    async with await client.stream(request, envelope) as answer:
        with _cancelled_by_interrupt(client, answer):
            first = await show(answer)
        total = time.monotonic() - start
        return Answered(answer.final, None if first is None else first - start, total)


async def show_text(answer: Answer) -> float | None:
    """Write the text as it comes; a text that begins anew goes to a line of its own."""
    first, last = None, ""
    try:
        async for chunk in answer:
            if chunk.restarted:
                typer.echo(b"\n", nl=False)
                complain("the answer begins anew, after a fault")
            _write(chunk.text)
            first = first or (time.monotonic() if chunk.text else None)
            last = chunk.text or last
    finally:
        if last and not last.endswith("\n"):
            typer.echo(b"\n", nl=False)
    return first


def _write(text: str) -> None:
    """Byte for byte, except on a terminal."""
    typer.echo((text.translate(_VISIBLE) if sys.stdout.isatty() else text).encode(), nl=False)


async def show_raw(answer: Answer) -> float | None:
    """Write each reply as it is, a line each."""
    first = None
    try:
        async for chunk in answer:
            if chunk.raw is not None:
                _line(chunk.raw)
            first = first or time.monotonic()
    finally:
        if answer.raw is not None:
            _line(answer.raw)
    return first


def _line(body: bytes) -> None:
    typer.echo(json.dumps(json.loads(body), ensure_ascii=False).encode())


def complain(message: str) -> None:
    """One line on stderr, under the command's name."""
    typer.echo(f"leveret chat: {message}", err=True)


def explain(error: ClientError) -> int:
    """Say why there is no answer; the exit status of it."""
    if isinstance(error, RequestRefused):
        complain(f"{error.code}: {error}")
        return ERROR_REPLY
    complain(str(error))
    return NO_ANSWER


@contextlib.contextmanager
def _cancelled_by_interrupt(client: Client, answer: Answer) -> Iterator[None]:
    """Cancel on the bus at the first Ctrl-C, then wait for the end; at the second one raise KeyboardInterrupt here.

    Python's own handler would raise it wherever the loop is, in another task too, whose traceback it then prints.
    """
    loop, here = asyncio.get_running_loop(), asyncio.current_task()
    tasks: list[asyncio.Task[None]] = []
    leaving = False

    def interrupt() -> None:
        nonlocal leaving
        leaving = bool(tasks)
        if not leaving:
            tasks.append(loop.create_task(_cancel(client, answer), name="cancel"))
        elif here is not None:
            here.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if leaving:
            raise KeyboardInterrupt from None
        raise
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

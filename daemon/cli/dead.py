"""`leveret dead`: the parked requests; sends one back to the queue, or drops it."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from daemon.bus import BusUnavailable, PublishRefused
from daemon.cli.command import command_app
from daemon.parked import ParkedQueue, ParkedRequest, open_parked
from daemon.settings import load_settings

NOT_DONE = 1
NO_BROKER = 3


class NotDone(Exception):
    """The request is not there, or not the only one of that name."""


app = command_app()
_COLUMNS = ("KEY", "DIED (UTC)", "AGE", "REASON", "SIZE", "USER", "ID")
_Key = Annotated[str, typer.Argument(metavar="ID", help="Its key, correlation id or message id.")]


@app.callback(invoke_without_command=True)
def dead(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of a table.")] = False,
) -> None:
    """List the parked requests, oldest first: those that expired, failed too often, or could not be answered.

    Exit status 0 done, 1 no such request or the queue refuses it, 2 usage, 3 no broker.
    """
    if context.invoked_subcommand is None:
        _run(_list(as_json=as_json))


@app.command()
def requeue(
    name: _Key,
    *,
    reply_to: Annotated[str | None, typer.Option(help="Send the answer to this queue instead.")] = None,
) -> None:
    """Send a parked request back to the request queue, as if it were sent now.

    Its requester may be gone by now; then the daemon drops it, unless --reply-to names a queue that exists.
    """
    _run(_requeue(name, reply_to))


@app.command()
def drop(
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="Its key, correlation id or message id.")] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Drop all parked requests.")] = False,
) -> None:
    """Delete a parked request, or all of them, for good."""
    if (name is None) is not every:
        raise typer.BadParameter("name one request, or give --all")
    _run(_drop(name))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; what cannot be done ends the command with one line."""
    logging.getLogger("aiormq").addHandler(logging.NullHandler())  # what it complains about ends the command
    try:
        asyncio.run(work)
    except (NotDone, BusUnavailable) as error:
        typer.echo(f"leveret: {error}", err=True)
        raise typer.Exit(NOT_DONE if isinstance(error, NotDone | PublishRefused) else NO_BROKER) from error


async def _list(*, as_json: bool) -> None:
    async with open_parked(load_settings()) as parked:
        found = await parked.take()
    now = datetime.now(UTC)
    if as_json:
        typer.echo(json.dumps([_fields(request, now) for request in found], indent=2))
    else:
        _print_table([_row(request, now) for request in found])


async def _requeue(name: str, reply_to: str | None) -> None:
    async with open_parked(load_settings()) as parked:
        request = await _only(parked, name)
        await parked.requeue(reply_to)
    typer.echo(f"{request.key} is back in the request queue")


async def _drop(name: str | None) -> None:
    async with open_parked(load_settings()) as parked:
        if name is None:
            count = len(await parked.take())
            await parked.drop_all()
            typer.echo(f"dropped {count}")
            return
        request = await _only(parked, name)
        await parked.drop()
    typer.echo(f"dropped {request.key}")


async def _only(parked: ParkedQueue, name: str) -> ParkedRequest:
    """The one request called `name`. Raises NotDone where there is not exactly one."""
    await parked.take(name)
    if not parked.named:
        raise NotDone(f"no parked request is called {_shown(name)}; `leveret dead` lists those that there are")
    if len(parked.named) > 1:
        keys = ", ".join(request.key for request in parked.named)
        raise NotDone(f"several parked requests are called {_shown(name)}; name one by its key: {keys}")
    return parked.named[0]


def _fields(request: ParkedRequest, now: datetime) -> dict[str, Any]:
    return {
        "key": request.key,
        "correlation_id": request.correlation_id,
        "message_id": request.message_id,
        "user_id": request.user_id,
        "reply_to": request.reply_to,
        "reason": request.reason,
        "died_at": request.died_at.isoformat() if request.died_at else None,
        "age_seconds": _age_seconds(request, now),
        "sent_at": request.sent_at.isoformat() if request.sent_at else None,
        "size_bytes": request.size_bytes,
    }


def _age_seconds(request: ParkedRequest, now: datetime) -> int | None:
    return max(0, int((now - request.died_at).total_seconds())) if request.died_at else None


def _row(request: ParkedRequest, now: datetime) -> tuple[str, ...]:
    age = _age_seconds(request, now)
    return (
        request.key,
        f"{request.died_at:%Y-%m-%d %H:%M:%S}" if request.died_at else "unknown",
        "unknown" if age is None else _duration(age),
        request.reason,
        f"{request.size_bytes} B",
        _shown(request.user_id),
        _shown(request.correlation_id or request.message_id),
    )


def _duration(seconds: int) -> str:
    """The two largest units: `3d 4h`, `5m 6s`."""
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds % 60}s"


def _shown(text: str | None) -> str:
    """An id for the terminal: control characters and foreign bytes as escapes, `-` for none."""
    return "-" if text is None else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        typer.echo("no parked requests")
        return
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

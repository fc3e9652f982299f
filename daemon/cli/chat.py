"""`leveret chat`: a request over the bus, or a conversation; answers on the terminal as they come."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon.cli.bus import connect
from daemon.cli.chat_answer import ask, explain, show_raw, show_text
from daemon.cli.chat_request import form, opening, read_files, sendable, user_text
from daemon.cli.chat_session import Session, Setting
from daemon.cli.chat_summary import print_summary
from daemon.cli.command import command_app
from daemon.client import MARGIN_SECONDS, ClientError, Envelope
from daemon.settings import Settings, load_settings

app = command_app()


@app.command()
def chat(  # noqa: PLR0913 - one parameter an option
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The message; `-`, or none in a pipe, reads it.")
    ] = None,
    *,
    file: Annotated[
        list[Path] | None, typer.Option(metavar="<path>", help="Text put before the message; may be repeated.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="File with a JSON schema that the answer follows.")] = None,
    choice: Annotated[str | None, typer.Option(help="Labels to choose from, with commas between them.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for everything.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print each reply as one JSON line.")] = False,
) -> None:
    """Send one request and stream its answer; without TEXT, at a terminal, hold a conversation.

    In a conversation the options hold for every turn, and files go with the first message; /help shows its commands.
    Ctrl-C cancels the running answer; twice leaves at once.

    Exit status 0 answered, 1 error reply, 2 usage, 3 no broker or no answer in time.
    """
    settings = load_settings()
    attached = read_files(file or [], settings.max_body_bytes)
    before = opening(system)
    fields = sendable(
        {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "seed": seed,
            "timeout": timeout,
            **form(json_schema, choice),
        }
    )
    budget = settings.max_seconds if timeout is None else max(timeout, 0.0)
    envelope = Envelope(wait_seconds=budget + MARGIN_SECONDS)
    if text is None and sys.stdin.isatty():
        _check_terminal(raw=raw)
        raise typer.Exit(asyncio.run(_converse(settings, Setting(before, attached, fields, envelope))))
    messages = [*before, {"role": "user", "content": user_text(text, attached)}]
    request = sendable({"messages": messages, **fields})
    raise typer.Exit(asyncio.run(_ask(settings, request, envelope, raw=raw)))


def _check_terminal(*, raw: bool) -> None:
    """Refuse what makes no conversation. Raises typer.BadParameter."""
    if raw:
        raise typer.BadParameter("a conversation shows text; give TEXT, or pipe it", param_hint="--raw")
    if not sys.stdout.isatty():
        reason = "missing; a conversation needs a terminal for its output too. Give the message, or pipe it"
        raise typer.BadParameter(reason, param_hint="TEXT")


async def _ask(settings: Settings, request: dict[str, Any], envelope: Envelope, *, raw: bool) -> int:
    """Send, show, and give the exit status."""
    try:
        async with await connect(settings) as client:
            answered = await ask(client, request, envelope, show_raw if raw else show_text)
    except ClientError as error:
        return explain(error)
    if not raw:
        print_summary(answered)
    return 0


async def _converse(settings: Settings, setting: Setting) -> int:
    """Hold a conversation, and give the exit status: a failed turn is no failed command."""
    try:
        async with await connect(settings) as client:
            await Session(client, setting).run()
    except ClientError as error:
        return explain(error)
    return 0

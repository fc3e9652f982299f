"""A conversation at the terminal: every request carries the turns before it."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from daemon.cli.chat_answer import ask, complain, explain, show_text
from daemon.cli.chat_request import Turn, with_files
from daemon.cli.chat_summary import dimmed, print_summary
from daemon.cli.chat_terminal import Keyboard, is_command
from daemon.client import Client, ClientError, Envelope, RequestRefused
from schemas.replies import ErrorCode

HELP = '''/new   begins a new conversation with the same options
/exit  leaves, and so does Ctrl-D
/help  shows this
Ctrl-C cancels the running answer; at the prompt it clears the line.
Lines that are pasted are one message. To type one of several lines, put """ on a line before and after it.'''


@dataclass(frozen=True)
class Setting:
    """What holds for every turn: opening messages, texts of files for the first one, the request's other fields."""

    opening: Sequence[Turn]
    attached: Sequence[str]
    fields: Mapping[str, Any]
    envelope: Envelope


class Session:
    """One conversation after the other. A turn that has no answer leaves the conversation as it was before."""

    def __init__(self, client: Client, setting: Setting) -> None:
        self._client, self._setting = client, setting
        self._turns: list[Turn] = []

    async def run(self) -> None:
        """Read and answer messages until the user leaves. Takes Ctrl-C over for as long as that."""
        keyboard = Keyboard()
        _say("/help shows the commands, Ctrl-D leaves.")
        _ignore_interrupts()
        while (text := await _read(keyboard)) is not None:
            command = text.strip() if is_command(text) else ""
            if command == "/exit":
                return
            if command:
                self._obey(command)
            elif text.strip():
                await self._answer(text)

    def _obey(self, command: str) -> None:
        if command == "/new":
            self._turns.clear()
            _say("a new conversation")
        elif command == "/help":
            typer.echo(HELP)
        else:
            complain(f"there is no command {command}; /help shows those that there are")

    async def _answer(self, text: str) -> None:
        content = text if self._turns else with_files(self._setting.attached, text)
        turns: list[Turn] = [*self._turns, {"role": "user", "content": content}]
        request = {"messages": [*self._setting.opening, *turns], **self._setting.fields}
        try:
            answered = await ask(self._client, request, self._setting.envelope, show_text)
        except ClientError as error:
            _fail(error)
        else:
            self._turns = [*turns, {"role": "assistant", "content": answered.completion.text}]
            print_summary(answered)
        finally:
            _ignore_interrupts()


async def _read(keyboard: Keyboard) -> str | None:
    """The next message, "" where there is none yet, None at the end. In a thread, so that heartbeats go on."""
    try:
        return await asyncio.to_thread(keyboard.read)
    except UnicodeError as error:
        complain(f"the message is not UTF-8: {error}")
        return ""
    except EOFError:
        typer.echo()
        return None


def _fail(error: ClientError) -> None:
    explain(error)
    if isinstance(error, RequestRefused) and error.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED:
        complain("/new begins a new conversation; a smaller --max-new-tokens leaves a long one more room")
    complain("the conversation is as it was before this message")


def _say(line: str) -> None:
    typer.echo(dimmed(line, sys.stdout))


def _ignore_interrupts() -> None:
    """Between answers Ctrl-C is a key; one that comes as an answer ends must not end the conversation."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)

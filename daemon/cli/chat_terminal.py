"""Reads messages at the terminal: line editing, pastes of several lines, what Ctrl-C and Ctrl-D do there.

The lines typed are kept in memory for the arrow keys and never written to disk: they are private.
"""

import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from daemon.cli.chat_summary import dimmed

QUOTES = '"""'
"""On a line of its own, begins and ends a message of several lines."""
PASTE_SECONDS = 0.05
"""How long the next line of a paste may take to arrive."""

_CONTROL_C = "\x03"


class _Cleared(Exception):
    """Ctrl-C at the prompt: the message is given up."""


class Keyboard:
    """Reads one message after the other from standard input, which must be a terminal. Blocks: for a thread.

    With readline a paste arrives as one line with line ends in it (bracketed paste). Where the terminal or a Python
    without readline lacks that, lines that follow at once belong to the message too.
    """

    def __init__(self) -> None:
        self._editor = _line_editor()
        self._prompt, self._more = self._styled("> "), self._styled("… ")

    def read(self) -> str:
        """The next message, "" for one given up with Ctrl-C. Raises EOFError at Ctrl-D, UnicodeError for odd bytes."""
        try:
            text = "\n".join(self._lines())
        except _Cleared:
            return ""
        text.encode()
        if text.strip() and self._editor is not None:
            self._editor.add_history(text)
        return text

    def _lines(self) -> Iterator[str]:
        first = self._line(self._prompt)
        if first == QUOTES:
            yield from iter(lambda: self._line(self._more), QUOTES)
            return
        yield first
        while first.strip() and not is_command(first) and select.select([sys.stdin], [], [], PASTE_SECONDS)[0]:
            yield self._line(self._more)

    def _line(self, prompt: str) -> str:
        if self._editor is None:
            return input(prompt)  # here the terminal itself clears the line at Ctrl-C
        with _keys_only():
            line = input(prompt)
        if _CONTROL_C in line:
            raise _Cleared
        return line

    def _styled(self, prompt: str) -> str:
        """The prompt; readline counts its columns, so what is not seen stands between the bytes 1 and 2."""
        styled = dimmed(prompt, sys.stdout)
        if self._editor is None or styled == prompt:
            return styled
        before, after = styled.split(prompt)
        return f"\1{before}\2{prompt}\1{after}\2"


def is_command(line: str) -> bool:
    """Is this a command to the session: a single word that begins with a slash?"""
    return line.startswith("/") and len(line.split()) == 1


def _line_editor() -> ModuleType | None:
    """Readline, set up; None where this Python was built without it. Only importing it makes `input` use it."""
    try:
        editor = import_module("readline")
    except ImportError:
        return None
    editor.set_auto_history(False)
    editor.parse_and_bind("set enable-bracketed-paste on")
    # Ctrl-C types itself and Return, as a shell shows it: `read` runs in a thread, which no signal can interrupt.
    editor.parse_and_bind(r'"\C-c": "\C-v\C-c\C-m"')
    return editor


@contextmanager
def _keys_only() -> Iterator[None]:
    """Make Ctrl-C a key like the others instead of a signal."""
    before = termios.tcgetattr(sys.stdin)
    quiet = termios.tcgetattr(sys.stdin)
    quiet[6][termios.VINTR] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)

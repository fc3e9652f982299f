"""A program in a pseudo-terminal: what a user types, and what the screen shows."""

import asyncio
import os
import pty
import re
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
CONTROL_C, CONTROL_D, RETURN, UP = "\x03", "\x04", "\r", "\x1b[A"

_ATTACH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C becomes a signal
os.execvp(sys.argv[1], sys.argv[1:])
"""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class PseudoTerminal:
    """Runs a command with all three standard streams on one terminal, in a session of its own.

    `screen` is what the program and the terminal wrote, escape sequences included.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self._command = (sys.executable, "-c", _ATTACH, *command)
        self._environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), **environment}
        self._cwd = cwd
        self._seen = 0
        self._bytes = bytearray()
        self._process: Process | None = None
        self._master, self._slave = pty.openpty()

    async def __aenter__(self) -> Self:
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        streams = {"stdin": self._slave, "stdout": self._slave, "stderr": self._slave}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, **streams, env=self._environment, cwd=self._cwd, start_new_session=True
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._slave)
        os.close(self._master)

    def _read(self) -> None:
        self._bytes += os.read(self._master, 65536)

    @property
    def screen(self) -> str:
        """Everything so far."""
        return self._bytes.decode(errors="replace")

    @property
    def text(self) -> str:
        """Everything so far without escape sequences, with plain line ends."""
        return _ESCAPE.sub("", self.screen).replace("\r\n", "\n").replace("\r", "")

    async def shows(self, expected: str) -> None:
        """Wait until the text has this, after what was waited for last. Raises AssertionError with the screen."""
        try:
            await wait_until(lambda: expected in self.text[self._seen :], description=repr(expected))
        except AssertionError as error:
            raise AssertionError(f"{error}, but the screen is\n{self.text}") from error
        self._seen = self.text.index(expected, self._seen) + len(expected)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode(errors="surrogateescape"))

    def paste(self, text: str) -> None:
        """Paste as a terminal does: between marks where the program asked for them last (bracketed paste)."""
        marked = self.screen.rfind("\x1b[?2004h") > self.screen.rfind("\x1b[?2004l")
        self.type(f"\x1b[200~{text}\x1b[201~" if marked else text)

    async def status(self) -> int:
        """Wait for the exit status."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), 30)

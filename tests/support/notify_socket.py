"""The socket on which systemd hears from a service, played by a test."""

import socket
import threading
from pathlib import Path


class NotifySocket:
    """Listens in a thread of its own, so that it hears also what a frozen event loop should not send.

    `messages` holds what came so far, in order: each datagram as its `KEY=value` lines.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.messages: list[list[str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + self.path[1:] if self.path.startswith("@") else self.path)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while datagram := self._socket.recv(4096):
            self.messages.append(datagram.decode().split("\n"))

    @property
    def lines(self) -> list[str]:
        """Every line so far, in order."""
        return [line for message in self.messages for line in message]

    def count(self, line: str) -> int:
        """How often this line came."""
        return self.lines.count(line)

    def close(self) -> None:
        """Stop listening."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
        if not self.path.startswith("@"):
            Path(self.path).unlink()

"""A TCP proxy between a client and a broker that can break the line in the ways networks do.

The idea is aio-pika's (`tests/test_amqp_robust_proxy.py`): reconnects are tested on a real broker, through a proxy.
"""

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, no time to linger


class TcpProxy:
    """Listens on a free loopback port and forwards to `host`:`port`, while the line is intact."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._passing, self._answering = asyncio.Event(), asyncio.Event()
        self.restore()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0
        """Connections taken since the start."""

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._tasks)

    async def accept(self) -> None:
        """Take new connections, on the same port as before."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED); open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def redirect(self, port: int) -> None:
        """Forward new connections to another port, as a load balancer does; open ones stay."""
        self._target = (self._target[0], port)

    def reset_all(self) -> None:
        """Break every open connection with a TCP RST, on both sides."""
        for writer in self._writers:
            if (raw := writer.get_extra_info("socket")) is not None and not writer.transport.is_closing():
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()

    def blackhole(self) -> None:
        """Let nothing through in either direction, and tell nobody; new connections are taken, but stay mute."""
        self._passing.clear()

    def mute(self) -> None:
        """Let nothing through from the target to its clients: what they send arrives, what it answers does not."""
        self._answering.clear()

    def restore(self) -> None:
        """Let everything through again; what was sent meanwhile arrives late, as TCP retransmits."""
        self._passing.set()
        self._answering.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            # One side is gone, or the proxy closes: either way the other side learns it by its own closed socket.
            writer.close()
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers.add(far_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, self._passing))
                group.create_task(self._pump(far_reader, writer, self._passing, self._answering))
        finally:
            self._writers.discard(far_writer)
            far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *open_: asyncio.Event) -> None:
        """Copy, while all of `open_` are set, until the end of the stream, which ends the other side too."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                for valve in open_:
                    await valve.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Is the requester still there? Asked on a connection of its own, since a forged address can cost it.

A passive declare of the reply address tells: declared or locked by its owner means alive, not found means gone. It
holds for exclusive, named and direct reply-to addresses alike (measured on RabbitMQ 3.10).
"""

import contextlib

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError, ChannelLockedResource, ChannelNotFoundEntity

from daemon.bus import BusUnavailable
from daemon.errors import ConfigurationError
from daemon.link import bounded, close_quietly, connect

PROBE_SECONDS = 1.0
"""Most often that one address is asked about, and how long an answer may take."""


class Prober:
    """Opens its connection at the first question and again after a loss; never raises for a lost broker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AbstractConnection | None = None

    async def is_there(self, address: str) -> bool | None:
        """True or False as the broker says, None where it could not be asked."""
        try:
            return await self._ask(address)
        except (BusUnavailable, ConfigurationError, AMQPError, OSError, RuntimeError):
            await self.close()
            return None

    async def _ask(self, address: str) -> bool:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._url)
        channel = await bounded(self._connection.channel().__aenter__(), PROBE_SECONDS, "open a channel to probe")
        try:
            await bounded(channel.declare_queue(address, passive=True), PROBE_SECONDS, "probe the reply address")
        except ChannelLockedResource:
            return True
        except ChannelNotFoundEntity:
            return False
        with contextlib.suppress(BusUnavailable, AMQPError):
            await bounded(channel.close(), PROBE_SECONDS, "close the probe's channel")
        return True

    async def close(self) -> None:
        """Give the connection up; the next question opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_quietly(connection)

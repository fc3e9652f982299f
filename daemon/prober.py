"""Is the requester still there? Asked on a connection of its own, since a forged address can cost it.

A passive declare of the reply address tells: declared or locked by its owner means alive, not found means gone. It
holds for exclusive, named and direct reply-to addresses alike (measured on RabbitMQ 3.10).
"""

import asyncio
import contextlib

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity

from daemon.bus import BusUnavailable
from daemon.errors import ConfigurationError
from daemon.link import BROKER_ERRORS, bounded, close_quietly, connect, open_channel

PROBE_SECONDS = 1.0
"""How long an answer may take."""


class Prober:
    """Opens its connection at the first question and again after a loss; never raises for a lost broker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: AbstractConnection | None = None
        self._asking = asyncio.Lock()

    async def is_there(self, address: str) -> bool | None:
        """True or False as the broker says, None where it could not be asked."""
        async with self._asking:
            try:
                return await self._ask(address)
            except (BusUnavailable, ConfigurationError, *BROKER_ERRORS):
                await self.close()
                return None

    async def _ask(self, address: str) -> bool:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._url)
        channel = await open_channel(self._connection)
        try:
            await bounded(channel.queue_declare(address, passive=True), PROBE_SECONDS, "probe the reply address")
        except ChannelLockedResource:
            return True
        except ChannelNotFoundEntity:
            return False
        with contextlib.suppress(BusUnavailable, *BROKER_ERRORS):
            await bounded(channel.close(), PROBE_SECONDS, "close the probe's channel")
        return True

    async def close(self) -> None:
        """Give the connection up; the next question opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_quietly(connection)

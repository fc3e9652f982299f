"""Is the requester still there, and how long are the queues?

Asked on a connection of its own, since a forged address can cost it.

A passive declare of the reply address tells: declared or locked by its owner means alive, not found means gone. It
holds for exclusive, named and direct reply-to addresses alike (measured on RabbitMQ 3.10).
"""

import asyncio
import contextlib

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity

from daemon.bus import BusUnavailable
from daemon.errors import ConfigurationError
from daemon.link import BROKER_ERRORS, bounded, close_quietly, connect, open_channel, with_defaults

PROBE_SECONDS = 1.0
"""How long an answer may take."""


class Prober:
    """Opens its connection at the first question and again after a loss; never raises for a lost broker."""

    def __init__(self, url: str) -> None:
        self._url = with_defaults(url, "probe")
        self._connection: AbstractConnection | None = None
        self._asking = asyncio.Lock()

    async def is_there(self, address: str) -> bool | None:
        """True or False as the broker says, None where it could not be asked."""
        try:
            return await self._messages(address) is not None
        except BusUnavailable:
            return None

    async def depth(self, queue: str) -> int | None:
        """How many messages wait in `queue`, None where it is missing or the broker could not be asked."""
        try:
            return await self._messages(queue)
        except BusUnavailable:
            return None

    async def _messages(self, name: str) -> int | None:
        """Messages that wait in the queue, None where there is no such queue. Raises BusUnavailable."""
        async with self._asking:
            try:
                return await self._ask(name)
            except (BusUnavailable, ConfigurationError, *BROKER_ERRORS) as error:
                await self.close()
                raise BusUnavailable(f"probe of {name!r}: {error}") from error

    async def _ask(self, name: str) -> int | None:
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._url)
        channel = await open_channel(self._connection)
        try:
            declared = await bounded(channel.queue_declare(name, passive=True), PROBE_SECONDS, "probe a queue")
        except ChannelLockedResource:
            return 0
        except ChannelNotFoundEntity:
            return None
        with contextlib.suppress(BusUnavailable, *BROKER_ERRORS):
            await bounded(channel.close(), PROBE_SECONDS, "close the probe's channel")
        return declared.message_count or 0

    async def close(self) -> None:
        """Give the connection up; the next question opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_quietly(connection)

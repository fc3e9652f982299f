"""Confirmed publishing, on a connection of its own: an alarm that blocks publishing does not stop acks."""

import asyncio
import contextlib
import secrets
from datetime import UTC, datetime
from typing import Any

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, DeliveryError, PublishError
from pamqp.commands import Basic

from daemon import __version__
from daemon.bus import BusUnavailable, Published, PublishRefused, Reply, is_direct
from daemon.deliveries import parked_properties
from daemon.errors import ConfigurationError
from daemon.link import BROKER_ERRORS, Link, Loss, bounded, open_channel, outcome
from daemon.topology import Topology, explain

CONFIRM_SECONDS = 10.0
"""A confirm that takes longer counts as lost, unless the broker said that it blocks the connection."""
RIGHT_SECONDS = 2.0
"""How long the check of the right to publish waits: under an alarm there is no answer."""
APP_ID = f"leveret/{__version__}"
TRANSIENT, PERSISTENT = 1, 2


class QueueMissing(BusUnavailable):
    """The parked queue is not there."""


class Publisher:
    """Publishes replies and parked requests through the default exchange."""

    def __init__(self, url: str, topology: Topology) -> None:
        self.link = Link("publish", url, self._set_up)
        self._topology = topology
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None

    async def publish(self, reply: Reply) -> Published:
        """See `Bus.publish`. Mandatory, except to direct reply-to, where RabbitMQ returns what it delivers."""
        properties = Basic.Properties(
            headers=dict(reply.headers),
            content_type="application/json",
            delivery_mode=PERSISTENT if reply.persistent else TRANSIENT,
            correlation_id=reply.correlation_id,
            message_id=reply.message_id,
            timestamp=datetime.now(UTC),
            message_type=reply.type,
            app_id=APP_ID,
        )
        return await self._confirmed(properties, reply.body, reply.reply_to, mandatory=not is_direct(reply.reply_to))

    async def park(self, message: DeliveredMessage) -> None:
        """Copy `message` to the parked queue; returns once it is there. Raises BusUnavailable, QueueMissing."""
        properties = parked_properties(message, self._frame_bytes)
        parked = self._topology.parked
        if await self._confirmed(properties, message.body, parked, mandatory=True) is Published.RETURNED:
            raise QueueMissing(f"there is no queue {parked!r}")

    @property
    def _frame_bytes(self) -> int:
        """Largest frame of this connection."""
        channel = self._channel
        return (channel.connection.connection_tune.frame_max if channel else 0) or 2**31

    async def _set_up(self, connection: AbstractConnection, loss: Loss) -> None:
        self._channel, self._connection = await open_channel(connection, loss), connection
        await self._check_right(self._channel)

    async def _check_right(self, channel: AbstractChannel) -> None:
        """Publish to a queue that nobody has: without the right to publish, no request could ever be answered."""
        nowhere = f"{self._topology.cancel}.{secrets.token_hex(8)}"
        try:
            with contextlib.suppress(PublishError, BusUnavailable):
                await bounded(
                    channel.basic_publish(b"", routing_key=nowhere, mandatory=True), RIGHT_SECONDS, "check the right"
                )
        except ChannelAccessRefused as error:
            raise (explain(error) or ConfigurationError(str(error))) from error

    async def _confirmed(
        self, properties: Basic.Properties, body: bytes, address: str, *, mandatory: bool
    ) -> Published:
        channel = self._channel
        if channel is None or not self.link.up.is_set():
            raise BusUnavailable(self.link.trouble or "not connected")
        send = asyncio.ensure_future(
            channel.basic_publish(body, routing_key=address, properties=properties, mandatory=mandatory)
        )
        try:
            await self._wait_confirm(send)
            outcome(send, "publish")
        except PublishError:
            return Published.RETURNED
        except DeliveryError as error:
            raise PublishRefused(f"the broker refused a message to {address!r}") from error
        except BROKER_ERRORS as error:
            raise BusUnavailable(f"publish failed: {error!r}") from error
        finally:
            send.add_done_callback(_look_at)
            send.cancel()
        return Published.ROUTED

    async def _wait_confirm(self, send: "asyncio.Future[Any]") -> None:
        """Wait until `send` is done, as long as the broker blocks the connection, else for a limited time.

        A publish given up on a blocked connection is still delivered later, so giving up would only make copies.
        """
        while not (await asyncio.wait({send}, timeout=CONFIRM_SECONDS))[0]:
            if not await self._is_blocked():
                self.link.drop(f"no confirm within {CONFIRM_SECONDS:g} s")
                raise BusUnavailable(f"publish: no confirm within {CONFIRM_SECONDS:g} s")

    async def _is_blocked(self) -> bool:
        """True after `connection.blocked`: aiormq's `ready` then waits for `connection.unblocked`."""
        connection = self._connection
        if connection is None or connection.transport is None or connection.is_closed:
            return False
        ready = asyncio.ensure_future(connection.transport.ready())
        await asyncio.wait({ready}, timeout=0.05)
        blocked = not ready.done()
        ready.cancel()
        return blocked


def _look_at(send: "asyncio.Future[Any]") -> None:
    """An exception that nobody asks for would be logged, with the message it is about in it."""
    if not send.cancelled():
        send.exception()

"""A delivery as aio-pika hands it over: its envelope, and settling it without fear of a lost channel."""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractIncomingMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from daemon.bus import BusUnavailable, Envelope
from daemon.link import RPC_SECONDS, bounded

_COUNTERS = ("x-delivery-count", "x-acquired-count")
"""Quorum queues count deliveries in the first; RabbitMQ 4.3 counts hand-backs only in the second."""
_MOST_ATTEMPTS = 2**31


def _attempt(headers: dict[str, Any]) -> int:
    """1 on the first delivery. The headers may be forged, so only sane counts are believed."""
    counts = [headers.get(name) for name in _COUNTERS]
    sane = [count for count in counts if isinstance(count, int) and 0 <= count < _MOST_ATTEMPTS]
    return max(sane, default=0) + 1


def envelope_of(message: AbstractIncomingMessage) -> Envelope:
    """The envelope and body of an incoming message."""
    headers: dict[str, Any] = dict(message.headers)
    return Envelope(
        body=message.body,
        reply_to=message.reply_to,
        correlation_id=message.correlation_id,
        message_id=message.message_id,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        timestamp=message.timestamp.timestamp() if isinstance(message.timestamp, datetime) else None,
        user_id=message.user_id,
        headers=headers,
        redelivered=bool(message.redelivered),
        attempt=_attempt(headers),
    )


def parked_copy(message: AbstractIncomingMessage) -> Message:
    """The message as it is parked: all properties and headers, without a time limit.

    The broker accepts `user_id` only from that user, so it moves to the header `x-leveret-user-id`.
    """
    headers: dict[str, Any] = dict(message.headers)
    if message.user_id is not None:
        headers["x-leveret-user-id"] = message.user_id
    return Message(
        message.body,
        headers=headers,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        priority=message.priority,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        timestamp=message.timestamp,
        type=message.type,
        app_id=message.app_id,
    )


class AmqpDelivery:
    """Implements `bus.Delivery` on one incoming message."""

    def __init__(self, message: AbstractIncomingMessage, park: Callable[[Message], Awaitable[None]]) -> None:
        self._message = message
        self._park = park
        self.envelope = envelope_of(message)

    @property
    def stale(self) -> bool:
        """See `Delivery.stale`."""
        try:
            return self._message.channel.is_closed
        except ChannelInvalidStateError:
            return True

    async def ack(self) -> bool:
        """See `Delivery.ack`."""
        return await self._settle(self._message.ack())

    async def reject(self) -> bool:
        """See `Delivery.reject`."""
        return await self._settle(self._message.reject(requeue=False))

    async def hand_back(self) -> bool:
        """See `Delivery.hand_back`. By reject: RabbitMQ 4.3 does not count a nack."""
        return await self._settle(self._message.reject(requeue=True))

    async def park(self) -> None:
        """See `Delivery.park`."""
        await self._park(parked_copy(self._message))

    async def _settle(self, verb: Coroutine[Any, Any, None]) -> bool:
        try:
            await bounded(verb, RPC_SECONDS, "settle a delivery")
        except (BusUnavailable, AMQPError, OSError, RuntimeError):
            return False
        return True

"""A delivery as aiormq hands it over: its envelope, and settling it without fear of a lost channel.

Not aio-pika's `IncomingMessage`: that one interprets the properties, raises on those it does not know (a delivery
mode of 7) in a task that nobody watches, and so leaves the delivery unsettled for ever.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from daemon.amqp_codec import RawTable
from daemon.bus import BusUnavailable, Envelope
from daemon.link import BROKER_ERRORS, RPC_SECONDS, Loss, bounded

PERSISTENT = 2
USER_HEADER = "x-leveret-user-id"
"""Where a parked request keeps its user: the broker takes the property `user_id` only from that user."""

DELIVERY_COUNTERS = ("x-delivery-count", "x-acquired-count")
"""Quorum queues count deliveries in the first; RabbitMQ 4.3 counts hand-backs only in the second."""
_MOST_ATTEMPTS = 2**31
_FRAME_OVERHEAD_BYTES = 8


def _attempt(headers: Mapping[str, Any], *, redelivered: bool) -> int:
    """1 on the first delivery. The headers may be forged, so only sane counts of a redelivery are believed."""
    if not redelivered:
        return 1
    counts = [headers.get(name) for name in DELIVERY_COUNTERS]
    return max([1, *(count for count in counts if isinstance(count, int) and count < _MOST_ATTEMPTS)]) + 1


def envelope_of(message: DeliveredMessage) -> Envelope:
    """The envelope and body of an incoming message; an empty property is an absent one."""
    properties = message.header.properties
    headers = properties.headers or {}
    redelivered = bool(message.redelivered)
    return Envelope(
        body=message.body,
        reply_to=properties.reply_to or None,
        correlation_id=properties.correlation_id or None,
        message_id=properties.message_id or None,
        content_type=properties.content_type or None,
        content_encoding=properties.content_encoding or None,
        timestamp=properties.timestamp.timestamp() if isinstance(properties.timestamp, datetime) else None,
        user_id=properties.user_id or None,
        headers=headers,
        redelivered=redelivered,
        attempt=_attempt(headers, redelivered=redelivered),
    )


def parked_properties(message: DeliveredMessage, frame_bytes: int) -> Basic.Properties:
    """The properties of the parked copy: all of them but the time limit, the user as a header.

    A header larger than `frame_bytes` would cost the connection: a request whose headers filled the frame before the
    broker added `x-death` loses all others, and where even those do not fit or cannot be encoded, all.
    """
    properties = message.header.properties
    copies = (persistent_copy(properties, headers) for headers in _headers_to_park(properties))
    return next(copy for copy in copies if not copy.headers or _fits(copy, frame_bytes))


def persistent_copy(properties: Basic.Properties, headers: dict[str, Any]) -> Basic.Properties:
    """The same message's properties, made to last, with other headers, without a time limit and without its user."""
    return Basic.Properties(
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        headers=headers,
        delivery_mode=PERSISTENT,
        priority=properties.priority,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        message_id=properties.message_id,
        timestamp=properties.timestamp,
        message_type=properties.message_type,
        app_id=properties.app_id,
    )


def _headers_to_park(properties: Basic.Properties) -> Iterator[dict[str, Any]]:
    """What to try in turn: all headers, those of the broker, none."""
    received = properties.headers if isinstance(properties.headers, RawTable) else RawTable({}, bytes(4))
    yield received.with_text(USER_HEADER, properties.user_id) if properties.user_id else received
    yield {name: value for name, value in received.items() if name.startswith(("x-death", "x-first-death"))}
    yield {}


def _fits(properties: Basic.Properties, frame_bytes: int) -> bool:
    try:
        return len(ContentHeader(properties=properties).marshal()) + _FRAME_OVERHEAD_BYTES <= frame_bytes
    except TypeError:  # pamqp decodes more than it encodes
        return False


class AmqpDelivery:
    """Implements `bus.Delivery` on one incoming message."""

    def __init__(
        self, message: DeliveredMessage, loss: Loss, park: Callable[[DeliveredMessage], Awaitable[None]]
    ) -> None:
        self._message, self._loss, self._park = message, loss, park
        self._tag = message.delivery_tag or 0
        self.envelope = envelope_of(message)

    @property
    def stale(self) -> bool:
        """See `Delivery.stale`."""
        return self._loss.happened

    async def ack(self) -> bool:
        """See `Delivery.ack`."""
        return await self._settle(self._message.channel.basic_ack(self._tag))

    async def reject(self) -> bool:
        """See `Delivery.reject`."""
        return await self._settle(self._message.channel.basic_reject(self._tag, requeue=False))

    async def hand_back(self) -> bool:
        """See `Delivery.hand_back`. By reject: RabbitMQ 4.3 does not count a nack."""
        return await self._settle(self._message.channel.basic_reject(self._tag, requeue=True))

    async def park(self) -> None:
        """See `Delivery.park`."""
        await self._park(self._message)

    async def _settle(self, verb: Awaitable[None]) -> bool:
        try:
            await bounded(verb, RPC_SECONDS, "settle a delivery")
        except (BusUnavailable, *BROKER_ERRORS):
            return False
        return not self.stale

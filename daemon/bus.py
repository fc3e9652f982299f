"""The broker's port: what worker and replies know of the message bus. Nothing here knows AMQP's wire or aio-pika."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

TRACE_LENGTH = 512
"""Longest trace header carried on; W3C Trace Context asks for at least as much of `tracestate`."""


class BusUnavailable(Exception):
    """The bus did not do what was asked: connection lost, no answer in time, or the message was refused.

    Trying again is right; the message may or may not have got through.
    """


class PublishRefused(BusUnavailable):
    """The broker nacked the message, for example because the reply queue is full and rejects publishes."""


@dataclass(frozen=True)
class JobKey:
    """What makes two deliveries the same request: user, reply address, ids and body (as a SHA-256 digest)."""

    user_id: str | None
    reply_to: str | None
    correlation_id: str | None
    message_id: str | None
    body_digest: bytes


@dataclass(frozen=True)
class Envelope:
    """A request as it came from the queue. Strings may hold surrogate escapes where the bytes were not UTF-8.

    `timestamp` is Unix seconds, `received_at` monotonic ones; `attempt` is 1 on the first delivery.
    """

    body: bytes
    reply_to: str | None = None
    correlation_id: str | None = None
    message_id: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    timestamp: float | None = None
    user_id: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    redelivered: bool = False
    attempt: int = 1
    received_at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def echo_id(self) -> str | None:
        """The correlation id of the replies: the request's own, else its message id, else none."""
        return self.message_id if self.correlation_id is None else self.correlation_id

    @property
    def key(self) -> JobKey:
        """The identity under which a redelivery is recognised."""
        digest = hashlib.sha256(self.body).digest()
        return JobKey(self.user_id, self.reply_to, self.correlation_id, self.message_id, digest)

    @property
    def trace(self) -> dict[str, str]:
        """The W3C trace headers, as far as they are text of a sane length: replies and log lines carry them."""
        found = {name: self.headers.get(name) for name in ("traceparent", "tracestate")}
        return {name: value for name, value in found.items() if isinstance(value, str) and len(value) <= TRACE_LENGTH}

    def log_names(self, attempt: int) -> dict[str, Any]:
        """What every log line about this request carries (contract, section 5)."""
        return {"correlation_id": self.echo_id, "attempt": attempt} | self.trace


class Delivery(Protocol):
    """A replaceable handle on a request: the broker's current delivery of it.

    Settling a delivery whose channel is gone does nothing and returns False: the broker delivers it again.
    """

    @property
    def envelope(self) -> Envelope:
        """The request itself."""

    @property
    def stale(self) -> bool:
        """True when the channel it came on is gone."""

    async def ack(self) -> bool:
        """Tell the broker that the request is done."""

    async def reject(self) -> bool:
        """Send it to the dead letters."""

    async def hand_back(self) -> bool:
        """Put it back into the queue, counted as a delivery."""

    async def park(self) -> None:
        """Copy it, `x-death` history included, to the parked requests, confirmed. Raises BusUnavailable."""


@dataclass(frozen=True)
class Reply:
    """One message to a requester, complete but for the moment it is sent.

    Sending the same object again is a copy: same `message_id`, same `seq`.
    """

    reply_to: str
    body: bytes
    type: str
    message_id: str
    correlation_id: str | None
    headers: Mapping[str, Any]
    persistent: bool


class Published(Enum):
    """What became of a confirmed publish."""

    ROUTED = auto()
    RETURNED = auto()


class Bus(Protocol):
    """What worker and replies ask of the broker."""

    async def publish(self, reply: Reply) -> Published:
        """Publish to `reply.reply_to` and wait for the broker's confirmation.

        RETURNED: no such queue. Direct reply-to addresses are always ROUTED; ask `is_there` about them.
        Raises PublishRefused when nacked, BusUnavailable when there is no confirmation.
        """

    async def is_there(self, address: str) -> bool | None:
        """Does the reply address exist? None where the broker could not be asked."""

    @property
    def reconnected_at(self) -> float | None:
        """Monotonic time of the last reconnect, None before the first one."""


def is_direct(address: str) -> bool:
    """True for RabbitMQ's direct reply-to addresses, which are no real queues."""
    return address.startswith("amq.rabbitmq.reply-to.")

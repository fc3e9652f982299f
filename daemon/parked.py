"""The operator's side of the dead letters: looking through the parked requests, sending one back, dropping some.

AMQP has no way to look without taking. So all are taken, unacked, and those that stay are released in one go, which
keeps their order. The daemons go on parking meanwhile.
"""

import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)
from pamqp.commands import Basic
from yarl import URL

from daemon import amqp_codec
from daemon.amqp_codec import RawTable
from daemon.bus import BusUnavailable, PublishRefused
from daemon.dead_letters import death_reason
from daemon.deliveries import DELIVERY_COUNTERS, USER_HEADER, persistent_copy
from daemon.link import BROKER_ERRORS, RPC_SECONDS, bounded, close_quietly, connect, open_channel
from daemon.settings import Settings
from daemon.topology import Topology, explain

_OF_THE_BROKER = ("x-death", "x-first-death-", "x-last-death-", *DELIVERY_COUNTERS)
"""What the broker wrote on a request in its first life; it starts its second one without."""
_KEY_DIGITS = 8


@dataclass(frozen=True)
class ParkedRequest:
    """What is shown of a parked request; never its body. `key` tells it from all others, also where ids are equal."""

    key: str
    correlation_id: str | None
    message_id: str | None
    user_id: str | None
    reply_to: str | None
    reason: str
    died_at: datetime | None
    sent_at: datetime | None
    size_bytes: int

    def is_named(self, name: str) -> bool:
        """Is `name` its key or one of its ids?"""
        return name in {self.key, self.correlation_id, self.message_id}


def describe(message: DeliveredMessage) -> ParkedRequest:
    """What can be told of a parked message from its properties and headers."""
    properties = message.header.properties
    headers = properties.headers or {}
    deaths = headers.get("x-death")
    latest = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
    died_at, user = latest.get("time"), headers.get(USER_HEADER)
    return ParkedRequest(
        key=_key(properties, message.body),
        correlation_id=properties.correlation_id or None,
        message_id=properties.message_id or None,
        user_id=user if isinstance(user, str) else None,
        reply_to=properties.reply_to or None,
        reason=death_reason(headers),
        died_at=died_at if isinstance(died_at, datetime) else None,
        sent_at=properties.timestamp if isinstance(properties.timestamp, datetime) else None,
        size_bytes=len(message.body),
    )


def _key(properties: Basic.Properties, body: bytes) -> str:
    """A few digits of the digest of everything in a parked message: two of them differ unless one is a copy."""
    headers = properties.headers.without(*DELIVERY_COUNTERS).raw if isinstance(properties.headers, RawTable) else b""
    ids = (properties.correlation_id, properties.message_id, properties.reply_to)
    text = "\n".join(value or "" for value in ids).encode("utf-8", "surrogateescape")
    return hashlib.sha256(b"\n".join((text, headers, body))).hexdigest()[:_KEY_DIGITS]


class ParkedQueue:
    """The parked requests of one topology, taken and held until the block of `open_parked` ends."""

    def __init__(self, channel: AbstractChannel, settings: Settings) -> None:
        self._channel = channel
        self._topology = Topology.of(settings)
        url = URL(settings.amqp_url.get_secret_value())
        self._user = None if "auth" in url.query else url.user
        self._named: list[tuple[ParkedRequest, DeliveredMessage]] = []
        self._last_tag = 0

    async def take(self, name: str | None = None) -> list[ParkedRequest]:
        """Take and describe all that are there, oldest first; the bodies of those called `name` are kept."""
        found: list[ParkedRequest] = []
        declared = self._channel.queue_declare(self._topology.parked, passive=True)
        waiting = (await bounded(declared, RPC_SECONDS, f"look up {self._topology.parked}")).message_count or 0
        for _ in range(waiting):
            message = await bounded(self._channel.basic_get(self._topology.parked), RPC_SECONDS, "take one")
            if message.delivery_tag is None:
                break
            self._last_tag = message.delivery_tag
            found.append(describe(message))
            if name is not None and found[-1].is_named(name):
                self._named.append((found[-1], message))
        return found

    @property
    def named(self) -> list[ParkedRequest]:
        """Those that `take` was asked for, copies left out."""
        return list({request.key: request for request, _ in self._named}.values())

    async def requeue(self, reply_to: str | None = None) -> None:
        """Send the named request back to the request queue, with a fresh budget; copies of it are dropped.

        `reply_to` replaces its reply address. Raises PublishRefused where the queue is full or missing.
        """
        _, message = self._named[0]
        properties = self._revived(message.header.properties, reply_to)
        sending = self._channel.basic_publish(
            message.body, routing_key=self._topology.requests, properties=properties, mandatory=True
        )
        try:
            await bounded(sending, RPC_SECONDS, "send it back")
        except PublishError as error:
            raise PublishRefused(f"the queue {self._topology.requests!r} does not exist") from error
        except DeliveryError as error:
            raise PublishRefused(f"the queue {self._topology.requests!r} is full") from error
        await self.drop()

    async def drop(self) -> None:
        """Ack the named request and copies of it: it is gone for good."""
        for _, message in self._named:
            await bounded(self._channel.basic_ack(message.delivery_tag or 0), RPC_SECONDS, "ack it")

    async def drop_all(self) -> None:
        """Ack all that were taken."""
        if self._last_tag:
            await bounded(self._channel.basic_ack(self._last_tag, multiple=True), RPC_SECONDS, "ack all")
            self._last_tag = 0

    async def release(self) -> None:
        """Give back what is still held, in its order. By nack: RabbitMQ 4.3 counts a reject as a failed delivery."""
        if self._last_tag and not self._channel.is_closed:
            await bounded(self._channel.basic_nack(self._last_tag, multiple=True), RPC_SECONDS, "release the others")

    def _revived(self, parked: Basic.Properties, reply_to: str | None) -> Basic.Properties:
        """The properties of the request's second life: sent now, without the history of the first.

        The broker takes a `user_id` only from that user: another operator's request goes back without.
        """
        headers = parked.headers if isinstance(parked.headers, RawTable) else RawTable({}, bytes(4))
        user = headers.get(USER_HEADER)
        own = self._user is not None and user == self._user
        kept: dict[str, Any] = headers.without(*_OF_THE_BROKER, *((USER_HEADER,) if own else ()))
        again = persistent_copy(parked, kept)
        again.reply_to = reply_to or parked.reply_to
        again.timestamp = datetime.now(UTC)
        again.user_id = self._user if own else None
        return again


@contextlib.asynccontextmanager
async def open_parked(settings: Settings) -> AsyncIterator[ParkedQueue]:
    """Connect, and release at the end what is still held.

    Raises BusUnavailable, and ConfigurationError where the queue, a right or the credentials are missing.
    """
    amqp_codec.install()
    connection = await connect(settings.amqp_url.get_secret_value())
    try:
        parked = ParkedQueue(await open_channel(connection), settings)
        try:
            yield parked
        finally:
            await parked.release()
    except (ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed) as error:
        raise (explain(error) or BusUnavailable(str(error))) from error
    except BROKER_ERRORS as error:
        raise BusUnavailable(f"the broker failed: {error}") from error
    finally:
        await close_quietly(connection)

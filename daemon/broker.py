"""The broker: two supervised connections, one to consume on and one to publish on.

With its neighbours `link`, `publisher`, `prober`, `topology` and `deliveries` the only service module that imports
aio-pika.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon import amqp_codec
from daemon.bus import BusUnavailable, Delivery, Published, Reply
from daemon.deliveries import AmqpDelivery
from daemon.link import BROKER_ERRORS, RPC_SECONDS, Link, Loss, bounded, open_channel
from daemon.prober import Prober
from daemon.publisher import Publisher, QueueMissing
from daemon.settings import Settings
from daemon.topology import Topology, establish, explain

CANCEL_CONSUMER_SECONDS = 2.0
"""How long the end of consuming is waited for at shutdown; what still comes is handed back."""

OnDelivery = Callable[[Delivery], None]
OnCancel = Callable[[str | None, str | None], None]
CancelConsumer = Callable[[], Coroutine[Any, Any, Any]]
log = structlog.get_logger(__name__)


def _unexpected(_: Delivery) -> None:
    raise RuntimeError("a delivery came before anybody was there to take it")


class Broker:
    """Connections, topology, consumers and confirmed publishing. Implements the `Bus` port."""

    def __init__(self, settings: Settings) -> None:
        amqp_codec.install()
        self.topology = Topology.of(settings)
        self._settings = settings
        self._on_request: OnDelivery = _unexpected
        self._on_dead: OnDelivery = _unexpected
        self._on_cancel: OnCancel = lambda _, __: None
        url = settings.amqp_url.get_secret_value()
        self.consuming = Link("consume", url, self._set_up)
        self._publisher = Publisher(url, self.topology)
        self.publishing = self._publisher.link
        self._prober = Prober(url)
        self._connection: AbstractConnection | None = None
        self._loss = Loss()
        self._cancel_consumers: list[CancelConsumer] = []
        self._accepting = False

    # -- life -------------------------------------------------------------------------------------------------

    def connect_to(self, on_request: OnDelivery, on_dead: OnDelivery, on_cancel: OnCancel) -> None:
        """Say who takes requests, dead letters and cancels (their user and id); all three return at once."""
        self._on_request, self._on_dead, self._on_cancel = on_request, on_dead, on_cancel

    async def run(self) -> None:
        """Keep both connections up until `close`. Raises ConfigurationError where the first set-up is refused."""
        await asyncio.gather(self.consuming.run(), self.publishing.run())

    async def accept(self) -> None:
        """Start to consume, now and after every reconnect. Raises ConfigurationError where a right is missing."""
        self._accepting = True
        if self.consuming.up.is_set() and self._connection is not None:
            try:
                await self._subscribe(self._connection, self._loss)
            except (BusUnavailable, *BROKER_ERRORS) as error:
                if isinstance(error, ChannelAccessRefused) and (refusal := explain(error)):
                    raise refusal from error
                self.consuming.drop(f"consume failed: {error!r}")

    async def refuse(self) -> None:
        """Stop consuming; deliveries in hand can still be settled."""
        self._accepting = False
        cancels, self._cancel_consumers = self._cancel_consumers, []
        ending = (bounded(cancel(), CANCEL_CONSUMER_SECONDS, "cancel a consumer") for cancel in cancels)
        for error in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(error, Exception):
                log.info("a consumer ended with its connection", reason=str(error))

    async def close(self) -> None:
        """Close all connections in order."""
        await asyncio.gather(self.consuming.close(), self.publishing.close(), self._prober.close())

    @property
    def registered(self) -> bool:
        """True while the broker has this daemon's consumer and the daemon can publish."""
        return bool(self._cancel_consumers) and self.consuming.up.is_set() and self.publishing.up.is_set()

    @property
    def trouble(self) -> str:
        """Why there is no connection, in one sentence; empty when all is well."""
        return self.consuming.trouble or self.publishing.trouble

    @property
    def reconnected_at(self) -> float | None:
        """Monotonic time of the last reconnect, None before the first one."""
        times = [at for at in (self.consuming.reconnected_at, self.publishing.reconnected_at) if at is not None]
        return max(times, default=None)

    # -- consuming --------------------------------------------------------------------------------------------

    async def _set_up(self, connection: AbstractConnection, loss: Loss) -> None:
        self._cancel_consumers = []
        self._connection, self._loss = connection, loss
        try:
            await establish(connection, self.topology, declare=self._settings.declare_)
            if self._accepting:
                await self._subscribe(connection, loss)
        except (ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed) as error:
            raise (explain(error) or BusUnavailable(f"set-up refused: {error}")) from error

    async def _subscribe(self, connection: AbstractConnection, loss: Loss) -> None:
        """Cancels first: a cancel that comes with its request must find the table ready."""
        cancels = [await self._consume_cancels(connection, loss)]
        for name, handler in ((self.topology.dead, self._on_dead), (self.topology.requests, self._on_request)):
            take = partial(self._take, handler, loss)
            channel = await open_channel(connection, loss)
            await bounded(channel.basic_qos(prefetch_count=1), RPC_SECONDS, "set the prefetch")
            cancels.append(await _consume(channel, name, take, no_ack=False))
        if loss.happened:
            raise BusUnavailable(loss.reason)
        self._cancel_consumers = cancels

    def _take(self, handler: OnDelivery, loss: Loss, message: DeliveredMessage) -> None:
        handler(AmqpDelivery(message, loss, self._park))

    async def _consume_cancels(self, connection: AbstractConnection, loss: Loss) -> CancelConsumer:
        """A queue of this connection's own: a half-dead connection may still hold the last one."""
        channel = await open_channel(connection, loss)
        name = f"{self.topology.cancel}.{self._settings.daemon_id}.{time.time_ns():x}"
        await bounded(channel.queue_declare(name, exclusive=True), RPC_SECONDS, f"declare {name}")
        await bounded(channel.queue_bind(name, self.topology.cancel), RPC_SECONDS, f"bind {name}")
        return await _consume(channel, name, self._take_cancel, no_ack=True)

    def _take_cancel(self, message: DeliveredMessage) -> None:
        properties = message.header.properties
        self._on_cancel(properties.user_id or None, properties.correlation_id or properties.message_id or None)

    # -- publishing -------------------------------------------------------------------------------------------

    async def publish(self, reply: Reply) -> Published:
        """See `Bus.publish`."""
        return await self._publisher.publish(reply)

    async def is_there(self, address: str) -> bool | None:
        """See `Bus.is_there`. A broker that is away is not worth a connection of its own to find that out."""
        if not self.publishing.up.is_set():
            return None
        return await self._prober.is_there(address)

    async def depths(self) -> dict[str, int]:
        """How many messages wait in each queue that could be asked about; named requests, dead and parked."""
        found: dict[str, int] = {}
        names = {"requests": self.topology.requests, "dead": self.topology.dead, "parked": self.topology.parked}
        for role, name in names.items():
            depth = await self._prober.depth(name) if self.publishing.up.is_set() else None
            if depth is None:
                break
            found[role] = depth
        return found

    async def _park(self, message: DeliveredMessage) -> None:
        try:
            await self._publisher.park(message)
        except QueueMissing as error:
            self.consuming.drop(str(error))  # a new set-up declares it anew, or says what is missing
            raise


async def _consume(
    channel: AbstractChannel, queue: str, take: Callable[[DeliveredMessage], Any], *, no_ack: bool
) -> CancelConsumer:
    """Consume `queue`; returns what ends it."""
    consuming = channel.basic_consume(queue, take, no_ack=no_ack)
    tag = (await bounded(consuming, RPC_SECONDS, f"consume {queue}")).consumer_tag or ""
    return lambda: channel.basic_cancel(tag)

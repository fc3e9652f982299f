"""The broker: two supervised connections, one to consume on and one to publish on.

So an alarm that blocks publishing does not stop acks. With its neighbours `link`, `prober`, `topology` and
`deliveries` the only service module that imports aio-pika.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import structlog
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import DeliveryError, PublishError
from aiormq.exceptions import AMQPError, ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon import __version__, amqp_codec
from daemon.bus import BusUnavailable, Delivery, Published, PublishRefused, Reply, is_direct
from daemon.deliveries import AmqpDelivery
from daemon.link import RPC_SECONDS, Link, Loss, bounded
from daemon.prober import Prober
from daemon.settings import Settings
from daemon.topology import Topology, establish, explain

PUBLISH_SECONDS = 10.0
"""A confirm that takes longer counts as lost, unless the broker said that it blocks the connection."""
APP_ID = f"leveret/{__version__}"

OnDelivery = Callable[[Delivery], None]
OnCancel = Callable[[str | None, str | None], None]
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
        self.consuming = Link("consume", url, self._open_consuming)
        self.publishing = Link("publish", url, self._open_publishing)
        self._prober = Prober(url)
        self._channel: AbstractChannel | None = None
        self._publish_connection: AbstractConnection | None = None
        self._consume_connection: AbstractConnection | None = None
        self._consume_loss = Loss()
        self._cancel_consumers: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        self._accepting = False

    # -- life -------------------------------------------------------------------------------------------------

    def connect_to(self, on_request: OnDelivery, on_dead: OnDelivery, on_cancel: OnCancel) -> None:
        """Say who takes requests, dead letters and cancels (their user and id); all three return at once."""
        self._on_request, self._on_dead, self._on_cancel = on_request, on_dead, on_cancel

    async def run(self) -> None:
        """Keep both connections up until `close`. Raises ConfigurationError where the first set-up is refused."""
        await asyncio.gather(self.consuming.run(), self.publishing.run())

    async def accept(self) -> None:
        """Start to consume, now and after every reconnect."""
        self._accepting = True
        if self.consuming.up.is_set() and self._consume_connection is not None:
            try:
                await self._subscribe(self._consume_connection, self._consume_loss)
            except (BusUnavailable, AMQPError, OSError, RuntimeError) as error:
                self.consuming.drop(f"consume failed: {error!r}")

    async def refuse(self) -> None:
        """Stop consuming; deliveries in hand can still be settled."""
        self._accepting = False
        cancels, self._cancel_consumers = self._cancel_consumers, []
        for cancel in cancels:
            with contextlib.suppress(BusUnavailable, AMQPError, OSError, RuntimeError):
                await bounded(cancel(), RPC_SECONDS / 2, "cancel a consumer")

    async def close(self) -> None:
        """Close all connections in order."""
        await self.consuming.close()
        await self.publishing.close()
        await self._prober.close()

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

    async def _open_consuming(self, connection: AbstractConnection, loss: Loss) -> None:
        self._cancel_consumers = []
        self._consume_connection, self._consume_loss = connection, loss
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
            cancels.append(await self._consume_queue(connection, loss, name, handler))
        if loss.happened:
            raise BusUnavailable(loss.reason)
        self._cancel_consumers = cancels

    async def _consume_queue(
        self, connection: AbstractConnection, loss: Loss, name: str, handler: OnDelivery
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        channel = await bounded(connection.channel().__aenter__(), RPC_SECONDS, "open a channel")
        await loss.watch(channel)
        await bounded(channel.set_qos(prefetch_count=1), RPC_SECONDS, "set the prefetch")
        queue = await bounded(channel.get_queue(name, ensure=False), RPC_SECONDS, f"look up {name}")

        async def receive(message: AbstractIncomingMessage) -> None:
            handler(AmqpDelivery(message, self._park))

        tag = await bounded(queue.consume(receive), RPC_SECONDS, f"consume {name}")
        return lambda: queue.cancel(tag)

    async def _consume_cancels(
        self, connection: AbstractConnection, loss: Loss
    ) -> Callable[[], Coroutine[Any, Any, Any]]:
        """A queue of this connection's own: a half-dead connection may still hold the last one."""
        channel = await bounded(connection.channel().__aenter__(), RPC_SECONDS, "open a channel")
        await loss.watch(channel)
        name = f"{self.topology.cancel}.{self._settings.daemon_id}.{time.time_ns():x}"
        queue = await bounded(channel.declare_queue(name, exclusive=True), RPC_SECONDS, f"declare {name}")
        await bounded(queue.bind(self.topology.cancel), RPC_SECONDS, f"bind {name}")

        async def receive(message: AbstractIncomingMessage) -> None:
            named = message.message_id if message.correlation_id is None else message.correlation_id
            self._on_cancel(message.user_id, named)

        tag = await bounded(queue.consume(receive, no_ack=True), RPC_SECONDS, f"consume {name}")
        return lambda: queue.cancel(tag)

    # -- publishing -------------------------------------------------------------------------------------------

    async def _open_publishing(self, connection: AbstractConnection, loss: Loss) -> None:
        channel = await bounded(connection.channel(on_return_raises=True).__aenter__(), RPC_SECONDS, "open a channel")
        await loss.watch(channel)
        self._channel, self._publish_connection = channel, connection

    async def publish(self, reply: Reply) -> Published:
        """See `Bus.publish`. Mandatory, except to direct reply-to, where RabbitMQ returns what it delivers."""
        message = Message(
            reply.body,
            headers=dict(reply.headers),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT if reply.persistent else DeliveryMode.NOT_PERSISTENT,
            correlation_id=reply.correlation_id,
            message_id=reply.message_id,
            timestamp=datetime.now(UTC),
            type=reply.type,
            app_id=APP_ID,
        )
        return await self._confirmed(message, reply.reply_to, mandatory=not is_direct(reply.reply_to))

    async def is_there(self, address: str) -> bool | None:
        """See `Bus.is_there`."""
        return await self._prober.is_there(address)

    async def _park(self, message: Message) -> None:
        if await self._confirmed(message, self.topology.parked, mandatory=True) is Published.RETURNED:
            raise BusUnavailable(f"there is no queue {self.topology.parked!r}")

    async def _confirmed(self, message: Message, address: str, *, mandatory: bool) -> Published:
        channel = self._channel
        if channel is None or not self.publishing.up.is_set():
            raise BusUnavailable(self.publishing.trouble or "not connected")
        send = asyncio.ensure_future(
            channel.default_exchange.publish(message, address, mandatory=mandatory, timeout=None)
        )
        try:
            await self._wait_confirm(send)
            send.result()
        except PublishError:
            return Published.RETURNED
        except DeliveryError as error:
            raise PublishRefused(f"the broker refused a message to {address!r}") from error
        except (AMQPError, OSError, RuntimeError) as error:
            raise BusUnavailable(f"publish failed: {error!r}") from error
        finally:
            send.cancel()
        return Published.ROUTED

    async def _wait_confirm(self, send: "asyncio.Future[Any]") -> None:
        """Wait until `send` is done, as long as the broker blocks the connection, else for a limited time.

        A publish given up on a blocked connection is still delivered later, so giving up would only make copies.
        """
        while True:
            done, _ = await asyncio.wait({send}, timeout=PUBLISH_SECONDS)
            if done and send.cancelled():
                raise BusUnavailable("publish: the connection was lost")
            if done:
                return
            if not await self._is_blocked():
                self.publishing.drop(f"no confirm within {PUBLISH_SECONDS:g} s")
                raise BusUnavailable(f"publish: no confirm within {PUBLISH_SECONDS:g} s")

    async def _is_blocked(self) -> bool:
        """True after `connection.blocked`: aiormq's `ready` then waits for `connection.unblocked`."""
        connection = self._publish_connection
        if connection is None or connection.transport is None or connection.is_closed:
            return False
        ready = asyncio.ensure_future(connection.transport.ready())
        await asyncio.wait({ready}, timeout=0.05)
        blocked = not ready.done()
        ready.cancel()
        return blocked

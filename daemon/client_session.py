"""One connection of the reference client: its reply queue, its confirmed publishing, and what errors mean."""

import contextlib
from collections.abc import Iterator
from typing import Self

from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import DeliveryError, PublishError
from aiormq.exceptions import AMQPError, ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon.answer import Answer
from daemon.bus import BusUnavailable
from daemon.client_errors import BrokerRefused, BrokerUnavailable, ClientError, NoDaemonQueue, QueueFull
from daemon.errors import ConfigurationError
from daemon.link import Loss, bounded, close_quietly, connect

CONFIRM_SECONDS = 10.0
"""Longest wait for the broker's answer to one call."""


@contextlib.contextmanager
def broker_errors(target: str) -> Iterator[None]:
    """Turn what aio-pika raises into a ClientError; `target` is the queue or exchange that was addressed."""
    try:
        yield
    except (PublishError, ChannelNotFoundEntity) as error:
        raise NoDaemonQueue(f"{target!r} does not exist on this broker; has a daemon been started there?") from error
    except DeliveryError as error:
        raise QueueFull(f"the broker refuses the request: the queue {target!r} is full; try again later") from error
    except (ConfigurationError, ChannelAccessRefused, ChannelPreconditionFailed) as error:
        raise BrokerRefused(f"the broker refuses this client: {error}") from error
    except (BusUnavailable, AMQPError, OSError, RuntimeError) as error:
        raise BrokerUnavailable(str(error) or repr(error)) from error


class Session:
    """One connection with its reply queue and the answers that wait on it; never repaired, only replaced."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.loss = Loss()
        self.answers: dict[str, Answer] = {}
        self.reply_to = ""
        self.channel: AbstractChannel | None = None
        connection.close_callbacks.add(lambda _, error: self.loss.report(f"connection closed: {error!r}"))

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect and set up. Raises BrokerUnavailable, BrokerRefused."""
        with broker_errors("the reply queue"):
            session = cls(await connect(url))
            try:
                await session._set_up()
            except BaseException:
                await close_quietly(session.connection)
                raise
            return session

    async def _set_up(self) -> None:
        """Declare the reply queue, consume it, and open the channel to publish on."""
        replies = await self._open_channel()
        await self.loss.watch(replies)
        queue = await bounded(replies.declare_queue(exclusive=True), CONFIRM_SECONDS, "declare the reply queue")
        await bounded(queue.consume(self._receive, no_ack=True), CONFIRM_SECONDS, "consume the reply queue")
        self.reply_to = queue.name
        self.channel = await self._open_channel()
        await self.loss.watch(self.channel)

    def expect(self, answer: Answer) -> None:
        """Give replies with the answer's id to `answer` until it has ended."""
        self.answers[answer.correlation_id] = answer

    def forget(self, correlation_id: str) -> None:
        """Drop whatever still comes with this id."""
        self.answers.pop(correlation_id, None)

    async def publish(self, message: Message, queue: str) -> None:
        """Send `message` to `queue` and wait for the broker to take it. Raises ClientError."""
        with broker_errors(queue):
            if self.channel is None or self.loss.happened:
                raise BusUnavailable(self.loss.reason)
            publishing = self.channel.default_exchange.publish(message, queue, mandatory=True)
            await bounded(publishing, CONFIRM_SECONDS, "publish the request")

    async def fan_out(self, message: Message, exchange: str) -> None:
        """Send `message` to everybody bound to `exchange`. Raises ClientError."""
        with broker_errors(exchange):
            # A channel of its own: a missing exchange closes it, and other requests must not suffer from that.
            channel = await self._open_channel()
            target = await channel.get_exchange(exchange, ensure=False)
            await bounded(target.publish(message, "", mandatory=False), CONFIRM_SECONDS, "publish the cancel")
            await bounded(channel.close(), CONFIRM_SECONDS, "close a channel")

    async def _open_channel(self) -> AbstractChannel:
        """A channel with confirms that raises for a message that comes back."""
        channel = self.connection.channel(publisher_confirms=True, on_return_raises=True)
        return await bounded(channel.__aenter__(), CONFIRM_SECONDS, "open a channel")

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        answer = self.answers.get(message.correlation_id or "")
        if answer is not None:
            answer.take(message.type, message.headers, message.body)

    async def end(self, error: ClientError) -> None:
        """Wake everybody who waits here, then let the connection go."""
        for answer in tuple(self.answers.values()):
            answer.fail(error)
        await close_quietly(self.connection)

"""One supervised connection to the broker: bounded calls, capped and jittered back-off, an honest loss signal.

aio-pika's robust connection is not used: it hides losses, answers passive declares from a cache, and stays silent
when a consumer cannot be restored. Here any loss, be it a channel, a consumer or the connection, ends the whole
connection, and everything is set up anew. That is one way for every fault.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aio_pika
import aiormq.abc
import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError, AuthenticationError, InvalidFrameError, ProbableAuthenticationError
from yarl import URL

from daemon import tls
from daemon.bus import BusUnavailable
from daemon.errors import ConfigurationError

RPC_SECONDS = 10.0
"""Time limit of a declare, consume or ack: a quorum queue without a leader answers nothing."""
CONNECT_SECONDS = 15.0
HEARTBEAT_SECONDS = 20
"""Unless the URL says otherwise: long enough for a held GIL, short enough to notice a dead network in a minute."""
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MOST_SECONDS = 5.0
STEADY_SECONDS = 5.0
"""A connection that lasted this long starts the back-off anew."""

BROKER_ERRORS = (AMQPError, OSError, RuntimeError, EOFError)
"""What aio-pika and aiormq raise where a connection is lost or the broker refuses something."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def bounded(operation: Awaitable[T], seconds: float, what: str) -> T:
    """Await `operation` for at most `seconds`; `what` names it in errors.

    Raises BusUnavailable when there is no answer in time or the connection goes meanwhile. aio-pika cancels what is
    pending on a lost connection; that cancellation is told apart from one of the calling task, which is re-raised.
    Other errors of the broker (a refused right, a missing queue) pass through.
    """
    task = asyncio.ensure_future(operation)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not done:
        raise BusUnavailable(f"{what}: no answer within {seconds:g} s")
    return outcome(task, what)


def outcome(task: "asyncio.Future[T]", what: str) -> T:
    """The result of a finished call of aio-pika; BusUnavailable where it ended because the connection was lost."""
    if task.cancelled() or type(task.exception()) is Exception:
        # A pending call is rejected with what ended the connection: a cancellation, or a bare Exception for "nothing".
        raise BusUnavailable(f"{what}: the connection was lost")
    return task.result()


class Loss:
    """Set once, by the first sign that a connection can no longer be relied on."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self.reason = ""

    def report(self, reason: str) -> None:
        """The connection is lost because of `reason`; only the first report counts."""
        if not self._happened.is_set():
            self.reason = reason
            self._happened.set()

    @property
    def happened(self) -> bool:
        """True once a loss was reported."""
        return self._happened.is_set()

    async def wait(self) -> str:
        """Wait for the loss and return its reason."""
        await self._happened.wait()
        return self.reason

    async def watch(self, channel: AbstractChannel) -> None:
        """Count the end of `channel`, or of a consumer on it, as a loss."""
        self.follow(await channel.get_underlay_channel())

    def follow(self, channel: aiormq.abc.AbstractChannel) -> None:
        """Do as `watch` does, for a channel of aiormq."""
        channel.closing.add_done_callback(lambda closing: self.report(f"channel closed: {_reason(closing)}"))
        channel.on_consumer_cancel_callbacks.add(lambda _: self.report("the broker cancelled the consumer"))


SetUp = Callable[[AbstractConnection, Loss], Awaitable[None]]


class Link:
    """A connection that is kept up for ever.

    `set_up` runs on every new connection; when it returns, the link is up. A ConfigurationError of the first
    set-up ends `run`; later ones are logged, shown as `trouble` and tried again.
    """

    def __init__(self, name: str, url: str, set_up: SetUp) -> None:
        self._name = name
        self._url = with_defaults(url, name)
        self._set_up = set_up
        self._loss = Loss()
        self._connection: AbstractConnection | None = None
        self._closing = False
        self._ups = 0
        self.up = asyncio.Event()
        self.trouble = "not connected yet"
        self.reconnected_at: float | None = None

    @property
    def losses(self) -> int:
        """How many times the link came up again after a loss."""
        return max(0, self._ups - 1)

    def drop(self, reason: str) -> None:
        """Give the present connection up; a new one is made."""
        self._loss.report(reason)

    async def run(self) -> None:
        """Connect, set up, wait for the loss, again and again until `close`. Raises ConfigurationError at the start."""
        failures = 0
        while not self._closing:
            started = time.monotonic()
            try:
                await self._live_once()
            except (BusUnavailable, ConfigurationError) as error:
                if isinstance(error, ConfigurationError) and not self._ups:
                    raise
                self._complain(str(error))
            failures = 0 if time.monotonic() - started > STEADY_SECONDS else failures + 1
            if not self._closing:
                await asyncio.sleep(_backoff(failures))

    async def close(self) -> None:
        """Let the present connection go and make no new one; idempotent. The broker has had the last acks by then."""
        self._closing = True
        self._loss.report("closing")
        if self._connection is not None:
            await close_quietly(self._connection)

    async def _live_once(self) -> None:
        loss = self._loss = Loss()
        connection = self._connection = await connect(self._url)
        try:
            connection.close_callbacks.add(lambda _, error: loss.report(f"connection closed: {error!r}"))
            await self._settle(connection, loss)
            self._note_up()
            reason = await loss.wait()
            if not self._closing:
                self._complain(reason)
        finally:
            self.up.clear()
            loss.report("given up")
            await close_quietly(connection)

    async def _settle(self, connection: AbstractConnection, loss: Loss) -> None:
        try:
            await self._set_up(connection, loss)
        except (*BROKER_ERRORS, ValueError) as error:
            raise BusUnavailable(f"set-up failed: {error!r}") from error

    def _note_up(self) -> None:
        self._ups += 1
        self.trouble = ""
        if self._ups > 1:
            self.reconnected_at = time.monotonic()
        self.up.set()
        log.info("connected to the broker", link=self._name, connects=self._ups)

    def _complain(self, trouble: str) -> None:
        self.trouble = trouble
        log.warning("no connection to the broker", link=self._name, reason=trouble)


async def connect(url: str) -> AbstractConnection:
    """One plain connection. Raises ConfigurationError for refused credentials or vhost, else BusUnavailable."""
    where = URL(url).with_user(None).with_password(None).with_query(None)
    try:
        return await _connect_once(url, f"connect to {where}")
    except InvalidFrameError:
        # So aiormq reports whatever ends the handshake late: a refused vhost, but also a broker that is shutting down.
        await asyncio.sleep(BACKOFF_FIRST_SECONDS)
    try:
        return await _connect_once(url, f"connect to {where}")
    except InvalidFrameError as error:
        raise ConfigurationError(
            f"LEVERET_AMQP_URL: the broker refuses the virtual host {where.path!r}; create it or grant the user access"
        ) from error


async def _connect_once(url: str, what: str) -> AbstractConnection:
    """As `connect`, but a connection that is closed late in the handshake raises InvalidFrameError."""
    try:
        return await bounded(aio_pika.connect(url), CONNECT_SECONDS, what)
    except (ProbableAuthenticationError, AuthenticationError) as error:
        raise ConfigurationError(
            f"LEVERET_AMQP_URL: {what}: the broker refuses the credentials; check user and password"
        ) from error
    except InvalidFrameError:
        raise
    except BROKER_ERRORS as error:
        fault = tls.fault_in(error)
        if fault is None and URL(url).scheme == "amqps":
            fault = await tls.refusal_of(url)
        if fault is not None:
            raise ConfigurationError(
                f"LEVERET_AMQP_URL: {what}: TLS is unusable: {fault}; check address, cafile, certfile and keyfile"
            ) from error
        raise BusUnavailable(f"{what}: {error}") from error


async def open_channel(connection: AbstractConnection, loss: Loss | None = None) -> aiormq.abc.AbstractChannel:
    """A channel with confirms that raises for what comes back; its end is a `loss`. Raises BusUnavailable.

    Not aio-pika's: that one leaves a callback on the connection for each channel it ever opened.
    """
    if connection.transport is None:
        raise BusUnavailable("open a channel: the connection is closed")
    channel = await bounded(connection.transport.connection.channel(), RPC_SECONDS, "open a channel")
    if loss is not None:
        loss.follow(channel)
    return channel


async def close_quietly(connection: AbstractConnection) -> None:
    """Close what may already be broken; a broken connection is closed all the same."""
    with contextlib.suppress(BusUnavailable, *BROKER_ERRORS):
        await bounded(connection.close(), RPC_SECONDS / 2, "close the connection")


def _reason(closing: "asyncio.Future[Any]") -> str:
    return "cancelled" if closing.cancelled() else repr(closing.exception())


def _backoff(failures: int) -> float:
    """Seconds to wait: doubling up to the cap, between half and the whole of it at random."""
    ceiling = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * float(1 << min(failures, 10)))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads daemons, guards nothing


def with_defaults(url: str, name: str) -> str:
    """The URL with a heartbeat, unless it sets one, and the connection's name as operators see it."""
    query: dict[str, Any] = {"heartbeat": str(HEARTBEAT_SECONDS), "name": f"leveret {name}"}
    return str(URL(url).update_query(query | dict(URL(url).query)))

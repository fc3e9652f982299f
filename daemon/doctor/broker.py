"""The broker: is it there, does it let this user do what a daemon does, and is the topology what the settings say?

Nothing is created but one exclusive queue that dies with the connection, and nothing is taken from a queue. What exists
is declared once more with the wanted arguments, which the broker answers by comparing and nothing else. A refusal
closes its channel, so every question has a channel of its own.
"""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aio_pika import ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue
from aiormq.exceptions import AMQPError, ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon.bus import BusUnavailable
from daemon.doctor.findings import Finding, fail, ok, warn
from daemon.errors import ConfigurationError
from daemon.link import RPC_SECONDS, bounded, close_quietly, connect
from daemon.settings import Settings
from daemon.topology import Topology, explain

_RIGHTS = "grant it to the daemon's user; deploy/rabbitmq lists the rights"
_OLDEST = (3, 10)


@dataclass(frozen=True)
class Broker:
    """An open connection and what is looked for on it."""

    connection: AbstractConnection
    topology: Topology
    declare: bool


async def check_broker(settings: Settings) -> list[Finding]:
    """Everything about the broker. Never raises for what the broker does or refuses."""
    try:
        connection = await connect(settings.amqp_url.get_secret_value())
    except BusUnavailable as error:
        return [fail("broker", str(error), "start the broker, or set LEVERET_AMQP_URL to where it is")]
    except ConfigurationError as error:
        return [fail("broker", "the broker does not let this user in", str(error))]
    broker = Broker(connection, Topology.of(settings), settings.declare_)
    try:
        return [_check_version(connection), *await _check_topology(broker), *await _check_rights(broker)]
    except (BusUnavailable, AMQPError, OSError, RuntimeError) as error:
        return [fail("broker", f"it stopped answering: {error}", "look into the broker's log; is it short of memory?")]
    finally:
        await close_quietly(connection)


def _check_version(connection: AbstractConnection) -> Finding:
    transport = connection.transport
    properties: dict[str, Any] = dict(transport.connection.server_properties) if transport else {}
    product, version = (_text(properties.get(key)) for key in ("product", "version"))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if product == "RabbitMQ" and numbers < _OLDEST:
        return warn("broker", f"connected to RabbitMQ {version}", "use 3.10 or newer: older ones lack at-least-once")
    return ok("broker", f"connected to {product} {version}")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "unknown")


# -- topology -------------------------------------------------------------------------------------------------------


async def _check_topology(broker: Broker) -> list[Finding]:
    names = broker.topology
    findings = [await _check_exchange(broker, name) for name in (names.dlx, names.cancel)]
    findings += [await _check_queue(broker, name) for name in names.queues]
    return findings


async def _check_exchange(broker: Broker, name: str) -> Finding:
    async def look(channel: AbstractChannel) -> object:
        return await channel.declare_exchange(name, passive=True)

    async def compare(channel: AbstractChannel) -> object:
        return await channel.declare_exchange(name, ExchangeType.FANOUT, durable=True)

    try:
        await _ask(broker, look)
    except ChannelNotFoundEntity:
        return _absent(broker, f"exchange {name}")
    return await _compare(broker, f"exchange {name}", compare)


async def _check_queue(broker: Broker, name: str) -> Finding:
    async def look(channel: AbstractChannel) -> AbstractQueue:
        return await channel.declare_queue(name, passive=True)

    async def compare(channel: AbstractChannel) -> object:
        arguments = dict(broker.topology.queues[name])
        return await channel.declare_queue(name, durable=True, arguments=arguments)

    try:
        counts = (await _ask(broker, look)).declaration_result
    except ChannelNotFoundEntity:
        return _absent(broker, f"queue {name}")
    finding = await _compare(broker, f"queue {name}", compare)
    waiting, consumers = counts.message_count or 0, counts.consumer_count or 0
    if finding.advice or not (name == broker.topology.parked and waiting):
        return Finding(
            finding.check,
            finding.verdict,
            f"{finding.seen}; {waiting} waiting, {consumers} consumer(s)",
            finding.advice,
        )
    return warn("topology", f"queue {name} holds {waiting} parked request(s)", "look at them with `leveret dead`")


def _absent(broker: Broker, what: str) -> Finding:
    if broker.declare:
        return ok("topology", f"{what} is not there yet; the daemon declares it at its start")
    return fail("topology", f"{what} is not there", "declare it (deploy/rabbitmq), or set LEVERET_DECLARE=true")


async def _compare(broker: Broker, what: str, compare: Callable[[AbstractChannel], Awaitable[object]]) -> Finding:
    """Declare `what` as the settings want it; the broker refuses where it exists otherwise."""
    try:
        await _ask(broker, compare)
    except ChannelPreconditionFailed as error:
        return fail("topology", f"{what} is not as the settings want it", str(explain(error) or error))
    except ChannelAccessRefused:
        if broker.declare:
            return fail("rights", f"no right to declare {what}", f"{_RIGHTS}, or set LEVERET_DECLARE=false")
        return ok("topology", f"{what} is there (its arguments only show to a user who may declare it)")
    return ok("topology", f"{what} is as the settings want it")


# -- rights ---------------------------------------------------------------------------------------------------------


async def _check_rights(broker: Broker) -> list[Finding]:
    """Do what a daemon does, as far as it can be done without consequences."""
    names = broker.topology
    own = f"{names.cancel}.doctor-{secrets.token_hex(4)}"

    async def send(channel: AbstractChannel) -> object:
        return await channel.default_exchange.publish(Message(b""), own, mandatory=False)

    async def listen(channel: AbstractChannel) -> object:
        queue = await channel.declare_queue(own, exclusive=True)
        return await queue.bind(names.cancel)

    findings = [await _may(broker, "answer (write to amq.default)", send)]
    findings.append(await _may(broker, f"hear cancels (a queue {names.cancel}.*, bound to {names.cancel})", listen))
    findings += [await _may(broker, f"read {name}", _reading(name)) for name in (names.requests, names.dead)]
    return findings


class _Untested(Exception):
    """The question cannot be asked without consequences; the message says why."""


def _reading(name: str) -> Callable[[AbstractChannel], Awaitable[object]]:
    """Fetch from an empty queue: the right is checked and nothing is taken."""

    async def read(channel: AbstractChannel) -> None:
        queue = await channel.declare_queue(name, passive=True)
        if queue.declaration_result.message_count:
            raise _Untested(
                f"{queue.declaration_result.message_count} request(s) wait there, and reading would take one"
            )
        message = await queue.get(fail=False)
        if message is not None:  # it came in between: it goes back
            await message.nack(requeue=True)

    return read


async def _may(broker: Broker, what: str, action: Callable[[AbstractChannel], Awaitable[object]]) -> Finding:
    try:
        await _ask(broker, action)
    except ChannelAccessRefused as error:
        return fail("rights", f"may not {what}: {error.args[0] if error.args else error}", _RIGHTS)
    except ChannelNotFoundEntity:
        return ok("rights", f"may {what}: not tested, it is not there yet")
    except _Untested as reason:
        return ok("rights", f"may {what}: not tested, {reason}")
    return ok("rights", f"may {what}")


async def _ask(broker: Broker, question: Callable[[AbstractChannel], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Put one question on a channel of its own, within a time limit."""
    channel = await bounded(broker.connection.channel().__aenter__(), RPC_SECONDS, "open a channel")
    try:
        return await bounded(question(channel), RPC_SECONDS, "ask the broker")
    finally:
        if not channel.is_closed:
            await bounded(channel.close(), RPC_SECONDS, "close a channel")

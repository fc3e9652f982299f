"""The queues and exchanges: their names, their arguments, and how they are declared or checked."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed

from daemon.errors import ConfigurationError
from daemon.link import RPC_SECONDS, bounded
from daemon.settings import Settings

PARKED_LENGTH = 10_000
"""Most parked requests kept; the oldest are dropped."""

_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>\w+) '(?P<name>[^']+)'.*?: "
    r"received (?P<wanted>.+?) but current is (?P<current>.+?)$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Topology:
    """Names and arguments of everything a daemon uses on the broker."""

    requests: str
    prefix: str
    delivery_limit: int
    max_length: int

    @classmethod
    def of(cls, settings: Settings) -> "Topology":
        """The topology that `settings` describe."""
        return cls(settings.queue, settings.prefix, settings.delivery_limit, settings.queue_max_length)

    @property
    def dlx(self) -> str:
        """Fanout exchange that dead letters of the request queue go to."""
        return f"{self.prefix}.dlx"

    @property
    def dead(self) -> str:
        """Queue of dead letters, read by the daemons."""
        return f"{self.prefix}.dead"

    @property
    def parked(self) -> str:
        """Queue of answered dead letters, for the operator."""
        return f"{self.prefix}.parked"

    @property
    def cancel(self) -> str:
        """Fanout exchange that carries cancels to every daemon."""
        return f"{self.prefix}.cancel"

    def owns(self, name: str) -> bool:
        """True for every name that is Leveret's own; replies never go there."""
        return name in {self.requests, self.dead, self.parked} or name.startswith(f"{self.cancel}.")

    @property
    def queues(self) -> Mapping[str, Mapping[str, Any]]:
        """Arguments by name of the durable quorum queues."""
        at_least_once = {
            "x-queue-type": "quorum",
            "x-overflow": "reject-publish",
            "x-dead-letter-strategy": "at-least-once",
            "x-delivery-limit": self.delivery_limit,
        }
        return {
            self.parked: {"x-queue-type": "quorum", "x-max-length": PARKED_LENGTH},
            self.dead: at_least_once | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.parked},
            self.requests: at_least_once | {"x-max-length": self.max_length, "x-dead-letter-exchange": self.dlx},
        }


def explain(error: Exception) -> ConfigurationError | None:
    """The operator's sentence for a refused declare, or None where the refusal is not a matter of set-up."""
    text = str(error.args[0]) if error.args else str(error)
    if isinstance(error, ChannelAccessRefused):
        return ConfigurationError(f"the broker refuses a right: {text}; grant it (deploy/rabbitmq lists the rights)")
    if isinstance(error, ChannelNotFoundEntity):
        return ConfigurationError(f"the topology is not there: {text}; declare it or set LEVERET_DECLARE=true")
    if not isinstance(error, ChannelPreconditionFailed):
        return None
    found = _INEQUIVALENT.search(text)
    if found is None:
        return ConfigurationError(f"the broker refuses the topology: {text}")
    argument, kind, name, wanted, current = (found[key] for key in ("argument", "kind", "name", "wanted", "current"))
    return ConfigurationError(
        f"{kind} {name!r} exists with {argument} = {_plain(current)}, wanted {_plain(wanted)}; "
        f"change the setting to match, or delete the {kind} so that it is declared anew"
    )


def _plain(value: str) -> str:
    """RabbitMQ's `the value '5' of type 'signedint'` and `none` as a plain value."""
    found = re.search(r"the value '(.*?)'", value)
    return found[1] if found else value.strip("'\"")


async def establish(connection: AbstractConnection, topology: Topology, *, declare: bool) -> None:
    """Declare the topology, or only check that it exists. Raises ConfigurationError, BusUnavailable."""
    channel = await bounded(connection.channel().__aenter__(), RPC_SECONDS, "open a channel")
    step: Callable[[AbstractChannel, Topology], Awaitable[None]] = _declare if declare else _check
    try:
        await step(channel, topology)
    finally:
        if not channel.is_closed:
            await bounded(channel.close(), RPC_SECONDS, "close a channel")


async def _declare(channel: AbstractChannel, topology: Topology) -> None:
    """Where the letters go is declared before what sends them there."""
    for name in (topology.dlx, topology.cancel):
        await bounded(channel.declare_exchange(name, ExchangeType.FANOUT, durable=True), RPC_SECONDS, f"declare {name}")
    for name, arguments in topology.queues.items():
        queue = await bounded(
            channel.declare_queue(name, durable=True, arguments=dict(arguments)), RPC_SECONDS, f"declare {name}"
        )
        if name == topology.dead:
            await bounded(queue.bind(topology.dlx), RPC_SECONDS, f"bind {name}")


async def _check(channel: AbstractChannel, topology: Topology) -> None:
    for name in (topology.dlx, topology.cancel):
        await bounded(channel.declare_exchange(name, passive=True), RPC_SECONDS, f"check {name}")
    for name in topology.queues:
        await bounded(channel.declare_queue(name, passive=True), RPC_SECONDS, f"check {name}")

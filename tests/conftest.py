"""What every test may ask for: a private broker, names of its own on it, and the real small model."""

import asyncio
import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aio_pika
import hypothesis
import pytest
from private_broker import PrivateBroker
from yarl import URL

from daemon.fetching import SMALL_MODEL, fetch_model

ROOT = Path(__file__).parent.parent

# No test is about time: on a busy machine Hypothesis's clocks would fail what is right.
hypothesis.settings.register_profile("leveret", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("leveret")

# A shell that runs the tests in the background has them ignore Ctrl-C; the programs that they start would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class OutsideBroker:
    """A broker on this machine that somebody else runs and `guest` may use: tests that command it cannot have it."""

    url: str
    running: bool = True

    @property
    def port(self) -> int:
        """Its AMQP port."""
        return URL(self.url).port or 5672


@pytest.fixture(scope="session")
def broker() -> Iterator[PrivateBroker | OutsideBroker]:
    """One RabbitMQ node for the whole session: starting one takes eight seconds.

    LEVERET_TEST_AMQP_URL names one that runs already, to see how another version does; only for the tests that
    .github/workflows/test.yml lists.
    """
    if url := os.environ.get("LEVERET_TEST_AMQP_URL"):
        yield OutsideBroker(url)
        return
    with PrivateBroker() as node:
        yield node


@pytest.fixture
def queue(broker: PrivateBroker) -> Iterator[str]:
    """A request queue's name (`LEVERET_QUEUE`) that no other test uses; its topology is deleted afterwards."""
    prefix = f"t{secrets.token_hex(4)}"
    yield f"{prefix}.requests"
    if broker.running:
        asyncio.run(delete_topology(broker.url, prefix))


async def delete_topology(url: str, prefix: str) -> None:
    """Delete everything that a daemon with the queue `<prefix>.requests` declares; what is missing is no error."""
    connection = await aio_pika.connect(url, timeout=10)
    async with connection, connection.channel() as channel:
        for name in ("requests", "dead", "parked"):
            await channel.queue_delete(f"{prefix}.{name}", timeout=10)
        for name in ("dlx", "cancel"):
            await channel.exchange_delete(f"{prefix}.{name}", timeout=10)


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The directory of the real SmolLM2-135M-Instruct, fetched and converted once into `.models`."""
    return fetch_model(SMALL_MODEL, ROOT / ".models", None, print).path

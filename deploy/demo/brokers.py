"""Where the demo gets a broker from: the configured one, a private one, one that apt installs, one in Docker."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aio_pika
from aio_pika.exceptions import AMQPError, ChannelNotFoundEntity
from private_broker import START_SECONDS, PrivateBroker, answers_amqp, find_sbin, free_port

DEMO_QUEUE = "leveret-demo.requests"
"""The request queue on a broker that the demo did not start: nobody else's names are touched there."""

_INSTALLER = Path(__file__).with_name("install_rabbitmq.sh")
_IMAGE = "rabbitmq:4-alpine"
_CONNECT_SECONDS = 5.0


class NoBroker(Exception):
    """There is no broker to be had; the message says what to do."""


@dataclass(frozen=True)
class DemoBroker:
    """A broker that answers: its address, and whether somebody else runs it."""

    url: str
    foreign: bool


async def configured() -> DemoBroker | None:
    """The broker of LEVERET_AMQP_URL, where that is set and answers."""
    url = os.environ.get("LEVERET_AMQP_URL")
    if not url:
        return None
    try:
        connection = await aio_pika.connect(url, timeout=_CONNECT_SECONDS)
    except (AMQPError, OSError, ValueError, TimeoutError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        print(f"The broker of LEVERET_AMQP_URL does not answer ({reason}); looking for another.")
        return None
    await connection.close()
    print("Using the broker of LEVERET_AMQP_URL.")
    return DemoBroker(url, foreign=True)


@contextlib.contextmanager
def own() -> Iterator[DemoBroker]:
    """A broker of the demo's own, gone after the block. Raises NoBroker, BrokerError."""
    if find_sbin() is None and not _install():
        with _docker() as url:
            yield DemoBroker(url, foreign=False)
        return
    print("Starting a private RabbitMQ node (about ten seconds) ...", flush=True)
    with PrivateBroker("demo") as broker:
        yield DemoBroker(broker.url, foreign=False)


def _install() -> bool:
    """Install rabbitmq-server with apt, where that is possible; True when it is there."""
    if shutil.which("apt-get") is None or not _may_install():
        return False
    print("Installing rabbitmq-server with apt (once; no service is left running) ...", flush=True)
    return subprocess.run([str(_INSTALLER)], check=False).returncode == 0 and find_sbin() is not None


def _may_install() -> bool:
    """As root, with sudo that asks for no password, or where somebody sits who can type it."""
    if os.geteuid() == 0:
        return True
    sudo = shutil.which("sudo")
    if sudo is None:
        return False
    quiet = [sudo, "-n", "true"]
    return sys.stdin.isatty() or subprocess.run(quiet, check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def _docker() -> Iterator[str]:
    """A broker in a throw-away container."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], check=False, capture_output=True).returncode != 0:
        raise NoBroker(
            "no broker: set LEVERET_AMQP_URL to one, install RabbitMQ (Debian: apt install rabbitmq-server), "
            "or start Docker"
        )
    port, name = free_port(), f"leveret-demo-{uuid.uuid4().hex[:8]}"
    print(f"Starting {_IMAGE} in Docker ...", flush=True)
    options = ["--rm", "--detach", "--name", name, "--publish", f"127.0.0.1:{port}:5672"]
    if subprocess.run([docker, "run", *options, _IMAGE], check=False, stdout=subprocess.DEVNULL).returncode != 0:
        raise NoBroker(f"Docker could not run {_IMAGE}; set LEVERET_AMQP_URL to a broker that you have")
    try:
        _await_answer(port)
        yield f"amqp://guest:guest@127.0.0.1:{port}/"
    finally:
        subprocess.run([docker, "rm", "--force", name], check=False, capture_output=True)


def _await_answer(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers_amqp("127.0.0.1", port):
        if time.monotonic() > deadline:
            raise NoBroker(f"RabbitMQ in Docker did not answer within {START_SECONDS:g} s")
        time.sleep(0.2)


class Cleaner:
    """Removes from a foreign broker what the demo's daemon declared there, and only that."""

    def __init__(self, url: str, queue: str) -> None:
        prefix = queue.removesuffix(".requests")
        self._url = url
        self._queues = [queue, f"{prefix}.dead", f"{prefix}.parked"]
        self._exchanges = [f"{prefix}.dlx", f"{prefix}.cancel"]
        self._found: set[str] = set()

    async def look(self) -> None:
        """Remember what was there before; that stays."""
        connection = await aio_pika.connect(self._url, timeout=_CONNECT_SECONDS)
        async with connection:
            for name in (*self._queues, *self._exchanges):
                if await self._is_there(connection, name):
                    self._found.add(name)

    async def _is_there(self, connection: aio_pika.abc.AbstractConnection, name: str) -> bool:
        """Ask on a channel of its own: a "not found" closes it."""
        channel = await connection.channel()
        try:
            if name in self._queues:
                await channel.declare_queue(name, passive=True, timeout=_CONNECT_SECONDS)
            else:
                await channel.declare_exchange(name, passive=True, timeout=_CONNECT_SECONDS)
        except ChannelNotFoundEntity:
            return False
        await channel.close()
        return True

    async def clean(self) -> None:
        """Delete what was not there before."""
        connection = await aio_pika.connect(self._url, timeout=_CONNECT_SECONDS)
        async with connection, connection.channel() as channel:
            for name in self._queues:
                if name not in self._found:
                    await channel.queue_delete(name, timeout=_CONNECT_SECONDS)
            for name in self._exchanges:
                if name not in self._found:
                    await channel.exchange_delete(name, timeout=_CONNECT_SECONDS)

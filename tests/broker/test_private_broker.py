"""The private RabbitMQ node that tests and the demo run on."""

import os
import subprocess
import sys
from pathlib import Path

import aio_pika
import pytest
from private_broker import BrokerError, PrivateBroker, answers_amqp, free_port

from tests.support.wait import block_until

_HOLDER = """
import sys
from private_broker import PrivateBroker
broker = PrivateBroker("orphan")
broker.start()
print(broker.directory, broker.port, flush=True)
sys.stdin.read()
"""


async def _take(url: str, queue: str) -> bytes:
    """The first message of the queue; a quorum queue may need a moment after a crash to elect its leader."""
    connection = await aio_pika.connect(url, timeout=10)
    async with connection, connection.channel() as channel:
        found = await channel.get_queue(queue)
        async with found.iterator(timeout=30) as messages:
            message = await anext(aiter(messages))
            await message.ack()
            return message.body


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def _publish(url: str, queue: str) -> None:
    connection = await aio_pika.connect(url, timeout=10)
    async with connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"}, timeout=10)
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, queue, timeout=10)


async def test_data_survive_a_crash_and_nothing_survives_stop() -> None:
    """A node that loses confirmed messages in `kill`, or leaves processes or files behind, would spoil every test."""
    broker = PrivateBroker("crash")
    broker.start()
    pids = [int(path.read_text()) for path in broker.directory.glob("*.running")]
    await _publish(broker.url, "kept")
    broker.sync()
    broker.kill()
    assert not answers_amqp("127.0.0.1", broker.port)
    broker.start()
    assert await _take(broker.url, "kept") == b"kept"
    pids += [int(path.read_text()) for path in broker.directory.glob("*.running")]
    broker.stop()
    assert not broker.directory.exists()
    assert [pid for pid in pids if _alive(pid)] == []


def test_a_killed_parent_takes_the_node_along() -> None:
    """A test run that is killed (SIGKILL) must leave neither a node nor its directory."""
    environment = os.environ | {"PYTHONPATH": str(Path("deploy/demo").resolve())}
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        directory, port = parent.stdout.readline().split()
        parent.kill()
    block_until(lambda: not answers_amqp("127.0.0.1", int(port)), description="the node is gone")
    block_until(lambda: not Path(directory).exists(), description="its directory is gone")


def test_a_failing_ctl_says_why(broker: PrivateBroker) -> None:
    """An error of `rabbitmqctl` must not pass for success."""
    with pytest.raises(BrokerError, match="no_such_user"):
        broker.ctl("delete_user", "no_such_user")


def test_a_port_without_a_broker_does_not_answer() -> None:
    """Readiness is AMQP's, not TCP's: a closed port and a mute one are both not ready."""
    assert not answers_amqp("127.0.0.1", free_port())

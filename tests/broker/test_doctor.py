"""`leveret doctor` on a real broker: topology and rights, and that looking changes nothing."""

import aio_pika
import pytest
from private_broker import PrivateBroker

from daemon.doctor.broker import check_broker
from daemon.doctor.findings import Finding, Verdict
from daemon.link import connect
from daemon.settings import Settings, load_settings
from daemon.topology import Topology, establish


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, broker: PrivateBroker, queue: str) -> Settings:
    """The settings of a daemon on the session's broker."""
    monkeypatch.setenv("LEVERET_AMQP_URL", broker.url)
    monkeypatch.setenv("LEVERET_QUEUE", queue)
    return load_settings()


async def _declare(settings: Settings) -> None:
    connection = await connect(settings.amqp_url.get_secret_value())
    async with connection:
        await establish(connection, Topology.of(settings), declare=True)


def _faults(findings: list[Finding]) -> list[str]:
    return [f"{finding.seen} {finding.advice}" for finding in findings if finding.verdict is not Verdict.OK]


async def test_before_the_first_daemon(monkeypatch: pytest.MonkeyPatch, settings: Settings, queue: str) -> None:
    """Guards against a doctor that declares what it looks for, and a missing topology that passes all the same."""
    assert _faults(await check_broker(settings)) == []
    monkeypatch.setenv("LEVERET_DECLARE", "false")
    faults = _faults(await check_broker(load_settings()))
    assert len(faults) == 5
    assert all("is not there" in fault for fault in faults)


async def test_other_arguments(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Guards against a daemon that ends at its start although the doctor said ok; a sound topology has no fault."""
    await _declare(settings)
    assert _faults(await check_broker(settings)) == []
    monkeypatch.setenv("LEVERET_QUEUE_MAX_LENGTH", "7")
    (fault,) = _faults(await check_broker(load_settings()))
    assert "x-max-length = 1000, wanted 7" in fault


async def test_a_waiting_request_is_left_alone(settings: Settings, queue: str) -> None:
    """Guards against a test of the right to read that costs a request one of its deliveries."""
    await _declare(settings)
    connection = await aio_pika.connect(settings.amqp_url.get_secret_value())
    async with connection, connection.channel() as channel:
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue)
        findings = await check_broker(settings)
        assert any("reading would take one" in finding.seen for finding in findings)
        message = await (await channel.get_queue(queue)).get()
        assert message.redelivered is False
        await message.ack()


async def test_each_missing_right_is_named(
    monkeypatch: pytest.MonkeyPatch, broker: PrivateBroker, settings: Settings, queue: str
) -> None:
    """Guards against a user who may connect and nothing else, and passes."""
    await _declare(settings)
    monkeypatch.setenv("LEVERET_DECLARE", "false")
    prefix = settings.prefix
    poor = broker.add_user(f"poor-{prefix}", "secret", configure="^$", write="^$", read="^$")
    monkeypatch.setenv("LEVERET_AMQP_URL", poor)
    faults = _faults(await check_broker(load_settings()))
    assert [fault.split(":")[0] for fault in faults] == [
        "may not answer (write to amq.default)",
        f"may not hear cancels (a queue {prefix}.cancel.*, bound to {prefix}.cancel)",
        f"may not read {queue}",
        f"may not read {prefix}.dead",
    ]
    enough = broker.add_user(
        f"enough-{prefix}",
        "secret",
        configure=rf"^{prefix}\.cancel\..*",
        write=rf"^(amq\.default|{prefix}\.cancel\..*)$",
        read=rf"^({prefix}\.requests|{prefix}\.dead|{prefix}\.cancel.*)$",
    )
    monkeypatch.setenv("LEVERET_AMQP_URL", enough)
    assert _faults(await check_broker(load_settings())) == []


async def test_wrong_password(monkeypatch: pytest.MonkeyPatch, broker: PrivateBroker) -> None:
    """Guards against a refused user who is told to start the broker."""
    monkeypatch.setenv("LEVERET_AMQP_URL", broker.url.replace("guest:guest", "guest:wrong"))
    (fault,) = _faults(await check_broker(load_settings()))
    assert "check user and password" in fault

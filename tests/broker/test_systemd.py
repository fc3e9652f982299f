"""The daemon under a systemd that is played by the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from private_broker import free_port

from daemon.systemd import EXTEND_SECONDS
from tests.broker.conftest import StartDaemon
from tests.support.notify_socket import NotifySocket
from tests.support.wait import wait_until

EXTEND = f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1_000_000}"


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[NotifySocket]:
    """A listening socket."""
    listener = NotifySocket(tmp_path / "notify")
    yield listener
    listener.close()


def _environment(heard: NotifySocket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": heard.path, "WATCHDOG_USEC": "600000", **more}


async def test_ready_when_it_consumes_and_stopping_first_at_the_end(
    start_daemon: StartDaemon, heard: NotifySocket
) -> None:
    """A unit is active from the first moment it serves to the moment it was told to stop, not longer."""
    daemon = await start_daemon(environment=_environment(heard))
    await wait_until(lambda: "READY=1" in heard.lines, description="READY")
    await wait_until(lambda: heard.count("WATCHDOG=1") >= 2, description="pings")
    before = heard.lines.index("READY=1")
    assert EXTEND in heard.lines[:before]
    assert "STATUS=loading" in heard.lines[:before]
    told = len(heard.messages)
    daemon.signal()
    assert await daemon.status() == 0
    after = [message for message in heard.messages[told:] if message != ["WATCHDOG=1"]]
    assert after[0] == ["STOPPING=1", "STATUS=draining", EXTEND]


async def test_the_start_is_extended_while_the_broker_is_away(start_daemon: StartDaemon, heard: NotifySocket) -> None:
    """A machine that boots before its broker must not kill and restart the daemon every 90 seconds."""
    nobody = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
    daemon = await start_daemon(until_ready=False, amqp_url=nobody, environment=_environment(heard))
    await wait_until(lambda: "STATUS=disconnected" in heard.lines, description="loaded, and no broker")
    before = heard.count(EXTEND)
    await wait_until(lambda: heard.count(EXTEND) >= before + 2, description="extended while it waits")
    assert "READY=1" not in heard.lines
    daemon.signal()
    assert await daemon.status() == 0
    assert "STOPPING=1" in heard.lines

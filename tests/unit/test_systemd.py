"""What systemd is told, heard on a socket in its place."""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from daemon import systemd
from daemon.lifecycle import STALL_SECONDS, Lifecycle, State
from tests.support.notify_socket import NotifySocket
from tests.support.wait import wait_until

Watch = Callable[[Lifecycle], None]
EXTEND = f"EXTEND_TIMEOUT_USEC={systemd.EXTEND_SECONDS * 1_000_000}"


@dataclass
class FakeThread:
    """What the lifecycle looks at in the engine's thread."""

    alive: bool = True
    busy: bool = False
    loaded: bool = True
    silent_seconds: float = 0.0

    @property
    def last_progress(self) -> float:
        """Monotonic seconds."""
        return time.monotonic() - self.silent_seconds


@dataclass
class FakeBroker:
    """What the lifecycle looks at in the broker."""

    registered: bool = False
    trouble: str = ""


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotifySocket]:
    """A listening socket, and the environment of a unit with a quick watchdog."""
    listener = NotifySocket(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", listener.path)
    monkeypatch.setenv("WATCHDOG_USEC", "60000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    yield listener
    listener.close()


@pytest.fixture
def thread() -> FakeThread:
    return FakeThread()


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
async def lifecycle(heard: NotifySocket, thread: FakeThread, broker: FakeBroker) -> AsyncIterator[Lifecycle]:
    """A lifecycle that systemd is being told about."""
    watched = Lifecycle(cast("Any", thread), cast("Any", broker))
    task = asyncio.create_task(systemd.keep_notified(watched))
    yield watched
    assert not task.done()
    task.cancel()


async def pings(heard: NotifySocket, more: int = 2) -> None:
    """Wait for so many more pings."""
    wanted = heard.count("WATCHDOG=1") + more
    await wait_until(lambda: heard.count("WATCHDOG=1") >= wanted, description=f"{wanted} pings")


async def test_ready_is_said_once_and_only_while_it_consumes(
    heard: NotifySocket, lifecycle: Lifecycle, broker: FakeBroker
) -> None:
    """A unit that is active before it consumes lets its dependents start too early."""
    for phase in (State.STARTING, State.LOADING, State.READY):  # ready by itself, but the broker is not there
        lifecycle.phase = phase
        await pings(heard)
        assert "READY=1" not in heard.lines
    broker.registered = True
    await wait_until(lambda: "READY=1" in heard.lines, description="READY")
    for registered in (False, True):
        broker.registered = registered
        await pings(heard)
    assert heard.count("READY=1") == 1


async def test_each_state_is_told_in_words(heard: NotifySocket, lifecycle: Lifecycle, broker: FakeBroker) -> None:
    """`systemctl status` shows what the daemon is waiting for."""
    lifecycle.phase = State.LOADING
    await wait_until(lambda: "STATUS=loading" in heard.lines, description="loading")
    lifecycle.phase = State.READY
    await wait_until(lambda: "STATUS=disconnected" in heard.lines, description="disconnected")
    broker.registered = True
    await wait_until(lambda: "STATUS=ready" in heard.lines, description="ready")
    assert len([line for line in heard.lines if line.startswith("STATUS=")]) <= 4


@pytest.mark.parametrize("phase", [State.STARTING, State.LOADING, State.READY, State.DRAINING])
async def test_start_and_end_may_take_longer(heard: NotifySocket, lifecycle: Lifecycle, phase: State) -> None:
    """Loading a model, waiting for a broker (ready without a consumer) and draining outlast systemd's own limits."""
    lifecycle.phase = phase
    before = heard.count(EXTEND)
    await wait_until(lambda: heard.count(EXTEND) >= before + 2, description="the limit is extended again and again")


async def test_a_running_service_does_not_extend(heard: NotifySocket, lifecycle: Lifecycle, broker: FakeBroker) -> None:
    """In a running unit an extension would only hide that nothing is being started or stopped."""
    lifecycle.phase, broker.registered = State.READY, True
    await wait_until(lambda: "READY=1" in heard.lines, description="READY")
    await pings(heard)
    before = heard.count(EXTEND)
    await pings(heard, 3)
    assert heard.count(EXTEND) == before


async def test_a_frozen_loop_sends_no_ping(heard: NotifySocket, lifecycle: Lifecycle) -> None:
    """Pings from a thread of their own would keep a dead daemon alive for ever."""
    lifecycle.phase = State.LOADING
    await pings(heard)
    await pings(heard, 1)  # it has been heard, and the next one is a tick away
    before = heard.count("WATCHDOG=1")
    threading.Event().wait(0.5)  # the loop stands still for eight watchdog intervals
    assert heard.count("WATCHDOG=1") <= before + 1
    await pings(heard)


async def test_a_stalled_generation_stops_the_pings(
    heard: NotifySocket, lifecycle: Lifecycle, thread: FakeThread
) -> None:
    """A model that hangs leaves the loop running: the pings must follow the generation, not the loop."""
    lifecycle.phase = State.LOADING
    thread.busy = True
    await pings(heard)
    thread.silent_seconds = STALL_SECONDS + 1
    before = heard.count(EXTEND)
    await wait_until(lambda: heard.count(EXTEND) >= before + 2, description="the stall has been seen")
    stalled = heard.count("WATCHDOG=1")
    await wait_until(lambda: heard.count(EXTEND) >= before + 5, description="three more ticks")
    assert heard.count("WATCHDOG=1") == stalled
    thread.silent_seconds = 0
    await pings(heard)


async def test_a_dead_engine_thread_stops_the_pings(
    heard: NotifySocket, lifecycle: Lifecycle, thread: FakeThread
) -> None:
    """Without its thread the daemon answers nothing any more, however lively its loop is."""
    lifecycle.phase = State.LOADING
    await pings(heard)
    thread.alive = False
    before = heard.count(EXTEND)
    await wait_until(lambda: heard.count(EXTEND) >= before + 2, description="the end has been seen")
    ended = heard.count("WATCHDOG=1")
    await wait_until(lambda: heard.count(EXTEND) >= before + 5, description="three more ticks")
    assert heard.count("WATCHDOG=1") == ended


async def test_stopping_comes_with_its_extension(heard: NotifySocket) -> None:
    """One datagram: between two of them systemd could already count its own limit."""
    systemd.notify_stopping()
    await wait_until(lambda: heard.messages, description="the message")
    assert heard.messages == [["STOPPING=1", "STATUS=draining", EXTEND]]


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit may be given a socket that is no file: its address begins with @."""
    listener = NotifySocket(f"@leveret-test-{secrets.token_hex(8)}")
    monkeypatch.setenv("NOTIFY_SOCKET", listener.path)
    assert systemd.notify(READY="1")
    listener.close()
    assert listener.messages == [["READY=1"]]


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "@nobody-listens-here"])
def test_nobody_there_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program runs in a terminal, in a container, and under a systemd that has just gone."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not systemd.notify(READY="1")


@pytest.mark.parametrize(
    ("microseconds", "pid", "seconds"),
    [
        ("30000000", "mine", 30.0),
        ("30000000", None, 30.0),
        ("30000000", "1", None),
        (None, None, None),
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_the_watchdog_is_meant_for_this_process(
    microseconds: str | None, pid: str | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables are inherited: a child must not ping for its parent, and nonsense asks for nothing."""
    for name, value in (("WATCHDOG_USEC", microseconds), ("WATCHDOG_PID", str(os.getpid()) if pid == "mine" else pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert systemd.watchdog_seconds() == seconds

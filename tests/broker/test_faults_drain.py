"""Shutdown in all its variants: idle, busy, beyond the limit, twice, loading, without a broker, as process 1."""

import asyncio
import signal
import time

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import StartDaemon
from tests.support.first_process import children
from tests.support.requester import Requester, check_protocol
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

ENDLESS = {"stream": True, "max_new_tokens": 2000}


async def assert_answered_by_the_next(start_daemon: StartDaemon, requester: Requester, asked: str) -> None:
    """The request was handed back without a terminal message; the next daemon's attempt is the second."""
    assert requester.terminals(asked) == []
    await start_daemon()
    await requester.until_chunks(asked, 2, attempt=2)
    await requester.cancel(asked)
    final = await requester.terminal(asked)
    assert (final.code, final.attempt) == ("cancelled", 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_daemon_ends_at_once(start_daemon: StartDaemon, number: signal.Signals) -> None:
    """Exit 0 within two seconds."""
    daemon = await start_daemon()
    started = time.monotonic()
    daemon.signal(number)
    assert await daemon.status() == 0
    assert time.monotonic() - started < 2


async def test_a_busy_daemon_finishes_its_answer_and_takes_nothing_new(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """The running request is answered whole; the one behind it waits for the next daemon, as its first attempt."""
    daemon = await start_daemon()
    running = await requester.send(fields={"stream": True, "max_new_tokens": 40})
    waiting = await requester.send(fields={"max_new_tokens": 2})
    await requester.until_chunks(running, 2)
    daemon.signal()
    await daemon.until_logged("draining")
    assert daemon.get("/readyz")[0] == 503
    assert daemon.health()["state"] == "draining"
    assert daemon.get("/livez")[0] == 200
    assert await daemon.status() == 0
    final = await requester.terminal(running)
    assert (final.code, final.attempt) == ("ok", 1)
    await start_daemon()
    assert ((await requester.terminal(waiting)).code, requester.terminals(waiting)[0].attempt) == ("ok", 1)
    assert len(requester.terminals(running)) == 1


async def test_beyond_the_limit_the_request_goes_back(start_daemon: StartDaemon, requester: Requester) -> None:
    """After DRAIN_SECONDS it is handed back without a terminal message; exit 0."""
    daemon = await start_daemon(drain_seconds=0.5)
    asked = await requester.send(fields=ENDLESS)
    await requester.until_chunks(asked, 2)
    daemon.signal()
    assert await daemon.status(10) == 0
    await assert_answered_by_the_next(start_daemon, requester, asked)


async def test_a_second_signal_hands_back_at_once(start_daemon: StartDaemon, requester: Requester) -> None:
    """Whoever stops a daemon twice is in a hurry."""
    daemon = await start_daemon(drain_seconds=600)
    asked = await requester.send(fields=ENDLESS)
    await requester.until_chunks(asked, 2)
    daemon.signal()
    await daemon.until_logged("draining")
    daemon.signal(signal.SIGINT)
    assert await daemon.status(10) == 0
    await assert_answered_by_the_next(start_daemon, requester, asked)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_loading_daemon_ends_at_once(start_daemon: StartDaemon, number: signal.Signals, *, first: bool) -> None:
    """A load cannot be interrupted, and nothing waits for it; process 1 of a container has no other way to end."""
    daemon = await start_daemon(until_ready=False, first=first, environment={"SLOW_LOAD_SECONDS": "600"})
    await daemon.until_logged("connected", link="consume")
    assert daemon.health()["state"] == "loading"
    assert (daemon.get("/readyz")[0], daemon.get("/livez")[0]) == (503, 200)
    daemon.signal(number)
    assert await daemon.status(5) == 0


async def test_process_one_of_a_container_drains_as_any_other(start_daemon: StartDaemon, requester: Requester) -> None:
    """Idle it ends within two seconds, busy it finishes, beyond its limit it hands back: exit 0 each time."""
    idle = await start_daemon(first=True)
    started = time.monotonic()
    idle.signal()
    assert await idle.status() == 0
    assert time.monotonic() - started < 2
    busy = await start_daemon(first=True)
    asked = await requester.send(fields={"stream": True, "max_new_tokens": 40})
    await requester.until_chunks(asked, 2)
    busy.signal()
    assert await busy.status() == 0
    final = await requester.terminal(asked)
    assert (final.code, final.attempt, final.body["usage"]["completion_tokens"]) == ("ok", 1, 40)
    late = await start_daemon(first=True, drain_seconds=0.5)
    asked = await requester.send(fields=ENDLESS)
    await requester.until_chunks(asked, 2)
    late.signal()
    assert await late.status(10) == 0
    await assert_answered_by_the_next(start_daemon, requester, asked)


async def test_process_one_leaves_no_dead_children(start_daemon: StartDaemon, requester: Requester) -> None:
    """Nobody else would reap them. A grammar is tried out in a child, which the limits of time may kill."""
    daemon = await start_daemon(first=True)
    assert daemon.reaped_cpu_seconds == 0
    for pattern in ("a(b", "Al(pha|bert)"):
        asked = await requester.send(fields={"structured_outputs": {"regex": pattern}, "max_new_tokens": 3})
        await requester.terminal(asked)
    assert daemon.reaped_cpu_seconds > 0
    assert children(daemon.pid) == []


@pytest.mark.parametrize("dead", [TcpProxy.blackhole, TcpProxy.refuse])
async def test_a_busy_daemon_without_a_broker_ends_within_its_limit(
    broker: PrivateBroker, start_daemon: StartDaemon, requester: Requester, dead: object
) -> None:
    """Neither a dead line nor a closed port holds the process; the broker gives the request to the next daemon."""
    async with TcpProxy(broker.port) as proxy:
        daemon = await start_daemon(amqp_url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat=1", drain_seconds=1)
        asked = await requester.send(fields={"stream": True, "max_new_tokens": 20})
        await requester.until_chunks(asked, 2)
        dead(proxy)
        if dead is TcpProxy.refuse:
            proxy.reset_all()
        daemon.signal()
        assert await daemon.status(15) == 0
    await start_daemon()
    await wait_until(
        lambda: any(reply.attempt == 2 for reply in requester.terminals(asked)), description="the second attempt"
    )
    check_protocol(requester.replies(asked), daemons=2)


async def test_an_idle_daemon_without_a_broker_ends_at_once(broker: PrivateBroker, start_daemon: StartDaemon) -> None:
    """Waiting for a broker that is down is no reason to wait for the end."""
    async with TcpProxy(broker.port) as proxy:
        proxy.refuse()
        daemon = await start_daemon(until_ready=False, amqp_url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/")
        await daemon.until_logged("no connection to the broker", times=2)
        daemon.signal()
        assert await asyncio.wait_for(daemon.status(), 5) == 0

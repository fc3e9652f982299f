"""Budgets and expirations: in the queue, in prefill, in decoding, and while a delivery is held."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import StartDaemon
from tests.support.requester import Requester
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

LONG_PROMPT = {"messages": [{"role": "user", "content": "Zebras hum. " * 400}]}
"""4800 tokens: 300 steps of prefill, 15 seconds."""


async def test_a_budget_that_ran_out_in_the_queue_costs_no_work(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """Counted from the timestamp; one in the future counts as now, one of long ago is over."""
    await start_daemon()
    now = datetime.now(UTC)
    old = await requester.send(fields={"timeout": 5, "stream": True}, timestamp=now - timedelta(seconds=30))
    ancient = await requester.send(fields={"timeout": 5}, timestamp=datetime.fromtimestamp(0, UTC))
    future = await requester.send(fields={"timeout": 5, "max_new_tokens": 2}, timestamp=now + timedelta(days=400))
    for late in (old, ancient):
        final = await requester.terminal(late)
        assert (final.code, final.body["partial"], final.body["error"]["retryable"]) == (
            "deadline_exceeded",
            None,
            True,
        )
        assert len(requester.replies(late)) == 1
    assert (await requester.terminal(future)).code == "ok"


@pytest.mark.parametrize(("fields", "begin"), [(LONG_PROMPT, ""), ({"stream": True}, "Alpha bravo")])
async def test_a_budget_that_runs_out_in_work_returns_what_there_is(
    start_daemon: StartDaemon, requester: Requester, fields: dict[str, object], begin: str
) -> None:
    """In prefill nothing is there yet, in decoding the text so far; both end soon after the deadline."""
    await start_daemon()
    started = time.monotonic()
    asked = await requester.send(fields=fields | {"timeout": 1, "max_new_tokens": 2000})
    final = await requester.terminal(asked)
    assert final.code == "deadline_exceeded"
    assert 1 <= time.monotonic() - started < 5
    assert final.text.startswith(begin)
    assert bool(final.text) == bool(begin)
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"


async def test_a_request_that_expires_in_the_queue_is_answered(start_daemon: StartDaemon, requester: Requester) -> None:
    """Dead-lettered by the broker at the head of the queue, answered by a daemon, and parked."""
    daemon = await start_daemon()
    blocker = await requester.send(fields={"stream": True, "max_new_tokens": 40})
    await requester.until_chunks(blocker, 1)
    trace = "00-a-b-01"
    short_lived = await requester.send(expiration=0.2, headers={"traceparent": trace})
    final = await requester.terminal(short_lived)
    assert (final.code, final.body["error"]["retryable"]) == ("expired", True)
    assert (await requester.terminal(blocker)).code == "ok"
    await wait_until(lambda: daemon.metric("leveret_dead_letters_total", reason="expired") == 1, description="parked")
    await daemon.until_logged(
        "dead letter parked", correlation_id=short_lived, attempt=final.attempt, traceparent=trace
    )


async def test_a_request_that_is_handed_back_after_its_expiration_ends_as_expired(
    start_daemon: StartDaemon, requester: Requester
) -> None:
    """The broker dead-letters what comes back too late; a daemon answers."""
    first, second = await start_daemon(drain_seconds=0.5), await start_daemon(until_ready=False)
    asked = await requester.send(fields={"stream": True, "max_new_tokens": 2000}, expiration=0.5)
    await requester.until_chunks(asked, 15)
    await second.ready()
    holder = first if requester.replies(asked)[0].daemon == first.daemon_id else second
    holder.signal()
    final = await requester.terminal(asked)
    assert final.code == "expired"
    assert final.daemon != holder.daemon_id
    assert len(requester.terminals(asked)) == 1


async def test_a_request_that_expires_while_it_is_answered_over_a_lost_line_gets_its_answer(
    broker: PrivateBroker, start_daemon: StartDaemon, requester: Requester
) -> None:
    """Its delivery comes back too late and is dead-lettered; the daemon knows it, and there is one terminal message."""
    async with TcpProxy(broker.port) as proxy:
        daemon = await start_daemon(amqp_url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/")
        asked = await requester.send(fields={"stream": True, "max_new_tokens": 60}, expiration=0.5)
        await requester.until_chunks(asked, 15)
        proxy.reset_all()
        final = await requester.terminal(asked)
        assert (final.code, final.attempt) == ("ok", 1)
        await wait_until(
            lambda: daemon.metric("leveret_dead_letters_total", reason="expired") == 1, description="it is parked"
        )
        assert len(requester.terminals(asked)) == 1
        daemon.signal()
        assert await daemon.status() == 0

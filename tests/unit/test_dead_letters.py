"""Dead letters on a bus in memory: what a real broker cannot be made to do on cue."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from daemon import dead_letters
from daemon.addresses import Addresses
from daemon.bodies import Bodies
from daemon.bus import BusUnavailable, Envelope
from daemon.dead_letters import DeadLetters, death_reason
from daemon.jobs import Job, Outcome, Registry, Settle
from daemon.settings import Settings
from daemon.topology import Topology
from tests.support.fake_bus import FakeBus, FakeDelivery
from tests.support.wait import wait_until

LIMIT = 4


def letter(reason: str = "expired", **properties: Any) -> Envelope:
    return Envelope(b"{}", "answers", "id", headers={"x-death": [{"reason": reason}]}, **properties)


@asynccontextmanager
async def settling(bus: FakeBus, registry: Registry | None = None) -> AsyncIterator[DeadLetters]:
    """Dead letters being settled until the block ends."""
    settings = Settings(_env_file=None)
    letters = DeadLetters(
        bus=bus,
        addresses=Addresses(settings.reply_to_allow, Topology.of(settings)),
        bodies=Bodies("model"),
        registry=Registry() if registry is None else registry,
        daemon_id="d",
        delivery_limit=LIMIT,
    )
    running = asyncio.create_task(letters.run())
    try:
        yield letters
    finally:
        running.cancel()
        await asyncio.wait({running})


async def settled(letters: DeadLetters, delivery: FakeDelivery) -> list[str]:
    """How the delivery ended."""
    letters.receive(delivery)
    await wait_until(lambda: delivery.settled[-1:] in (["ack"], ["reject"]), description="it is settled")
    return delivery.settled


@pytest.mark.parametrize(
    ("reason", "code"), [("expired", "expired"), ("delivery_limit", "delivery_limit_exceeded"), ("rejected", None)]
)
async def test_it_is_answered_then_parked_then_acked(reason: str, code: str | None) -> None:
    """The order is what loses nothing; a rejected request has nobody to answer."""
    bus = FakeBus()
    async with settling(bus) as letters:
        assert await settled(letters, FakeDelivery(letter(reason))) == ["park", "ack"]
    assert [json.loads(reply.body)["error"]["code"] for reply in bus.published] == ([code] if code else [])


async def test_its_attempt_is_above_all_others_and_rises() -> None:
    """At most limit + 1 deliveries were made; a second answer after a crash must be told from the first."""
    bus = FakeBus()
    async with settling(bus) as letters:
        await settled(letters, FakeDelivery(letter()))
        await settled(letters, FakeDelivery(letter(attempt=2)))
    assert [reply.headers["attempt"] for reply in bus.published] == [LIMIT + 2, LIMIT + 3]


async def test_a_redelivery_of_one_that_was_answered_is_only_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection was lost between answer and parking: the requester has its answer already."""
    monkeypatch.setattr(dead_letters, "RETRY_SECONDS", 0.0)
    bus = FakeBus()
    lost = FakeDelivery(letter())

    async def park() -> None:
        lost.stale = True
        raise BusUnavailable("the connection is gone")

    monkeypatch.setattr(lost, "park", park)
    async with settling(bus) as letters:
        letters.receive(lost)
        await wait_until(lambda: lost.stale, description="the connection is lost")
        assert await settled(letters, FakeDelivery(letter(redelivered=True, attempt=2))) == ["park", "ack"]
    assert len(bus.published) == 1
    assert lost.settled == []


@pytest.mark.parametrize(("settle", "answers"), [(Settle.ACK, 0), (Settle.HAND_BACK, 1)])
async def test_one_whose_request_runs_here_waits_for_its_end(settle: Settle, answers: int) -> None:
    """Its delivery was lost and expired: the answer in work is the answer, unless it ends without one."""
    bus, registry = FakeBus(), Registry()
    job = Job(FakeDelivery(letter(), stale=True))
    registry.start(job)
    async with settling(bus, registry) as letters:
        delivery = FakeDelivery(letter())
        letters.receive(delivery)
        await asyncio.sleep(0)
        assert delivery.settled == []
        registry.finish(job, Outcome(settle, "x"))
        await wait_until(lambda: delivery.settled == ["park", "ack"], description="it is settled")
    assert len(bus.published) == answers


async def test_one_that_only_looks_like_the_running_request_is_answered() -> None:
    """The running request has its delivery: what died is another publish of the same message."""
    bus, registry = FakeBus(), Registry()
    registry.start(Job(FakeDelivery(letter())))
    async with settling(bus, registry) as letters:
        await settled(letters, FakeDelivery(letter()))
    assert len(bus.published) == 1


async def test_one_that_fails_is_rejected_and_the_next_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours must not end the daemon: rejected, the broker parks it."""
    bus = FakeBus()
    odd = FakeDelivery(letter())

    async def park() -> None:
        raise ValueError("a header that cannot be written")

    monkeypatch.setattr(odd, "park", park)
    async with settling(bus) as letters:
        assert await settled(letters, odd) == ["reject"]
        assert await settled(letters, FakeDelivery(letter())) == ["park", "ack"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-death": [{"reason": "expired"}, {"reason": "rejected"}]}, "expired"),
        ({"x-death": [{"reason": "delivery_limit"}]}, "delivery_limit"),
        ({}, "rejected"),
        ({"x-death": "forged"}, "rejected"),
        ({"x-death": []}, "rejected"),
        ({"x-death": [7]}, "rejected"),
        ({"x-death": [{"reason": ["expired"]}]}, "rejected"),
        ({"x-death": [{"reason": "something new"}]}, "rejected"),
    ],
)
def test_the_reason_is_the_latest_death_or_rejected(headers: dict[str, Any], reason: str) -> None:
    """The header may be forged; whatever it is, it must not raise."""
    assert death_reason(headers) == reason

"""The worker on a bus in memory: which delivery belongs to which job, and how a drain ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from daemon import worker as worker_module
from daemon.addresses import Addresses
from daemon.admission import Admission
from daemon.attempt import Office
from daemon.bodies import Bodies
from daemon.bus import BusUnavailable, Envelope
from daemon.engine.types import Emit, Result, StopCheck, Task, TextEvent, Timings, Usage
from daemon.generator import Generator
from daemon.settings import Settings
from daemon.topology import Topology
from daemon.worker import Worker
from tests.support.fake_bus import FakeBus, FakeDelivery
from tests.support.wait import wait_until

BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()


class GatedGenerator:
    """Emits one word, then waits until it is let go or stopped; `deaf` ones do not hear the stop."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self._deaf = deaf

    async def generate(self, task: Task, stop: StopCheck, feed: Emit) -> Result:  # noqa: ARG002
        """As Generator does."""
        self.begun += 1
        feed(TextEvent("word", (1,)))
        await wait_until(lambda: self.gate.is_set() or (stop() and not self._deaf), description="the gate")
        reason = "stop" if self.gate.is_set() else "interrupted"
        return Result("word", cast("Any", reason), Usage(1, 1, 0), Timings(0.1, 0.1, 10.0))


@asynccontextmanager
async def working(bus: FakeBus, generator: GatedGenerator) -> AsyncIterator[Worker]:
    """A worker at work until the block ends."""
    settings = Settings(_env_file=None)
    worker = Worker(
        Office(
            bus=bus,
            generator=cast("Generator", generator),
            admission=Admission(settings, "model"),
            addresses=Addresses(settings.reply_to_allow, Topology.of(settings)),
            bodies=Bodies("model"),
            daemon_id="d",
            chunk_seconds=0.0,
        )
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        running.cancel()
        await asyncio.wait({running})


def delivery(**properties: Any) -> FakeDelivery:
    return FakeDelivery(Envelope(BODY, "answers", "id", **properties))


async def until(deliveries: list[FakeDelivery], verb: str) -> None:
    await wait_until(lambda: all(one.settled == [verb] for one in deliveries), description=f"all get {verb}")


async def test_a_redelivery_is_adopted_only_where_the_delivery_is_lost() -> None:
    """A redelivered twin beside a live delivery is another request; after the loss it is the same one."""
    generator = GatedGenerator()
    async with working(FakeBus(), generator) as worker:
        first, twin = delivery(), delivery(redelivered=True)
        worker.receive(first)
        await wait_until(lambda: generator.begun == 1, description="it runs")
        worker.receive(twin)
        assert worker.tables["held"] == 1
        first.stale = twin.stale = True
        again = delivery(redelivered=True)
        worker.receive(again)
        generator.gate.set()
        await until([again], "ack")
    assert (generator.begun, first.settled, twin.settled) == (1, [], [])


async def test_a_redelivered_twin_of_a_request_whose_ack_is_proven_is_a_new_request() -> None:
    """Another daemon handed it back: settled from the record of the first it would be lost."""
    generator = GatedGenerator()
    generator.gate.set()
    async with working(FakeBus(), generator) as worker:
        first, twin = delivery(), delivery(redelivered=True, attempt=2)
        worker.receive(first)
        await until([first], "ack")
        worker.receive(twin)
        await until([twin], "ack")
    assert generator.begun == 2


async def test_a_redelivery_after_a_lost_ack_is_settled_from_the_record() -> None:
    """The connection went with the ack: nothing is generated and nothing is sent."""
    generator, bus = GatedGenerator(), FakeBus()
    generator.gate.set()
    async with working(bus, generator) as worker:
        first, again = delivery(), delivery(redelivered=True, attempt=2)
        worker.receive(first)
        await until([first], "ack")
        sent = len(bus.published)
        first.stale = True
        worker.receive(again)
        await until([again], "ack")
    assert (generator.begun, len(bus.published)) == (1, sent)


async def test_deliveries_of_lost_connections_are_not_kept() -> None:
    """Through a long generation on a bad line, each reconnect brings the next request again."""
    generator = GatedGenerator()
    async with working(FakeBus(), generator) as worker:
        worker.receive(delivery())
        await wait_until(lambda: generator.begun == 1, description="it runs")
        for _ in range(100):
            held = FakeDelivery(Envelope(BODY, "answers", "another"))
            worker.receive(held)
            held.stale = True
        assert worker.tables["held"] <= 1
        generator.gate.set()


async def test_a_drain_that_runs_out_hands_back_what_runs_and_what_is_held() -> None:
    """No terminal message is sent, and the chunks that were under way are."""
    generator, bus = GatedGenerator(), FakeBus()
    async with working(bus, generator) as worker:
        running, held = delivery(), FakeDelivery(Envelope(BODY, "answers", "another"))
        worker.receive(running)
        await wait_until(lambda: bus.published, description="the first chunk")
        worker.receive(held)
        await worker.drain(0.01)
        await until([running, held], "hand_back")
    assert [reply.type for reply in bus.published] == ["chat.chunk"]


@pytest.mark.parametrize("away", [False, True])
async def test_an_attempt_that_does_not_end_by_itself_is_broken_off(
    monkeypatch: pytest.MonkeyPatch, *, away: bool
) -> None:
    """A stuck step of the model, or a broker that is away, must not hold the process; nothing is published after."""
    monkeypatch.setattr(worker_module, "STOP_SECONDS", 0.05)
    generator = GatedGenerator(deaf=not away)
    bus = FakeBus([BusUnavailable("away")] * 1_000 if away else [])
    async with working(bus, generator) as worker:
        stuck = delivery()
        worker.receive(stuck)
        await wait_until(lambda: bus.tried, description="the first chunk is tried")
        worker.hurry()
        await asyncio.wait_for(worker.drain(600), 10)
        assert stuck.settled == ["hand_back"]
        tried = len(bus.tried)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert {task.get_name() for task in others}.isdisjoint({"chunk pump", "requester watch", "request"})
    assert len(bus.tried) == tried

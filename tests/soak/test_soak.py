"""Mixed requests and a fault every few seconds: every request is answered, and nothing grows.

Short in `make test`; `LEVERET_SOAK_SECONDS=600` makes it the long one, with a random fault every twenty seconds and
broker restarts among them (`LEVERET_SOAK_SEED` repeats a run).
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aio_pika
import pytest
from private_broker import PrivateBroker

from tests.soak.clients import SoakClient, World
from tests.soak.stage import ALL, QUICK, Fault, Stage
from tests.support.daemon_process import DaemonProcess
from tests.support.scripted_model import write_scripted_model
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

SECONDS = float(os.environ.get("LEVERET_SOAK_SECONDS", "0"))
SEED = int(os.environ.get("LEVERET_SOAK_SEED", "1"))
EVERY_SECONDS = 20.0
GROWTH_BYTES = 24 << 20
QUEUE = "soak.requests"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    model = write_scripted_model(
        tmp_path / "model", ["Alpha", " bravo", " charlie", " zulu"], default=" zulu", context_tokens=100_000
    )
    environment = {"SLOW_SECONDS_PER_EXTEND": "0.01"}
    with PrivateBroker("soak") as broker:
        async with TcpProxy(broker.port) as line:
            url = f"amqp://guest:guest@127.0.0.1:{line.port}/?heartbeat=1"
            survivor, victim = (
                DaemonProcess(amqp_url=address, queue=QUEUE, model=model, drain_seconds=5, environment=environment)
                for address in (url, broker.url)
            )
            try:
                for daemon in (survivor, victim):
                    await daemon.ready()
                yield Stage(broker, line, survivor, victim, World())
            finally:
                survivor.close()
                victim.close()


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


async def play(stage: Stage) -> list[str]:
    """Let the faults happen, one after the other; their names."""
    choice = random.Random(SEED)  # noqa: S311 - a repeatable mixture
    end = time.monotonic() + SECONDS
    played: list[str] = []
    quick: list[Fault] = list(QUICK)
    while quick or time.monotonic() < end:
        began = time.monotonic()
        fault = choice.choice(ALL) if SECONDS else quick.pop(0)
        quick = quick if not SECONDS else []
        await fault(stage)
        await stage.recover()
        played.append(getattr(fault, "__name__", ""))
        pause = EVERY_SECONDS if SECONDS else 0.0
        await wait_until(
            partial(_is_past, began + pause), description="the next fault is due", timeout_seconds=EVERY_SECONDS + 1
        )
    return played


async def waiting(broker: PrivateBroker, role: str) -> int:
    """Messages in one of the queues."""
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        found = await channel.declare_queue(f"soak.{role}", passive=True)
        return int(found.declaration_result.message_count or 0)


async def test_every_request_is_answered_through_every_fault(stage: Stage) -> None:
    """One terminal message is kept for each request, extras came only after faults, tables are empty, memory flat."""
    kinds = ("durable", "durable", "exclusive", "direct")
    clients = [
        SoakClient(stage.broker.url, QUEUE, kind, SEED + number, stage.world) for number, kind in enumerate(kinds)
    ]
    working = [asyncio.create_task(client.run()) for client in clients]
    await stage.recover()
    survivor = stage.survivor
    memory, threads, files = survivor.rss_bytes, survivor.threads, survivor.open_files
    faults = await play(stage)
    stage.world.stopping = True
    await asyncio.gather(*working)
    for daemon in (survivor, stage.victim):
        await daemon.idle()
    assert await waiting(stage.broker, "requests") == await waiting(stage.broker, "dead") == 0
    extra, copied = map(sum, zip(*(client.check() for client in clients), strict=True))
    unconfirmed = stage.unconfirmed
    assert copied <= unconfirmed
    assert extra <= 2 * len(faults)  # each fault may cost each daemon the delivery it holds
    assert survivor.metric("leveret_remembered", table="held") == 0
    assert survivor.rss_bytes - memory < GROWTH_BYTES
    assert (survivor.threads, survivor.open_files <= files + 2) == (threads, True)
    for daemon in (survivor, stage.victim):
        daemon.signal()
        assert await daemon.status() == 0
        assert daemon.errors == ""
        assert daemon.lines
        assert not {"Zebras", "zulu"} & set(daemon.output.replace('"', " ").split())
    for client in clients:
        await client.requester.close()
    sys.stdout.write(f"\n{faults}: {stage.world}, {extra} extra terminals, {copied} of {unconfirmed:g} copies\n")

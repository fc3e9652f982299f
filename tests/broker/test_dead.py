"""`leveret dead` as a process: what it shows of the parked requests, and what it does to them and to the others."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.exceptions import DeliveryError
from private_broker import PrivateBroker, free_port

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.daemon_process import ROOT, DaemonProcess
from tests.support.requester import Requester
from tests.support.wait import wait_until

SHORT = {"max_new_tokens": 2}


class Command:
    """`leveret dead` on one queue."""

    def __init__(self, url: str, queue: str, directory: Path) -> None:
        self._environment = os.environ | {"LEVERET_AMQP_URL": url, "LEVERET_QUEUE": queue, "PYTHONPATH": str(ROOT)}
        self._directory = directory

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output, errors."""
        program = [sys.executable, "-c", "from daemon.cli import main; main()", "dead", *arguments]
        done = subprocess.run(
            program, env=self._environment, cwd=self._directory, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def listed(self) -> list[dict[str, Any]]:
        """The parked requests as JSON."""
        status, output, errors = self("--json")
        assert (status, errors) == (0, "")
        found: list[dict[str, Any]] = json.loads(output)
        return found


@pytest.fixture
def dead(broker: PrivateBroker, queue: str, tmp_path: Path) -> Command:
    return Command(broker.url, queue, tmp_path)


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    return await start_daemon()


async def park(daemon: DaemonProcess, requester: Requester, *ids: str, **envelope: Any) -> None:
    """Have requests without a usable reply address parked, in this order."""
    before = daemon.metric("leveret_dead_letters_total", reason="rejected")
    for one in ids:
        await requester.send(fields=SHORT, correlation_id=one, reply_to="amq.topic", **envelope)
    await wait_until(
        lambda: daemon.metric("leveret_dead_letters_total", reason="rejected") == before + len(ids),
        description="they are parked",
    )


async def test_the_list_shows_the_envelope_and_leaves_the_order(
    daemon: DaemonProcess, requester: Requester, dead: Command
) -> None:
    """Ids, user, reason, age, size, time; never the text. Looking twice shows the same, oldest first."""
    await park(daemon, requester, "a", "b\u202e\x1b[2J", "c", message_id="m", user_id="guest")
    first = dead.listed()
    assert [one["correlation_id"] for one in first] == ["a", "b\u202e\x1b[2J", "c"]
    assert dead.listed()[0].keys() == first[0].keys()
    assert [one["key"] for one in dead.listed()] == [one["key"] for one in first]
    shown = first[0]
    assert (shown["message_id"], shown["user_id"], shown["reply_to"]) == ("m", "guest", "amq.topic")
    assert (shown["reason"], shown["size_bytes"] > 50, 0 <= shown["age_seconds"] < 60) == ("rejected", True, True)
    status, output, _ = dead()
    assert status == 0
    assert [line.split()[0] for line in output.splitlines()] == ["KEY", *(one["key"] for one in first)]
    assert "\x1b" not in output
    assert "Zebras" not in output


async def test_one_is_sent_back_and_answered_and_the_others_stay(
    daemon: DaemonProcess, requester: Requester, dead: Command
) -> None:
    """Its second life is a fresh one: first attempt, full budget, its own user; the rest keeps its order."""
    await park(daemon, requester, "a", "b", "c", "d", user_id="guest", timestamp=1)
    status, output, errors = dead("requeue", "b", "--reply-to", requester.reply_to)
    assert (status, errors) == (0, "")
    assert "back in the request queue" in output
    final = await requester.terminal("b")
    assert (final.code, final.attempt) == ("ok", 1)
    assert [one["correlation_id"] for one in dead.listed()] == ["a", "c", "d"]


async def test_one_is_dropped_or_all_are(daemon: DaemonProcess, requester: Requester, dead: Command) -> None:
    """Gone for good, and only what was named."""
    await park(daemon, requester, "a", "b", "c")
    assert dead("drop", "b")[0] == 0
    assert [one["correlation_id"] for one in dead.listed()] == ["a", "c"]
    assert dead("drop", "--all")[:2] == (0, "dropped 2\n")
    assert dead()[:2] == (0, "no parked requests\n")


async def test_a_name_must_mean_one_request(daemon: DaemonProcess, requester: Requester, dead: Command) -> None:
    """Unknown or ambiguous: nothing is done, and the keys are told; a key is never ambiguous."""
    await park(daemon, requester, "twin", "twin")
    keys = [one["key"] for one in dead.listed()]
    assert len(set(keys)) == 2
    assert dead("drop", "nobody")[0] == 1
    status, _, errors = dead("requeue", "twin")
    assert (status, all(key in errors for key in keys)) == (1, True)
    assert dead("drop", keys[1])[0] == 0
    assert [one["key"] for one in dead.listed()] == keys[:1]
    assert dead("drop")[0] == 2


async def test_a_full_queue_refuses_and_the_request_stays_parked(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, ask_from: AskFrom, dead: Command
) -> None:
    """Sent back means confirmed by the queue; only then it leaves the parked ones."""
    daemon = await start_daemon(queue_max_length=1)
    requester = await ask_from()
    await park(daemon, requester, "a")
    daemon.signal()
    assert await daemon.status() == 0
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        with contextlib.suppress(DeliveryError):  # a quorum queue may take one above its limit
            for _ in range(5):
                await channel.default_exchange.publish(aio_pika.Message(b"waits"), queue)
    status, _, errors = dead("requeue", "a")
    assert status == 1
    assert "full" in errors
    assert [one["correlation_id"] for one in dead.listed()] == ["a"]


def test_without_a_broker_or_a_topology_it_says_so(broker: PrivateBroker, queue: str, tmp_path: Path) -> None:
    """Exit status 3 without a broker, 78 where there is no parked queue; one line each."""
    nowhere = Command(f"amqp://guest:guest@127.0.0.1:{free_port()}/", queue, tmp_path)
    assert nowhere()[0] == 3
    status, _, errors = Command(broker.url, f"no.{queue}", tmp_path)()
    assert (status, "parked" in errors, errors.count("\n")) == (78, True, 1)

"""The broker itself fails: crash, shutdown, memory alarm."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.requester import Requester, check_protocol
from tests.support.wait import wait_until

STREAMED = {"stream": True, "max_new_tokens": 400}
"""Twenty seconds of answer: the fault must come before its end, also on a busy machine."""
RESTART_SECONDS = 90.0


@pytest.mark.parametrize("end", [PrivateBroker.kill, PrivateBroker.terminate])
async def test_a_broker_that_restarts_costs_neither_the_answer_in_work_nor_what_waits(
    restartable: PrivateBroker,
    start_daemon: StartDaemon,
    ask_from: AskFrom,
    queue: str,
    end: Callable[[PrivateBroker], None],
) -> None:
    """SIGKILL and SIGTERM: the running request is generated once, the waiting one is answered.

    An exclusive reply queue that is declared anew gets its answer; a direct reply address is gone for good.
    """
    daemon = await start_daemon(amqp_url=restartable.url)
    durable = await ask_from(restartable.url, kind="durable", name=f"d.{queue}")
    exclusive = await ask_from(restartable.url, name=f"e.{queue}")
    direct = await ask_from(restartable.url, kind="direct")
    running = await durable.send(fields=STREAMED)
    await durable.until_chunks(running, 3)
    lost = await direct.send()
    waiting = await exclusive.send(fields={"max_new_tokens": 3})
    await asyncio.to_thread(restartable.sync)
    assert durable.terminals(running) == [], "the answer ended before the fault"
    await asyncio.to_thread(end, restartable)
    await daemon.not_ready()
    await asyncio.to_thread(restartable.start)
    await durable.connect()
    await exclusive.connect()
    final = await durable.terminal(running, RESTART_SECONDS)
    assert (final.code, final.attempt) == ("ok", 1)
    assert len({reply.message_id for reply in durable.terminals(running)}) == 1
    assert (await exclusive.terminal(waiting)).code == "ok"
    await daemon.ready()
    await daemon.idle()
    assert daemon.metric("leveret_requests_total", code="ok") == 2
    assert daemon.metric("leveret_requests_total", code="gone") == 1
    assert direct.replies(lost) == []


@pytest.fixture
def alarm(broker: PrivateBroker) -> Iterator[Callable[[bool], None]]:
    """Raise (True) and clear (False) the memory alarm."""

    def set_alarm(raised: bool) -> None:  # noqa: FBT001
        broker.ctl("set_vm_memory_high_watermark", "0" if raised else "0.4")

    yield set_alarm
    set_alarm(False)


async def test_a_memory_alarm_in_the_middle_of_an_answer_only_delays_it(
    start_daemon: StartDaemon, requester: Requester, alarm: Callable[[bool], None]
) -> None:
    """While the broker blocks publishers the generation goes on; afterwards nothing is missing or doubled."""
    daemon = await start_daemon()
    asked = await requester.send(fields=STREAMED | {"max_new_tokens": 150})
    await requester.until_chunks(asked, 2)
    await asyncio.to_thread(alarm, True)
    await wait_until(lambda: not daemon.health()["busy"], description="the generation has ended", timeout_seconds=60)
    assert requester.terminals(asked) == []
    assert daemon.get("/livez")[0] == 200
    await asyncio.to_thread(alarm, False)
    final = await requester.terminal(asked, 60)
    assert (final.code, final.attempt, len(requester.terminals(asked))) == ("ok", 1, 1)


async def test_sigterm_during_a_memory_alarm_hands_back_and_the_next_daemon_answers(
    start_daemon: StartDaemon, ask_from: AskFrom, alarm: Callable[[bool], None]
) -> None:
    """The unconfirmed answer must not hold the process; the request goes back and is answered once more."""
    daemon = await start_daemon(drain_seconds=1)
    requester = await ask_from()
    asked = await requester.send(fields={"max_new_tokens": 200})
    await daemon.busy()
    await asyncio.to_thread(alarm, True)
    daemon.signal()
    assert await daemon.status() == 0
    await asyncio.to_thread(alarm, False)
    await start_daemon()
    await wait_until(
        lambda: any(reply.attempt == 2 for reply in requester.terminals(asked)),
        description="the second attempt",
        timeout_seconds=60,
    )
    check_protocol(requester.replies(asked), daemons=2)
    assert {reply.code for reply in requester.terminals(asked)} == {"ok"}

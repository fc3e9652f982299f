"""The line between daemon and broker: reset, dead for long, half dead, and a consumer that takes too long."""

from collections.abc import AsyncIterator, Iterator

import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.daemon_process import DaemonProcess
from tests.support.requester import Requester, check_protocol, copies
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

STREAMED = {"stream": True, "max_new_tokens": 60}
HEARTBEAT_SECONDS = 1
NOTICED_SECONDS = 3 * (HEARTBEAT_SECONDS + 1)
"""A dead line is noticed after three heartbeats and a bit (measured); the broker notices sooner."""


@pytest.fixture
async def proxy(broker: PrivateBroker) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(broker.port) as running:
        yield running


def through(proxy: TcpProxy) -> str:
    return f"amqp://guest:guest@127.0.0.1:{proxy.port}/?heartbeat={HEARTBEAT_SECONDS}"


async def assert_one_generation(daemon: DaemonProcess) -> None:
    """The one request was generated once, and its last delivery was settled."""
    await daemon.idle()
    assert daemon.metric("leveret_requests_total", code="ok") == 1
    assert sum(daemon.metric("leveret_requests_total", code=code) for code in ("gone", "handed_back")) == 0


@pytest.mark.parametrize("kind", ["exclusive", "direct"])
async def test_a_reset_line_costs_nothing_of_the_answer(
    start_daemon: StartDaemon, ask_from: AskFrom, proxy: TcpProxy, kind: str
) -> None:
    """The redelivery is adopted: one generation, one attempt, `seq` goes on, and that three times over."""
    daemon = await start_daemon(amqp_url=through(proxy))
    requester = await ask_from(kind=kind)
    tokens = 3 * STREAMED["max_new_tokens"]  # the answer must outlast three reconnects, also on a busy machine
    trace = "00-a-b-01"
    asked = await requester.send(fields=STREAMED | {"max_new_tokens": tokens}, headers={"traceparent": trace})
    for reset in range(3):
        await requester.until_chunks(asked, len(requester.replies(asked)) + 2)
        proxy.reset_all()
        await wait_until(
            lambda times=reset + 1: daemon.metric("leveret_redeliveries_adopted_total") == times,
            description="the redelivery is adopted",
        )
    final = await requester.terminal(asked)
    assert (final.code, final.attempt, len(requester.terminals(asked))) == ("ok", 1, 1)
    assert final.body["usage"]["completion_tokens"] == tokens
    await assert_one_generation(daemon)
    await daemon.until_logged("redelivery adopted", times=3, correlation_id=asked, attempt=1, traceparent=trace)


async def test_a_line_dead_for_long_while_idle_is_noticed_and_comes_back(
    start_daemon: StartDaemon, requester: Requester, proxy: TcpProxy
) -> None:
    """Not ready while the line is dead, ready again after it, and the next request is answered."""
    daemon = await start_daemon(amqp_url=through(proxy))
    proxy.blackhole()
    await daemon.not_ready(timeout_seconds=NOTICED_SECONDS + 10)
    assert daemon.health()["state"] == "disconnected"
    assert "not consuming" in " ".join(daemon.health()["reasons"])
    assert daemon.get("/livez")[0] == 200
    proxy.restore()
    await daemon.ready()
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"


async def test_a_line_dead_for_long_in_the_middle_of_an_answer_costs_nothing_of_it(
    start_daemon: StartDaemon, requester: Requester, proxy: TcpProxy
) -> None:
    """The generation goes on meanwhile; afterwards its text arrives whole, and it was generated once."""
    daemon = await start_daemon(amqp_url=through(proxy))
    asked = await requester.send(fields=STREAMED)
    await requester.until_chunks(asked, 2)
    proxy.blackhole()
    await daemon.not_ready(timeout_seconds=NOTICED_SECONDS + 10)
    proxy.restore()
    final = await requester.terminal(asked)
    await daemon.ready()
    assert (final.code, final.attempt) == ("ok", 1)
    assert len({reply.message_id for reply in requester.terminals(asked)}) == 1
    await assert_one_generation(daemon)


async def test_a_lost_confirm_brings_the_same_message_again(
    start_daemon: StartDaemon, requester: Requester, proxy: TcpProxy
) -> None:
    """The requester has the final message, the daemon does not know: it comes again as it was, and is counted."""
    daemon = await start_daemon(amqp_url=through(proxy))
    asked = await requester.send(fields={"max_new_tokens": 20})
    await daemon.busy()
    proxy.mute()
    await requester.terminal(asked)
    proxy.reset_all()
    proxy.restore()
    await wait_until(lambda: len(requester.terminals(asked)) == 2, description="the copy")
    check_protocol(requester.replies(asked))
    assert copies(requester.replies(asked)) == 1
    await assert_one_generation(daemon)
    assert daemon.metric("leveret_replies_unconfirmed_total") == 1


@pytest.fixture
def impatient(broker: PrivateBroker) -> Iterator[PrivateBroker]:
    """A broker that takes a delivery back after four seconds without an ack, and looks every second."""

    def patience(milliseconds: int, tick: int) -> None:
        settings = (("consumer_timeout", milliseconds), ("channel_tick_interval", tick))
        broker.ctl("eval", ", ".join(f"application:set_env(rabbit, {key}, {value})" for key, value in settings) + ".")

    patience(4_000, 1_000)
    yield broker
    patience(1_800_000, 60_000)


async def test_an_answer_may_take_longer_than_the_brokers_consumer_timeout(
    impatient: PrivateBroker, start_daemon: StartDaemon, requester: Requester
) -> None:
    """Twelve seconds of answer: the delivery is taken back and comes again twice, adopted; one terminal message.

    Before 4.3 the broker closes the channel (406), later it cancels the consumer, as test_faults_queue.py does.
    """
    daemon = await start_daemon()
    asked = await requester.send(fields={"stream": True, "max_new_tokens": 240})
    final = await requester.terminal(asked)
    assert (final.code, final.attempt, len(requester.terminals(asked))) == ("ok", 1, 1)
    assert daemon.metric("leveret_redeliveries_adopted_total") >= 2
    await assert_one_generation(daemon)

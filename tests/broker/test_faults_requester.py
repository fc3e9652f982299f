"""Requesters that leave, and reply queues that take nothing."""

import aio_pika
import pytest
from private_broker import PrivateBroker

from tests.broker.conftest import AskFrom, StartDaemon
from tests.support.requester import QUESTION, Requester
from tests.support.wait import wait_until

GONE_SECONDS = 2.0


async def assert_queue_is_empty(broker: PrivateBroker, queue: str) -> None:
    """No message waits."""
    connection = await aio_pika.connect(broker.url)
    async with connection:
        found = await (await connection.channel()).declare_queue(queue, passive=True)
        assert found.declaration_result.message_count == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["exclusive", "direct", "durable"])
async def test_a_requester_that_leaves_ends_its_generation(  # noqa: PLR0913 - fixtures and parameters
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, ask_from: AskFrom, kind: str, *, stream: bool
) -> None:
    """Within two seconds the generation stops and the delivery is settled; the next request is answered."""
    daemon = await start_daemon()
    leaver = await ask_from(kind=kind)
    asked = await leaver.send(fields={"stream": stream, "max_new_tokens": 2000})
    await daemon.busy()
    if stream:
        await leaver.until_chunks(asked, 2)
    await leaver.close()
    await wait_until(
        lambda: not daemon.health()["busy"], description="the generation ends", timeout_seconds=GONE_SECONDS + 1
    )
    await daemon.until_logged("requester is gone", correlation_id=asked)
    assert daemon.metric("leveret_requests_total", code="gone") == 1
    await assert_queue_is_empty(broker, queue)
    stayer = await ask_from(kind=kind)
    assert (await stayer.terminal(await stayer.send(fields={"max_new_tokens": 2}))).code == "ok"


async def test_an_unknown_reply_queue_costs_no_generation_worth_mentioning(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, requester: Requester
) -> None:
    """The address may be used, but nobody has it: noticed by the first probe or the first chunk."""
    daemon = await start_daemon()
    await requester.send(fields={"stream": True, "max_new_tokens": 2000}, reply_to="nobody-has-this-queue")
    await requester.send(fields={"max_new_tokens": 2000}, reply_to="nobody-has-this-queue")
    await wait_until(lambda: daemon.metric("leveret_requests_total", code="gone") == 2, description="both are settled")
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"
    await assert_queue_is_empty(broker, queue)


async def test_a_reply_queue_that_is_full_holds_the_daemon_for_a_limited_time_only(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, requester: Requester
) -> None:
    """`reject-publish` on the reply queue: the request ends among the parked ones, and the next one is answered."""
    daemon = await start_daemon(environment={"SLOW_REFUSED_SECONDS": "1"})
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        full = await channel.declare_queue(
            exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
        )
        await channel.default_exchange.publish(aio_pika.Message(b"it is full now"), full.name)
        await requester.send(QUESTION, reply_to=full.name, fields={"max_new_tokens": 3})
        await wait_until(
            lambda: daemon.metric("leveret_dead_letters_total", reason="rejected") == 1, description="it is parked"
        )
    assert daemon.metric("leveret_requests_total", code="reply_refused") == 1
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"

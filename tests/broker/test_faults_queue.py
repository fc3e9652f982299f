"""The queues themselves: deleted, and declared anew by somebody with other arguments."""

import aio_pika
from private_broker import PrivateBroker

from tests.broker.conftest import StartDaemon
from tests.support.requester import Requester
from tests.support.tcp_proxy import TcpProxy
from tests.support.topology import request_queue_arguments
from tests.support.wait import wait_until


async def test_a_queue_deleted_while_consumed_is_declared_anew(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, requester: Requester
) -> None:
    """The running answer is finished and sent, although its delivery is gone with the queue; then work goes on."""
    daemon = await start_daemon()
    asked = await requester.send(fields={"stream": True, "max_new_tokens": 30})
    await requester.until_chunks(asked, 2)
    connection = await aio_pika.connect(broker.url)
    async with connection:
        await (await connection.channel()).queue_delete(queue)
    await daemon.until_logged("no connection to the broker", reason="the broker cancelled the consumer")
    assert (await requester.terminal(asked)).code == "ok"
    await daemon.ready()
    assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"


async def test_a_consumer_that_the_broker_cancels_costs_nothing_of_the_answer(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, requester: Requester
) -> None:
    """`basic.cancel` while the delivery lives: so newer brokers end a consumer that takes too long, here a deletion.

    The queue of dead letters goes, so that the request stays on its own: it comes again, and is adopted.
    """
    daemon = await start_daemon()
    asked = await requester.send(fields={"stream": True, "max_new_tokens": 60})
    await requester.until_chunks(asked, 2)
    dead = f"{queue.removesuffix('.requests')}.dead"
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_delete(dead)
    await daemon.until_logged("no connection to the broker", reason="the broker cancelled the consumer")
    final = await requester.terminal(asked)
    assert (final.code, final.attempt, len(requester.terminals(asked))) == ("ok", 1, 1)
    await daemon.ready()
    await daemon.idle()
    assert daemon.metric("leveret_redeliveries_adopted_total") >= 1
    assert daemon.metric("leveret_requests_total", code="ok") == 1
    async with await aio_pika.connect(broker.url) as connection, connection.channel() as channel:
        again = await channel.declare_queue(dead, passive=True)
        assert again.declaration_result.consumer_count == 1


async def test_a_queue_with_other_arguments_is_named_and_recovered_from(
    broker: PrivateBroker, queue: str, start_daemon: StartDaemon, requester: Requester
) -> None:
    """Not ready, and says which argument, its value and the wanted one; ready again once it is mended."""
    async with TcpProxy(broker.port) as proxy:
        daemon = await start_daemon(amqp_url=f"amqp://guest:guest@127.0.0.1:{proxy.port}/")
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            proxy.refuse()  # else the daemon would be the first to declare it anew
            await channel.queue_delete(queue)
            await daemon.not_ready()  # recreated sooner, the broker itself moves the consumer to the new queue
            await channel.declare_queue(
                queue, durable=True, arguments=request_queue_arguments(queue) | {"x-max-length": 7}
            )
            await proxy.accept()
            await wait_until(
                lambda: "x-max-length = 7, wanted 1000" in " ".join(daemon.health()["reasons"]),
                description="the reason says which argument",
            )
            assert (daemon.get("/readyz")[0], daemon.health()["state"]) == (503, "disconnected")
            assert daemon.get("/livez")[0] == 200
            await channel.queue_delete(queue)
        await daemon.ready()
        assert (await requester.terminal(await requester.send(fields={"max_new_tokens": 2}))).code == "ok"
        daemon.signal()
        assert await daemon.status() == 0

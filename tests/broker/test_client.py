"""The reference client on a real broker, against a scripted responder."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from private_broker import PrivateBroker
from yarl import URL

from daemon.client import (
    AnswerTimeout,
    BrokerRefused,
    BrokerUnavailable,
    Client,
    ClientClosed,
    Envelope,
    NoDaemonQueue,
    QueueFull,
    RequestRefused,
)
from schemas.names import cancel_exchange
from schemas.replies import chat_error
from schemas.request import ChatRequest
from tests.support.responder import Responder, fields
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_until

REQUEST: Mapping[str, Any] = {"messages": [{"role": "user", "content": "Grüße 👋"}]}


@pytest.fixture
async def client(broker: PrivateBroker, queue: str) -> AsyncIterator[Client]:
    async with await Client.connect(broker.url, queue=queue, user_id="guest") as connected:
        yield connected


async def test_streaming(client: Client, responder: Responder) -> None:
    """Chunks arrive before the end, the completion after them."""
    answer = await client.stream(REQUEST)
    request = await responder.request()
    await responder.chunk(request, "Hel", seq=0)
    assert (await anext(answer)).text == "Hel"
    assert not answer.ended
    await responder.chunk(request, "lo", seq=1)
    await responder.finish(request, "Hello")
    assert [chunk.text async for chunk in answer] == ["lo"]
    assert answer.final.text == "Hello"


async def test_the_request_on_the_wire(client: Client, responder: Responder) -> None:
    """Everything of the envelope that the contract knows is there, and the body is what was asked."""
    before = int(time.time())
    envelope = Envelope(
        correlation_id="my-id", expiration_seconds=60, priority=3, headers={"traceparent": "00-a-b-01"}, wait_seconds=60
    )
    answer = await client.stream(REQUEST, envelope)
    request = await responder.request()
    assert answer.correlation_id == request.correlation_id == "my-id"
    assert fields(request) == {**REQUEST, "stream": True}
    assert (request.content_type, request.content_encoding) == ("application/json", None)
    assert (request.expiration, request.priority, request.user_id) == (60, 3, "guest")
    assert request.headers == {"traceparent": "00-a-b-01"}
    assert request.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert request.reply_to
    assert request.message_id
    assert request.timestamp is not None
    assert before <= request.timestamp.timestamp() <= time.time()


async def test_complete(client: Client, responder: Responder) -> None:
    """A checked request travels as it was written, without streaming, and gives the whole answer."""
    checked = ChatRequest.model_validate({**REQUEST, "max_tokens": 5, "stop": "x"})
    waiting = asyncio.create_task(client.complete(checked))
    request = await responder.request()
    assert fields(request) == {**REQUEST, "max_new_tokens": 5, "stop": ["x"], "stream": False}
    await responder.finish(request, "whole")
    assert (await waiting).text == "whole"


async def test_many_in_flight(client: Client, responder: Responder) -> None:
    """Answers find their requests on one connection, in whatever order they come."""
    answers = [await client.stream(REQUEST) for _ in range(20)]
    requests = [await responder.request() for _ in range(20)]
    assert len({request.correlation_id for request in requests}) == 20
    for request in reversed(requests):
        await responder.finish(request, f"to {request.correlation_id}")
    for answer in answers:
        assert (await answer.result()).text == f"to {answer.correlation_id}"


async def test_first_terminal_wins(client: Client, responder: Responder) -> None:
    """A second terminal message is dropped, and the next request is not disturbed by it."""
    answer = await client.stream(REQUEST)
    request = await responder.request()
    await responder.finish(request, "first")
    await responder.reply(request, chat_error("expired", "second", param=None, retryable=True), seq=0, attempt=2)
    assert (await answer.result()).text == "first"
    again = await client.stream(REQUEST)
    await responder.finish(await responder.request(), "next")
    assert (await again.result()).text == "next"


async def test_older_attempts_are_dropped(client: Client, responder: Responder) -> None:
    """After a redelivery the text restarts, and the caller is told so."""
    answer = await client.stream(REQUEST)
    request = await responder.request()
    await responder.chunk(request, "old", seq=0, attempt=1)
    assert (await anext(answer)).text == "old"
    await responder.chunk(request, "new", seq=0, attempt=2)
    await responder.chunk(request, " and late", seq=1, attempt=1)
    await responder.finish(request, "new", attempt=2)
    assert [(chunk.text, chunk.restarted) async for chunk in answer] == [("new", True)]


async def test_an_error_reply(client: Client, responder: Responder) -> None:
    """A `chat.error` is a typed error with everything it says."""
    waiting = asyncio.create_task(client.complete(REQUEST))
    body = chat_error("invalid_request", "stop: got 5", param="stop", retryable=False)
    await responder.reply(await responder.request(), body, seq=0)
    with pytest.raises(RequestRefused, match="stop: got 5") as caught:
        await waiting
    assert (caught.value.code, caught.value.param, caught.value.retryable) == ("invalid_request", "stop", False)


async def fill(client: Client) -> None:
    """Send more than fits: a quorum queue may take one or two beyond its limit."""
    for _ in range(10):
        await client.stream(REQUEST)


async def test_queue_full(broker: PrivateBroker, queue: str, client: Client) -> None:
    """A full queue refuses at once, and the client goes on."""
    connection = await aio_pika.connect(broker.url, timeout=10)
    async with connection, connection.channel() as channel:
        arguments = {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"}
        declared = await channel.declare_queue(queue, durable=True, arguments=arguments, timeout=10)
        with pytest.raises(QueueFull, match=queue):
            await fill(client)
        await declared.purge(timeout=10)
        await client.stream(REQUEST)


async def test_unroutable(client: Client, queue: str) -> None:
    """Without a request queue, or a cancel exchange, the error names what is missing."""
    with pytest.raises(NoDaemonQueue, match=queue):
        await client.stream(REQUEST)
    with pytest.raises(NoDaemonQueue, match=cancel_exchange(queue)):
        await client.cancel("any")


async def test_broker_lost_while_waiting(broker: PrivateBroker, queue: str, responder: Responder) -> None:
    """A lost connection ends every request in flight at once; the next request connects anew."""
    async with TcpProxy(broker.port) as proxy:
        url = str(URL(broker.url).with_port(proxy.port))
        async with await Client.connect(url, queue=queue) as client:
            answers = [await client.stream(REQUEST) for _ in range(3)]
            proxy.reset_all()
            for answer in answers:
                with pytest.raises(BrokerUnavailable, match="connection was lost"):
                    await answer.result()
            for _ in answers:
                await responder.request()
            again = await client.stream(REQUEST)
            await responder.finish(await responder.request(), "after")
            assert (await again.result()).text == "after"
            proxy.refuse()
            proxy.reset_all()
            await wait_until(lambda: proxy.connections == 0, description="the connection is gone")
            with pytest.raises(BrokerUnavailable):
                await client.stream(REQUEST)


async def test_reply_queue_deleted(broker: PrivateBroker, queue: str, responder: Responder, client: Client) -> None:
    """When an operator deletes the reply queue, its requests end, and the next one gets a new queue."""
    answer = await client.stream(REQUEST)
    request = await responder.request()
    broker.ctl("delete_queue", str(request.reply_to))
    with pytest.raises(BrokerUnavailable, match="cancelled the consumer"):
        await answer.result()
    await client.stream(REQUEST)
    assert (await responder.request()).reply_to != request.reply_to


async def test_timeout_cancels(client: Client, responder: Responder) -> None:
    """Who waits no longer says so on the bus, so that nobody works for nothing."""
    with pytest.raises(AnswerTimeout):
        await client.complete(REQUEST, Envelope(wait_seconds=0.05))
    assert await responder.cancelled_id() == (await responder.request()).correlation_id


async def test_cancel(client: Client, responder: Responder) -> None:
    """A cancel reaches the exchange with the id and the user; the request ends with its terminal message."""
    answer = await client.stream(REQUEST)
    await client.cancel(answer.correlation_id)
    cancel = await asyncio.wait_for(responder.cancels.get(), 10)
    assert (cancel.correlation_id, cancel.user_id) == (answer.correlation_id, "guest")
    await responder.reply(
        await responder.request(), chat_error("cancelled", "cancelled", param=None, retryable=False), seq=0
    )
    with pytest.raises(RequestRefused, match="cancelled"):
        await answer.result()


async def test_closing_wakes_everybody(broker: PrivateBroker, queue: str, responder: Responder) -> None:
    """Nobody hangs when the client is closed, and a closed client sends nothing more."""
    client = await Client.connect(broker.url, queue=queue)
    answer = await client.stream(REQUEST)
    waiting = asyncio.create_task(answer.result())
    await responder.request()
    await client.close()
    await client.close()
    with pytest.raises(ClientClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await client.stream(REQUEST)


async def test_foreign_replies_are_dropped(client: Client, responder: Responder) -> None:
    """A message with an unknown id does nothing; so does one that comes after the end."""
    answer = await client.stream(REQUEST)
    request = await responder.request()
    await responder.finish(request, "not yours", correlation_id="unknown")
    await responder.finish(request, "yours")
    assert (await answer.result()).text == "yours"


async def test_refused_credentials_and_user(broker: PrivateBroker, queue: str, responder: Responder) -> None:
    """What cannot be mended by trying again is told apart from a broker that is away."""
    with pytest.raises(BrokerRefused, match="credentials"):
        await Client.connect(str(URL(broker.url).with_password("wrong")), queue=queue)
    async with await Client.connect(broker.url, queue=queue, user_id="somebody") as client:
        with pytest.raises(BrokerRefused, match="user_id"):
            await client.stream(REQUEST)


async def test_no_broker() -> None:
    """A broker that is not there is one clear error."""
    with pytest.raises(BrokerUnavailable, match="connect to"):
        await Client.connect("amqp://guest:guest@127.0.0.1:1/")


@pytest.mark.parametrize("body", [{"messages": float("nan")}, {"messages": float("inf")}])
async def test_no_json_is_not_sent(client: Client, responder: Responder, body: Mapping[str, Any]) -> None:
    """What JSON cannot hold is the caller's mistake and never reaches the queue."""
    with pytest.raises(ValueError, match="JSON"):
        await client.stream(body)
    assert responder.requests.empty()


async def test_an_id_in_flight_is_not_used_twice(client: Client, responder: Responder) -> None:
    """Two requests under one id could not be told apart."""
    await client.stream(REQUEST, Envelope(correlation_id="one"))
    with pytest.raises(ValueError, match="'one' is already in flight"):
        await client.stream(REQUEST, Envelope(correlation_id="one"))
    request: AbstractIncomingMessage = await responder.request()
    assert request.correlation_id == "one"


async def test_left_before_the_broker_has_confirmed(broker: PrivateBroker, queue: str, responder: Responder) -> None:
    """A Ctrl-C may come after the broker has taken a request and before it says so: that one is cancelled too."""
    async with (
        TcpProxy(broker.port) as proxy,
        await Client.connect(str(URL(broker.url).with_port(proxy.port)), queue=queue) as client,
    ):
        proxy.mute()
        asking = asyncio.create_task(client.complete(REQUEST))
        request = await responder.request()
        asking.cancel()
        proxy.restore()
        assert await responder.cancelled_id() == request.correlation_id
        with pytest.raises(asyncio.CancelledError):
            await asking

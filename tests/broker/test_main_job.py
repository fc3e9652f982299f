"""The main job on real parts: a chat request in on RabbitMQ, chunks and a final message out, from the real model."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import aiohttp
import pytest
from aio_pika.abc import AbstractIncomingMessage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from private_broker import PrivateBroker

from daemon.app import App
from daemon.engine.types import Model
from tests.support.fake_engine import FaultyModel, SlowModel
from tests.support.in_process import running_app
from tests.support.scripted_model import write_scripted_model

FRANCE = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}


class Requester:
    """A plain client with an exclusive reply queue."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel, replies: aio_pika.abc.AbstractQueue, queue: str) -> None:
        self._channel, self.replies, self._queue = channel, replies, queue
        self.got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    async def send(self, body: dict[str, Any], **properties: Any) -> None:
        """Publish a request."""
        message = aio_pika.Message(json.dumps(body).encode(), reply_to=self.replies.name, **properties)
        await self._channel.default_exchange.publish(message, self._queue, timeout=10)

    async def answer(self, seconds: float = 60) -> list[AbstractIncomingMessage]:
        """All replies up to and with the terminal one."""
        messages = [await asyncio.wait_for(self.got.get(), seconds)]
        while not messages[-1].headers["final"]:
            messages.append(await asyncio.wait_for(self.got.get(), seconds))
        return messages


@pytest.fixture
async def requester(broker: PrivateBroker, queue: str) -> AsyncIterator[Requester]:
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel(on_return_raises=True)
        asker = Requester(channel, await channel.declare_queue(exclusive=True), queue)
        await asker.replies.consume(asker.got.put, no_ack=True)
        yield asker


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    return write_scripted_model(tmp_path / "model", ["one", " two", " three", " four", " five"])


def settings(broker: PrivateBroker, queue: str) -> dict[str, Any]:
    return {"amqp_url": broker.url, "queue": queue}


async def health(app: App) -> tuple[int, dict[str, Any], float]:
    """Status, body and seconds of one `GET /health`."""
    started = time.monotonic()
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{app.health_port}/health") as answer:
        return answer.status, await answer.json(), time.monotonic() - started


async def test_the_real_model_answers_streamed_and_plain_alike(
    broker: PrivateBroker, queue: str, requester: Requester, smollm2_dir: Path
) -> None:
    """Chunks joined are the final text, numbered without a gap, in OpenAI's shapes, and the answer is right."""
    async with running_app(smollm2_dir, model_id="HuggingFaceTB/SmolLM2-135M-Instruct", **settings(broker, queue)):
        await requester.send(FRANCE | {"stream": True}, correlation_id="s")
        *chunks, final = await requester.answer()
        await requester.send(FRANCE, correlation_id="p")
        (plain,) = await requester.answer()
    completion = ChatCompletion.model_validate_json(final.body)
    texts = [ChatCompletionChunk.model_validate_json(chunk.body).choices[0].delta.content for chunk in chunks]
    assert [message.headers["seq"] for message in (*chunks, final)] == list(range(len(chunks) + 1))
    assert "".join(map(str, texts)) == completion.choices[0].message.content
    assert "Paris" in str(completion.choices[0].message.content)
    assert ChatCompletion.model_validate_json(plain.body).choices == completion.choices
    assert completion.model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


@pytest.mark.parametrize("correlation_id", ["x", "ü" * 127, "z" * 255, "\udcff\udc80", "日本語 🦊"])
async def test_correlation_ids_come_back_byte_for_byte(
    broker: PrivateBroker, queue: str, requester: Requester, scripted: Path, correlation_id: str
) -> None:
    """255 bytes, beyond ASCII, and bytes that are no UTF-8: the requester finds its own id again."""
    async with running_app(scripted, **settings(broker, queue)):
        await requester.send(FRANCE | {"stream": True}, correlation_id=correlation_id)
        assert {message.correlation_id for message in await requester.answer()} == {correlation_id}


async def test_without_a_correlation_id_the_message_id_is_echoed(
    broker: PrivateBroker, queue: str, requester: Requester, scripted: Path
) -> None:
    """Clients that know only message ids find their answer as well."""
    async with running_app(scripted, **settings(broker, queue)):
        await requester.send(FRANCE, message_id="m")
        (final,) = await requester.answer()
    assert final.correlation_id == "m"


async def test_health_answers_at_once_during_a_long_generation(
    broker: PrivateBroker, queue: str, requester: Requester, tmp_path: Path
) -> None:
    """Busy is healthy: an orchestrator must not restart a daemon that works."""
    endless = write_scripted_model(tmp_path / "endless", ["a", "b"], default="b", context_tokens=4096)

    def slow(model: Model) -> Model:
        return SlowModel(model, 0.05)

    async with running_app(endless, wrap=slow, **settings(broker, queue)) as app:
        await requester.send(FRANCE | {"max_new_tokens": 600, "stream": True}, correlation_id="long")
        chunks = 0
        started = time.monotonic()
        while time.monotonic() - started < 30:
            await asyncio.wait_for(requester.got.get(), 10)
            chunks += 1
            status, body, seconds = await health(app)
            assert (status, body["status"], body["state"], body["busy"]) == (200, "ok", "ready", True)
            assert seconds < 1
        assert chunks > 30


@pytest.mark.parametrize("fail_at", [0, 3])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_failing_generation_gives_one_error_and_the_next_request_succeeds(  # noqa: PLR0913 - fixtures
    broker: PrivateBroker, queue: str, requester: Requester, scripted: Path, *, fail_at: int, stream: bool
) -> None:
    """The fault is reported within a second, once, with no chunk after it; the same process goes on."""

    def faulty(model: Model) -> Model:
        return FaultyModel(model, fail_at)

    async with running_app(scripted, wrap=faulty, **settings(broker, queue)):
        started = time.monotonic()
        await requester.send(FRANCE | {"stream": stream}, correlation_id="bad")
        *chunks, final = await requester.answer()
        assert time.monotonic() - started < 1
        error = json.loads(final.body)["error"]
        assert (final.type, error["code"], error["retryable"]) == ("chat.error", "generation_failed", True)
        assert len(chunks) <= (fail_at if stream else 0)
        await requester.send(FRANCE, correlation_id="good")
        (good,) = await requester.answer()
        assert good.correlation_id == "good"
        assert json.loads(good.body)["choices"][0]["message"]["content"] == "one two three four five"
    assert requester.got.empty()


BAD_BODIES = [b"", b"[]", b"null", b'{"messages":', b'{"messages":[]}', b"\xff\xfe", b'{"messages":[{"role":"user"}]}']


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_an_unprocessable_body_is_answered_once_and_settled(
    broker: PrivateBroker, queue: str, requester: Requester, scripted: Path, body: bytes
) -> None:
    """A message that nobody can process must not be requeued for ever, nor vanish."""
    async with running_app(scripted, **settings(broker, queue)):
        message = aio_pika.Message(body, reply_to=requester.replies.name, correlation_id="bad")
        await requester._channel.default_exchange.publish(message, queue)
        (final,) = await requester.answer()
        assert json.loads(final.body)["error"]["code"] == "invalid_request"
        await requester.send(FRANCE, correlation_id="good")
        assert (await requester.answer())[-1].correlation_id == "good"
        ready = await requester._channel.declare_queue(queue, passive=True)
        assert ready.declaration_result.message_count == 0

"""A scripted stand-in for the daemon: it takes requests from the queue and replies what the test tells it to."""

import asyncio
import json
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from schemas.names import cancel_exchange
from schemas.replies import ChatCompletion, ChatError, Head, Reply, ReplyType, Timings, to_json, usage

HEAD = Head("chatcmpl-1", 1, "scripted")
TIMINGS = Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0, tokens_per_second=0)


class Responder:
    """Declares the request queue and the cancel exchange, and hands over what arrives.

    `requests` and `cancels` are the messages in order of arrival. Requests are acked at once.
    """

    def __init__(self, url: str, queue: str, arguments: Mapping[str, Any] | None = None) -> None:
        self._url, self._queue = url, queue
        self._arguments = dict(arguments or {"x-queue-type": "quorum"})
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self.requests: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self.cancels: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect(self._url, timeout=10)
        self._channel = await self._connection.channel()
        queue = await self._channel.declare_queue(self._queue, durable=True, arguments=self._arguments, timeout=10)
        exchange = await self._channel.declare_exchange(
            cancel_exchange(self._queue), aio_pika.ExchangeType.FANOUT, durable=True
        )
        cancels = await self._channel.declare_queue(exclusive=True)
        await cancels.bind(exchange)
        await queue.consume(self.requests.put, no_ack=True)
        await cancels.consume(self.cancels.put, no_ack=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def request(self) -> AbstractIncomingMessage:
        """The next request. Raises TimeoutError after ten seconds."""
        return await asyncio.wait_for(self.requests.get(), 10)

    async def cancelled_id(self) -> str | None:
        """The correlation id of the next cancel. Raises TimeoutError after ten seconds."""
        return (await asyncio.wait_for(self.cancels.get(), 10)).correlation_id

    async def chunk(self, request: AbstractIncomingMessage, text: str, *, seq: int, attempt: int = 1) -> None:
        """Reply with a chunk."""
        await self.reply(request, HEAD.chunk(text, None, first=seq == 0), seq=seq, attempt=attempt)

    async def finish(
        self, request: AbstractIncomingMessage, text: str, *, attempt: int = 1, correlation_id: str | None = None
    ) -> None:
        """Reply with a completion, under the request's id or another one."""
        body = HEAD.completion(text, finish_reason="stop", usage=usage(1, 1, 0), timings=TIMINGS)
        await self.reply(request, body, seq=99, attempt=attempt, correlation_id=correlation_id)

    async def reply(
        self,
        request: AbstractIncomingMessage,
        body: Reply,
        *,
        seq: int,
        attempt: int = 1,
        correlation_id: str | None = None,
    ) -> None:
        """Reply with any body, as the contract has it."""
        assert self._channel is not None
        assert request.reply_to is not None
        kind = {ChatCompletion: ReplyType.COMPLETION, ChatError: ReplyType.ERROR}.get(type(body), ReplyType.CHUNK)
        message = aio_pika.Message(
            to_json(body),
            type=kind,
            content_type="application/json",
            correlation_id=correlation_id or request.correlation_id,
            message_id=uuid.uuid4().hex,
            headers={"seq": seq, "attempt": attempt, "final": kind != ReplyType.CHUNK, "daemon": "scripted"},
        )
        await self._channel.default_exchange.publish(message, request.reply_to, timeout=10)


def fields(request: AbstractIncomingMessage) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = json.loads(request.body)
    return body

"""The reference client: chat requests over RabbitMQ from any asyncio program.

    async with await Client.connect("amqp://guest:guest@localhost/") as client:
        answer = await client.stream({"messages": [{"role": "user", "content": "Hello"}]})
        async for chunk in answer:
            print(chunk.text, end="")
        print(answer.final.usage.completion_tokens)

Replies come to an exclusive queue, one for the client, not over direct reply-to: so the daemon is told at once when
the client is gone, and any number of requests can be in flight. A lost connection ends every request in flight with
BrokerUnavailable, for the reply queue has died with it; the next request connects anew. Nothing is sent twice on its
own account. Every request is published with a confirm, so a full queue (QueueFull) or a missing one (NoDaemonQueue)
is told at once.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aio_pika import DeliveryMode, Message
from yarl import URL

from daemon.answer import Answer, Chunk
from daemon.client_errors import (
    AnswerTimeout,
    BrokerRefused,
    BrokerUnavailable,
    ClientClosed,
    ClientError,
    NoDaemonQueue,
    QueueFull,
    RequestRefused,
    UnreadableReply,
)
from daemon.client_session import Session
from daemon.link import HEARTBEAT_SECONDS
from schemas.names import REQUEST_QUEUE, cancel_exchange
from schemas.replies import ChatCompletion
from schemas.request import ChatRequest

__all__ = [
    "MARGIN_SECONDS",
    "Answer",
    "AnswerTimeout",
    "BrokerRefused",
    "BrokerUnavailable",
    "Chunk",
    "Client",
    "ClientClosed",
    "ClientError",
    "Envelope",
    "NoDaemonQueue",
    "QueueFull",
    "RequestRefused",
    "UnreadableReply",
]

DEFAULT_TIMEOUT_SECONDS = 300.0
"""A request's budget where it names none; the daemon's `LEVERET_MAX_SECONDS` unless it is configured otherwise."""
MARGIN_SECONDS = 5.0
"""How much longer than its budget a request is waited for: the daemon ends it, and its answer has to travel."""
_LONGEST_SECONDS = 1e9

Request = ChatRequest | Mapping[str, Any]


@dataclass(frozen=True)
class Envelope:
    """How a request travels; every field is optional.

    `expiration_seconds` is how long it may wait in the queue, `wait_seconds` how long this client waits for the end
    (default: the request's `timeout`, or 300, and 5 on top), `headers` carry `traceparent` and `tracestate`.
    """

    correlation_id: str | None = None
    expiration_seconds: float | None = None
    priority: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_seconds: float | None = None


class Client:
    """Sends chat requests and hands out answers. Any number of requests may be in flight; one event loop.

    `user_id`, where given, must be the user of `url`: the broker verifies it.
    """

    def __init__(self, url: str, *, queue: str = REQUEST_QUEUE, user_id: str | None = None) -> None:
        defaults = {"heartbeat": str(HEARTBEAT_SECONDS), "name": "leveret client"}
        self._url = str(URL(url).update_query(defaults | dict(URL(url).query)))
        self._queue = queue
        self._user_id = user_id
        self._connecting = asyncio.Lock()
        self._session: Session | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def connect(cls, url: str, *, queue: str = REQUEST_QUEUE, user_id: str | None = None) -> Self:
        """Connect to the broker at once. Raises BrokerUnavailable, BrokerRefused."""
        client = cls(url, queue=queue, user_id=user_id)
        await client._connected()
        return client

    async def stream(self, request: Request, envelope: Envelope | None = None) -> Answer:
        """Send a request whose answer comes in chunks; returns once the broker has it.

        Raises QueueFull, NoDaemonQueue, BrokerUnavailable, BrokerRefused, and ValueError for a request that is no JSON
        or a correlation id that is already in flight. Errors of the answer itself are raised by the answer.
        """
        return await self._send(_body(request) | {"stream": True}, envelope or Envelope())

    async def complete(self, request: Request, envelope: Envelope | None = None) -> ChatCompletion:
        """Send a request and wait for its whole answer. Raises ClientError; a request that is left is cancelled."""
        async with await self._send(_body(request) | {"stream": False}, envelope or Envelope()) as answer:
            return await answer.result()

    async def cancel(self, correlation_id: str) -> None:
        """Ask every daemon to end this request, wherever it is; returns once the broker has the message.

        Raises NoDaemonQueue, BrokerUnavailable, BrokerRefused. The request itself still ends with a terminal message.
        """
        message = Message(b"", correlation_id=correlation_id, message_id=uuid.uuid4().hex, user_id=self._user_id)
        session = await self._connected()
        await session.fan_out(message, cancel_exchange(self._queue))

    async def close(self) -> None:
        """Close the connection; every request in flight ends with ClientClosed. Idempotent."""
        self._closed = True
        async with self._connecting:
            if self._session is not None:
                self._session.loss.report("closing")
            await asyncio.gather(*self._watchers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, body: dict[str, Any], envelope: Envelope) -> Answer:
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        session = await self._connected()
        answer = self._expected(session, envelope.correlation_id or uuid.uuid4().hex, _patience(body, envelope))
        try:
            await session.publish(self._message(data, answer.correlation_id, session.reply_to, envelope), self._queue)
        except asyncio.CancelledError:
            await answer.leave()  # the broker may have the request, and only its confirmation be on the way
            raise
        except BaseException:
            answer.fail(ClientError("the request was not sent"))
            raise
        return answer

    def _expected(self, session: Session, correlation_id: str, wait_seconds: float) -> Answer:
        if correlation_id in session.answers:
            raise ValueError(f"correlation_id {correlation_id!r} is already in flight")
        answer = Answer(
            correlation_id,
            wait_seconds,
            cancel=lambda: self.cancel(correlation_id),
            on_end=lambda: session.forget(correlation_id),
        )
        session.expect(answer)
        return answer

    def _message(self, body: bytes, correlation_id: str, reply_to: str, envelope: Envelope) -> Message:
        return Message(
            body,
            content_type="application/json",
            correlation_id=correlation_id,
            message_id=uuid.uuid4().hex,
            reply_to=reply_to,
            timestamp=int(time.time()),
            expiration=envelope.expiration_seconds,
            priority=envelope.priority,
            user_id=self._user_id,
            headers=dict(envelope.headers),
            delivery_mode=DeliveryMode.PERSISTENT,
        )

    async def _connected(self) -> Session:
        """The present session, or a new one where there is none or it is lost."""
        async with self._connecting:
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._session is None or self._session.loss.happened:
                self._session = await Session.open(self._url)
                watcher = asyncio.create_task(self._watch(self._session), name="leveret client")
                self._watchers.add(watcher)
                watcher.add_done_callback(self._watchers.discard)
            return self._session

    async def _watch(self, session: Session) -> None:
        reason = await session.loss.wait()
        closed = ClientClosed("the client was closed before the answer came")
        await session.end(closed if self._closed else BrokerUnavailable(f"the connection was lost: {reason}"))


def _body(request: Request) -> dict[str, Any]:
    if isinstance(request, ChatRequest):
        return request.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return dict(request)


def _patience(body: Mapping[str, Any], envelope: Envelope) -> float:
    """Seconds to wait for the end. A `timeout` that is no number is the daemon's to refuse."""
    if envelope.wait_seconds is not None:
        return envelope.wait_seconds
    timeout = body.get("timeout")
    budget = timeout if isinstance(timeout, int | float) else DEFAULT_TIMEOUT_SECONDS
    return min(max(budget, 0.0), _LONGEST_SECONDS) + MARGIN_SECONDS

"""A plain requester on aio-pika, without the reference client: it hears everything and checks the protocol itself."""

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from types import TracebackType
from typing import Any, Literal, Self

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from daemon import amqp_codec
from tests.support.wait import wait_until

DIRECT = "amq.rabbitmq.reply-to"
TYPES = {"chat.chunk": False, "chat.completion": True, "chat.error": True}
QUESTION = {"messages": [{"role": "user", "content": "Zebras hum?"}], "temperature": 0}
"""A request whose words occur nowhere else, so that a log line with them is found."""

ReplyQueue = Literal["exclusive", "direct", "durable"]


@dataclass(frozen=True)
class Heard:
    """One reply as it came."""

    kind: str
    body: dict[str, Any]
    seq: int
    attempt: int
    daemon: str
    message_id: str
    persistent: bool

    @property
    def final(self) -> bool:
        """Is it terminal?"""
        return TYPES[self.kind]

    @property
    def text(self) -> str:
        """The text it carries: a chunk's, an answer's, or an error's partial content."""
        if self.kind == "chat.chunk":
            return str(self.body["choices"][0]["delta"].get("content") or "")
        if self.kind == "chat.completion":
            return str(self.body["choices"][0]["message"]["content"])
        return str((self.body["partial"] or {}).get("content", ""))

    @property
    def code(self) -> str:
        """`ok` of an answer, an error's code."""
        return "ok" if self.kind == "chat.completion" else str(self.body["error"]["code"])


def _heard(message: AbstractIncomingMessage) -> Heard:
    headers = message.headers
    reply = Heard(
        kind=str(message.type),
        body=json.loads(message.body),
        seq=int(str(headers["seq"])),
        attempt=int(str(headers["attempt"])),
        daemon=str(headers["daemon"]),
        message_id=str(message.message_id),
        persistent=message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT,
    )
    assert headers["final"] is reply.final
    assert reply.persistent is reply.final
    assert message.content_type == "application/json"
    assert message.timestamp is not None
    assert str(message.app_id).startswith("leveret/")
    return reply


class Requester:
    """Sends requests and keeps every reply, by correlation id, in the order of arrival."""

    def __init__(self, url: str, queue: str, *, kind: ReplyQueue = "exclusive", name: str = "") -> None:
        amqp_codec.install()
        self._url, self._queue, self.kind = url, queue, kind
        self._name = name or (f"r{uuid.uuid4().hex}" if kind == "durable" else "")
        self.reply_to = DIRECT if kind == "direct" else self._name
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self.heard: dict[str | None, list[Heard]] = {}

    async def connect(self) -> None:
        """Connect, again if need be, and listen on the reply queue, under the same name where it has one of its own."""
        self._connection = await aio_pika.connect(self._url, timeout=30)
        self._channel = await self._connection.channel(on_return_raises=True)
        replies = await self._declared(self._channel)
        self.reply_to = replies.name
        await replies.consume(self._take, no_ack=self.kind != "durable", timeout=30)

    async def _declared(self, channel: AbstractChannel) -> aio_pika.abc.AbstractQueue:
        if self.kind == "direct":
            return await channel.get_queue(DIRECT, ensure=False)
        if self.kind == "exclusive":
            return await channel.declare_queue(self._name or None, exclusive=True, timeout=30)
        return await channel.declare_queue(
            self.reply_to, durable=True, arguments={"x-queue-type": "quorum"}, timeout=30
        )

    async def _take(self, message: AbstractIncomingMessage) -> None:
        heard = self.heard.setdefault(message.correlation_id, [])
        # What comes again because this requester had not acked it before its own connection broke is no copy.
        if not (message.redelivered and any(reply.message_id == message.message_id for reply in heard)):
            heard.append(_heard(message))
        if self.kind == "durable":
            await message.ack()

    async def send(
        self, body: Mapping[str, Any] | bytes | None = None, *, fields: Mapping[str, Any] | None = None, **envelope: Any
    ) -> str:
        """Publish a request (the question with `fields`, unless `body` says otherwise); returns its correlation id."""
        content = body if isinstance(body, bytes) else json.dumps(dict(body or QUESTION) | dict(fields or {})).encode()
        properties = {"correlation_id": uuid.uuid4().hex, "reply_to": self.reply_to} | envelope
        message = aio_pika.Message(content, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, **properties)
        await self.publish(message, self._queue)
        return str(properties["correlation_id"])

    async def publish(self, message: aio_pika.Message, queue: str, exchange: str = "") -> None:
        """Publish anything anywhere, confirmed."""
        assert self._channel is not None
        target = (
            await self._channel.get_exchange(exchange, ensure=False) if exchange else self._channel.default_exchange
        )
        await target.publish(message, queue, mandatory=not exchange, timeout=30)

    async def cancel(self, correlation_id: str, **envelope: Any) -> None:
        """Publish a cancel."""
        exchange = f"{self._queue.removesuffix('.requests')}.cancel"
        await self.publish(aio_pika.Message(b"", correlation_id=correlation_id, **envelope), "", exchange)

    def replies(self, correlation_id: str | None) -> list[Heard]:
        """Everything heard under this id."""
        return self.heard.get(correlation_id, [])

    def terminals(self, correlation_id: str | None) -> list[Heard]:
        """The terminal messages heard under this id."""
        return [reply for reply in self.replies(correlation_id) if reply.final]

    async def until_chunks(self, correlation_id: str | None, count: int, *, attempt: int = 1) -> None:
        """Wait until so many chunks of the attempt have come."""
        await wait_until(
            lambda: (
                sum(not reply.final and reply.attempt >= attempt for reply in self.replies(correlation_id)) >= count
            ),
            description=f"{count} chunks of attempt {attempt} for {correlation_id}",
            timeout_seconds=60,
        )

    async def terminal(self, correlation_id: str | None, timeout_seconds: float = 60, *, gaps: bool = False) -> Heard:
        """Wait for the first terminal message, the one that a client keeps, and check the protocol up to it."""
        await wait_until(
            lambda: self.terminals(correlation_id),
            description=f"a terminal message for {correlation_id}",
            timeout_seconds=timeout_seconds,
        )
        check_protocol(self.replies(correlation_id), gaps=gaps)
        return self.terminals(correlation_id)[0]

    async def close(self) -> None:
        """Leave; an exclusive reply queue goes with the connection, a durable one is deleted."""
        if self._connection is None or self._connection.is_closed:
            return
        if self.kind == "durable" and self._channel is not None and not self._channel.is_closed:
            await self._channel.queue_delete(self.reply_to, timeout=30)
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def copies(replies: list[Heard]) -> int:
    """How many replies came again as they were (same message id)."""
    return sum(count - 1 for count in Counter(reply.message_id for reply in replies).values())


def check_protocol(replies: list[Heard], *, daemons: int = 1, gaps: bool = False) -> None:
    """What the contract promises of the replies to one request, in the order of arrival.

    With one daemon attempts never come back; with several, two may work on the same request after a lost connection.
    `gaps`: the requester itself lost its connection, and chunks with it.
    """
    if daemons == 1:
        attempts = [attempt for attempt, _ in groupby(reply.attempt for reply in replies)]
        assert attempts == sorted(set(attempts)), f"attempts do not rise: {attempts}"
    for attempt in {(reply.daemon, reply.attempt) for reply in replies}:
        _check_attempt([reply for reply in replies if (reply.daemon, reply.attempt) == attempt], gaps=gaps)


def _check_attempt(replies: list[Heard], *, gaps: bool) -> None:
    """Numbered without a gap, copies are exact, one terminal message at the end, whose text the chunks make."""
    first: dict[str, Heard] = {}
    for reply in replies:
        known = first.setdefault(reply.message_id, reply)
        assert known == reply, f"a copy differs: {known} {reply}"
    distinct = list(first.values())
    numbers = [reply.seq for reply in distinct]
    assert numbers == (sorted(set(numbers)) if gaps else list(range(len(numbers)))), f"a gap: {numbers}"
    finals = [reply for reply in distinct if reply.final]
    assert finals in ([], distinct[-1:]), f"not one terminal message at the end: {[r.kind for r in distinct]}"
    told = finals and (finals[0].code == "ok" or finals[0].body["partial"] is not None)
    if told and len(distinct) > 1 and not gaps:
        assert "".join(reply.text for reply in distinct[:-1]) == finals[0].text

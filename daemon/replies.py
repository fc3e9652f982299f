"""Replies to one request: chunks coalesced in order, `seq` without a gap, and exactly one terminal message.

While the broker is away the text goes on growing in one pending chunk, so memory stays bounded by the answer itself.
A message whose confirm was lost is sent again as it was: same `message_id`, same `seq`.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable

import structlog

from daemon import metrics
from daemon.bus import Bus, BusUnavailable, Envelope, Published, PublishRefused, Reply, is_direct
from daemon.engine.types import TextEvent, TokenLogprob

GRACE_SECONDS = 10.0
"""After the daemon had to reconnect, a missing named queue may only be late: its owner reconnects too."""
REFUSED_SECONDS = 30.0
"""A reply queue that refuses messages for so long has no requester worth waiting for."""
RETRY_SECONDS = 0.25
PROBE_SECONDS = 1.0

ChunkBody = Callable[[str, tuple[TokenLogprob, ...]], bytes]
log = structlog.get_logger(__name__)


class ReplyStream:
    """Everything that goes to the requester of one attempt. Single event loop; not thread-safe."""

    def __init__(self, bus: Bus, envelope: Envelope, *, attempt: int, daemon_id: str) -> None:
        self._bus = bus
        self._address = envelope.reply_to or ""
        self._correlation_id = envelope.echo_id
        self._headers = {"attempt": attempt, "daemon": daemon_id} | envelope.trace
        self._seq = 0

    async def chunk(self, body: bytes) -> Published:
        """Send a chunk, transient; returns when the broker has it. Raises PublishRefused after 30 s of refusals."""
        return await self._deliver(self._next("chat.chunk", body, final=False))

    async def final(self, kind: str, body: bytes) -> Published:
        """Send the terminal message, persistent; returns when the broker has it. Raises PublishRefused likewise."""
        return await self._deliver(self._next(kind, body, final=True))

    async def is_safe(self) -> bool:
        """Ask before the first message: False for a direct address that nobody listens on, be it gone or forged.

        Publishing to a forged one can cost the connection, so a broker that cannot be asked is waited for.
        """
        if not is_direct(self._address):
            return True
        while (there := await self._bus.is_there(self._address)) is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(RETRY_SECONDS)
        return there

    async def is_there(self) -> bool:
        """False once the requester is certainly gone; a broker that cannot be asked proves nothing."""
        there = await self._bus.is_there(self._address)
        return there is not False or self._in_grace()

    async def until_gone(self) -> None:
        """Return when the requester has gone, asking at most once a second."""
        while await self.is_there():  # noqa: ASYNC110 - the broker tells nobody that a queue has gone
            await asyncio.sleep(PROBE_SECONDS)

    def _next(self, kind: str, body: bytes, *, final: bool) -> Reply:
        headers = self._headers | {"seq": self._seq, "final": final}
        self._seq += 1
        message_id = uuid.uuid4().hex
        return Reply(self._address, body, kind, message_id, self._correlation_id, headers, persistent=final)

    async def _deliver(self, reply: Reply) -> Published:
        """Publish until the broker confirms or returns it, through reconnects."""
        refused_since: float | None = None
        unconfirmed = False
        while True:
            try:
                published = await self._bus.publish(reply)
                metrics.RETURNED.inc(published is Published.RETURNED)
                if published is Published.ROUTED or not self._in_grace():
                    return published
            except PublishRefused:
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since > REFUSED_SECONDS:
                    raise
            except BusUnavailable as error:
                if not unconfirmed:  # said once a message: it may be tried for as long as the broker is away
                    metrics.UNCONFIRMED.inc()
                    log.info("a reply is unconfirmed and sent again", seq=reply.headers["seq"], reason=str(error))
                unconfirmed = True
            metrics.RETRIED.inc()
            await asyncio.sleep(RETRY_SECONDS)

    def _in_grace(self) -> bool:
        at = self._bus.reconnected_at
        return at is not None and not is_direct(self._address) and time.monotonic() - at < GRACE_SECONDS


class ChunkPump:
    """Gathers text events and sends them as chunks, at most one every `chunk_seconds`, the first at once."""

    def __init__(self, stream: ReplyStream, chunk_seconds: float, body: ChunkBody) -> None:
        self._stream, self._chunk_seconds, self._body = stream, chunk_seconds, body
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._fed, self._closed = asyncio.Event(), asyncio.Event()

    def feed(self, event: TextEvent) -> None:
        """Add an event's text; never waits."""
        self._text.append(event.text)
        self._logprobs.extend(event.logprobs)
        self._fed.set()

    def close(self) -> None:
        """No more events: `run` sends what is left and ends."""
        self._closed.set()
        self._fed.set()

    async def run(self) -> Published:
        """Send chunks until closed, or until one comes back because the requester is gone."""
        not_before = 0.0
        while True:
            await self._fed.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), not_before - time.monotonic())
            self._fed.clear()
            not_before = time.monotonic() + self._chunk_seconds
            if await self._send() is Published.RETURNED:
                return Published.RETURNED
            if self._closed.is_set() and not self._text:
                return Published.ROUTED

    async def _send(self) -> Published:
        text, logprobs = "".join(self._text), tuple(self._logprobs)
        self._text.clear()
        self._logprobs.clear()
        if not text and not logprobs:
            return Published.ROUTED
        return await self._stream.chunk(self._body(text, logprobs))

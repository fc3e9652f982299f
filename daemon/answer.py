"""One answer as the client receives it: text that streams in, restarts after a fault, and ends exactly once.

An attempt that a fault cut short is followed by another one that begins anew (contract, section 3). So the caller is
told when to throw away what it has: a chunk with `restarted` begins the text again. The chunks since the last restart,
joined, are the final text, whatever happened on the way.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from daemon.client_errors import AnswerTimeout, ClientError, RequestRefused, UnreadableReply
from schemas.replies import ChatCompletion, ChatCompletionChunk, ChatError, ReplyType, parse_reply

CANCEL_SECONDS = 5.0
"""How long leaving early may take: the cancel is worth a try, not a wait."""

# The standard library's logging: this runs in programs of other people, who have set up that.
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chunk:
    """Text to append. `restarted`: forget all earlier text first; a new attempt began.

    `raw` is the reply's body, None where the client made the chunk from the completion.
    """

    text: str
    restarted: bool = False
    raw: bytes | None = None


class Answer:
    """An asynchronous iterator of chunks, and the completion after them; for one task of one event loop.

    Iterating raises a ClientError after the last chunk where the request ends without a completion. Used as a context
    manager, leaving the block before the end cancels the request on the bus, so that nobody works for nothing.
    """

    def __init__(
        self,
        correlation_id: str,
        wait_seconds: float,
        *,
        cancel: Callable[[], Awaitable[None]],
        on_end: Callable[[], object],
    ) -> None:
        self.correlation_id = correlation_id
        self.attempt = 0
        """Number of the attempt that the present text comes from; 0 before the first reply."""
        self.raw: bytes | None = None
        """Body of the terminal message, None before it."""
        self._cancel, self._on_end = cancel, on_end
        self._next_seq = 0
        self._waiting: deque[Chunk] = deque()
        self._given = ""
        self._restarted = False
        self._completion: ChatCompletion | None = None
        self._error: ClientError | None = None
        self._changed = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(wait_seconds, self._time_out, wait_seconds)

    # -- for the caller ---------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """True once the answer has ended, well or not; chunks may still wait to be read."""
        return self._completion is not None or self._error is not None

    @property
    def final(self) -> ChatCompletion:
        """The completion. Raises the ClientError that the request ended with, RuntimeError before the end."""
        if self._error is not None:
            raise self._error
        if self._completion is None:
            raise RuntimeError("the answer has not ended yet; iterate over it or await result() first")
        return self._completion

    async def result(self) -> ChatCompletion:
        """Wait for the end, passing over the chunks. Raises ClientError."""
        async for _ in self:
            continue
        return self.final

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._waiting and not self.ended:
            self._changed.clear()
            await self._changed.wait()
        if self._waiting:
            return self._give(self._waiting.popleft())
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.ended or isinstance(self._error, AnswerTimeout):
            await self.leave()

    # -- for the client ---------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """End the answer, and the request on the bus if that can be done soon."""
        self.fail(ClientError("the caller left before the end"))
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._cancel()
        except (ClientError, TimeoutError) as failure:
            # What made the caller leave matters more than this.
            log.warning("request %r could not be cancelled: %r", self.correlation_id, failure)

    def take(self, kind: str | None, headers: Mapping[str, Any], body: bytes) -> None:
        """Take in a reply: a copy, an older attempt's chunk, or anything after the end is dropped."""
        if self.ended:
            return
        try:
            if kind != ReplyType.CHUNK:
                self._end(parse_reply(kind or "", body), body)
            elif self._is_next(headers.get("attempt"), headers.get("seq")):
                self._add(parse_reply(kind, body), body)
        except ValueError as error:
            self.fail(UnreadableReply(f"a reply of type {kind!r} cannot be read: {error}"))

    def fail(self, error: ClientError) -> None:
        """End the answer with `error`, unless it has ended."""
        if not self.ended:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        self._changed.set()
        self._on_end()

    def _time_out(self, seconds: float) -> None:
        self.fail(AnswerTimeout(f"no terminal message within {seconds:g} s"))

    def _is_next(self, attempt: object, seq: object) -> bool:
        """True for the next chunk of this attempt or the first of a later one; what follows a gap comes at the end."""
        if not isinstance(attempt, int) or not isinstance(seq, int):
            log.warning("chunk without attempt and seq dropped, request %r", self.correlation_id)
            return False
        if attempt > self.attempt:
            self.attempt, self._next_seq = attempt, 0
            self._discard()
        return (attempt, seq) == (self.attempt, self._next_seq)

    def _add(self, reply: object, body: bytes) -> None:
        if isinstance(reply, ChatCompletionChunk):
            self._next_seq += 1
            self._waiting.append(Chunk(reply.text, raw=body))
            self._changed.set()

    def _end(self, reply: object, body: bytes) -> None:
        self.raw = body
        if isinstance(reply, ChatError):
            self.fail(RequestRefused(reply))
        elif isinstance(reply, ChatCompletion):
            self._complete_text(reply.text)
            self._completion = reply
            self._finish()

    def _complete_text(self, text: str) -> None:
        """Make what the caller gets be the final text: add what is missing, or begin anew where it is another."""
        had = self._given + "".join(chunk.text for chunk in self._waiting)
        if not text.startswith(had):
            self._discard()
            had = ""
        if len(text) > len(had) or (self._restarted and not self._waiting):
            self._waiting.append(Chunk(text[len(had) :]))

    def _discard(self) -> None:
        """Forget the text so far; the caller is told with the next chunk if it was given any of it."""
        self._restarted = self._restarted or bool(self._given)
        self._given = ""
        self._waiting.clear()

    def _give(self, chunk: Chunk) -> Chunk:
        given = replace(chunk, restarted=self._restarted)
        self._restarted = False
        self._given += chunk.text
        return given

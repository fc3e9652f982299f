"""The client's answer: copies, older attempts, gaps and restarts, without a broker."""

import asyncio
from typing import Any

import pytest

from daemon.answer import Answer, Chunk
from daemon.client_errors import AnswerTimeout, BrokerUnavailable, ClientError, RequestRefused, UnreadableReply
from schemas.replies import Head, Timings, chat_error, to_json, usage

HEAD = Head("chatcmpl-1", 1, "m")
TIMINGS = Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0, tokens_per_second=0)


class Told:
    """Counts what the answer asks of its client."""

    def __init__(self) -> None:
        self.cancels = 0
        self.ends = 0

    async def cancel(self) -> None:
        """Count a cancel on the bus."""
        self.cancels += 1

    def end(self) -> None:
        """Count an end."""
        self.ends += 1

    def answer(self, wait_seconds: float = 60) -> Answer:
        """Make an answer that reports here."""
        return Answer("id", wait_seconds, cancel=self.cancel, on_end=self.end)


def chunk(answer: Answer, attempt: int, seq: int, text: str) -> None:
    headers = {"attempt": attempt, "seq": seq, "final": False}
    answer.take("chat.chunk", headers, to_json(HEAD.chunk(text, None, first=seq == 0)))


def final(answer: Answer, text: str) -> None:
    body = HEAD.completion(text, finish_reason="stop", usage=usage(1, 1, 0), timings=TIMINGS)
    answer.take("chat.completion", {}, to_json(body))


async def read(answer: Answer) -> list[tuple[str, bool]]:
    return [(chunk.text, chunk.restarted) async for chunk in answer]


async def test_chunks_then_the_completion() -> None:
    """Chunks come in order with their raw bodies, then the completion is there, and the client is told once."""
    told = Told()
    answer = told.answer()
    chunk(answer, 1, 0, "a")
    chunk(answer, 1, 1, "b")
    final(answer, "ab")
    chunks = [piece async for piece in answer]
    assert [piece.text for piece in chunks] == ["a", "b"]
    assert chunks[0].raw == to_json(HEAD.chunk("a", None, first=True))
    assert answer.final.text == "ab"
    assert answer.raw is not None
    assert told.ends == 1


async def test_copies_and_older_attempts_are_dropped() -> None:
    """A chunk sent again after a lost confirm, or late from an attempt that was given up, does not show up."""
    answer = Told().answer()
    chunk(answer, 2, 0, "a")
    chunk(answer, 2, 0, "a")
    chunk(answer, 1, 1, "x")
    chunk(answer, 2, 1, "b")
    final(answer, "ab")
    assert await read(answer) == [("a", False), ("b", False)]


async def test_a_later_attempt_restarts_the_text() -> None:
    """The caller learns with the first chunk of the later attempt that what it was given is void."""
    answer = Told().answer()
    chunk(answer, 1, 0, "old")
    assert await anext(answer) == Chunk("old", restarted=False, raw=to_json(HEAD.chunk("old", None, first=True)))
    chunk(answer, 1, 1, "never read")
    chunk(answer, 3, 0, "n")
    chunk(answer, 3, 1, "ew")
    final(answer, "new")
    assert await read(answer) == [("n", True), ("ew", False)]


async def test_a_restart_before_anything_was_read_is_silent() -> None:
    """Text that the caller never saw needs no taking back."""
    answer = Told().answer()
    chunk(answer, 1, 0, "old")
    chunk(answer, 2, 0, "new")
    final(answer, "new")
    assert await read(answer) == [("new", False)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", [("bc", False)]),
        ("a", []),
        ("xyz", [("xyz", True)]),
        ("", [("", True)]),
    ],
)
async def test_the_completion_has_the_last_word(text: str, expected: list[tuple[str, bool]]) -> None:
    """What chunks did not bring comes with the completion; where they brought something else, the text restarts."""
    answer = Told().answer()
    chunk(answer, 1, 0, "a")
    assert (await anext(answer)).text == "a"
    chunk(answer, 1, 2, "lost its neighbour")
    final(answer, text)
    assert await read(answer) == expected


async def test_a_restart_without_new_text() -> None:
    """An attempt that restarts and then says nothing still voids what was given."""
    answer = Told().answer()
    chunk(answer, 1, 0, "old")
    assert (await anext(answer)).text == "old"
    chunk(answer, 2, 1, "from the middle")
    final(answer, "")
    assert await read(answer) == [("", True)]


async def test_the_first_terminal_message_wins() -> None:
    """A second completion, an error or a chunk after the end changes nothing."""
    told = Told()
    answer = told.answer()
    final(answer, "first")
    final(answer, "second")
    answer.take("chat.error", {}, to_json(chat_error("expired", "late", param=None, retryable=True)))
    chunk(answer, 9, 0, "late")
    assert (await answer.result()).text == "first"
    assert told.ends == 1


async def test_errors_come_after_the_text() -> None:
    """What was streamed is given first; the error keeps code, message, place and hope."""
    answer = Told().answer()
    chunk(answer, 1, 0, "so far")
    answer.take("chat.error", {}, to_json(chat_error("cancelled", "stop it", param="p", retryable=False)))
    assert (await anext(answer)).text == "so far"
    with pytest.raises(RequestRefused, match="stop it") as caught:
        await anext(answer)
    error = caught.value
    assert (error.code, error.param, error.retryable, error.partial) == ("cancelled", "p", False, None)
    with pytest.raises(RequestRefused):
        _ = answer.final


@pytest.mark.parametrize(("kind", "body"), [("chat.completion", b"{}"), (None, b""), ("chat.error", b'{"error": 1}')])
async def test_unreadable_terminal_messages(kind: str | None, body: bytes) -> None:
    """A reply of another shape ends the request with an error instead of leaving it to wait."""
    answer = Told().answer()
    answer.take(kind, {}, body)
    with pytest.raises(UnreadableReply):
        await answer.result()


@pytest.mark.parametrize("headers", [{}, {"attempt": "1", "seq": 0}, {"attempt": 1}])
async def test_chunks_without_a_place_are_dropped(headers: dict[str, Any]) -> None:
    """Text that cannot be put in order is not shown; the completion brings it."""
    answer = Told().answer()
    answer.take("chat.chunk", headers, to_json(HEAD.chunk("?", None, first=True)))
    final(answer, "whole")
    assert await read(answer) == [("whole", False)]


async def test_time_out() -> None:
    """Nobody waits for ever, and a reader that is already waiting is woken."""
    answer = Told().answer(wait_seconds=0.01)
    with pytest.raises(AnswerTimeout, match=r"within 0\.01 s"):
        await answer.result()


async def test_final_before_the_end() -> None:
    """Asking too early is a mistake of the caller's, told as one."""
    answer = Told().answer()
    with pytest.raises(RuntimeError, match="not ended yet"):
        _ = answer.final


async def test_leaving_early_cancels() -> None:
    """Leaving the block before the end, also by a cancelled task, cancels on the bus; after the end it does not."""
    told = Told()
    async with told.answer() as answer:
        chunk(answer, 1, 0, "enough")
    assert answer.ended

    inside = asyncio.Event()

    async def wait_inside() -> None:
        async with told.answer() as waiting:
            inside.set()
            await waiting.result()

    task = asyncio.create_task(wait_inside())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(AnswerTimeout):
        async with told.answer(wait_seconds=0.01) as late:
            await late.result()
    assert told.cancels == 3


async def test_leaving_after_the_end_does_not_cancel() -> None:
    """After a completion nothing is left to cancel, after a lost connection nothing to cancel it with."""
    told = Told()
    async with told.answer() as done:
        final(done, "x")
    async with told.answer() as lost:
        lost.fail(BrokerUnavailable("gone"))
    assert told.cancels == 0


async def test_a_cancel_that_fails_hides_nothing() -> None:
    """The error that made the caller leave is the one that it sees."""

    async def failing() -> None:
        raise ClientError("no broker")

    with pytest.raises(KeyError, match="why"):
        async with Answer("id", 60, cancel=failing, on_end=lambda: None):
            raise KeyError("why")

"""Replies to one request: numbering, copies after lost confirms, refusals, the requester that has gone."""

import asyncio
import time

import pytest

from daemon import replies
from daemon.bus import BusUnavailable, Envelope, Published, PublishRefused
from daemon.engine.types import TextEvent
from daemon.replies import ChunkPump, ReplyStream
from tests.support.fake_bus import FakeBus

NAMED = Envelope(b"", "answers", "id", headers={"traceparent": "00-1-2-01"})
DIRECT = Envelope(b"", "amq.rabbitmq.reply-to.x", "id")


def stream(bus: FakeBus, envelope: Envelope = NAMED) -> ReplyStream:
    return ReplyStream(bus, envelope, attempt=2, daemon_id="d")


async def test_messages_are_numbered_and_carry_the_envelope() -> None:
    """A client tells order, attempt and end by these headers."""
    bus = FakeBus()
    replies_ = stream(bus)
    await replies_.chunk(b"1")
    await replies_.final("chat.completion", b"2")
    assert [reply.headers["seq"] for reply in bus.published] == [0, 1]
    assert [reply.headers["final"] for reply in bus.published] == [False, True]
    assert [reply.persistent for reply in bus.published] == [False, True]
    assert bus.published[0].message_id != bus.published[1].message_id
    for reply in bus.published:
        assert reply.headers.items() >= {"attempt": 2, "daemon": "d", "traceparent": "00-1-2-01"}.items()
        assert (reply.reply_to, reply.correlation_id) == ("answers", "id")


async def test_a_message_without_a_confirm_is_sent_again_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy must be recognisable as one: same message id, same number."""
    monkeypatch.setattr(replies, "RETRY_SECONDS", 0.0)
    bus = FakeBus([BusUnavailable("lost"), BusUnavailable("lost")])
    assert await stream(bus).final("chat.error", b"x") is Published.ROUTED
    assert len(bus.tried) == 3
    assert bus.tried[0] is bus.tried[1] is bus.tried[2]


async def test_refusals_end_after_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply queue that is full for ever must not hold the daemon for ever."""
    monkeypatch.setattr(replies, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(replies, "REFUSED_SECONDS", 0.01)
    with pytest.raises(PublishRefused):
        await stream(FakeBus([PublishRefused("full")] * 100_000)).final("chat.error", b"x")


async def test_a_named_queue_may_be_late_after_a_reconnect_but_a_direct_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exclusive queues die with the broker, and their owners need a moment to declare them anew."""
    monkeypatch.setattr(replies, "RETRY_SECONDS", 0.0)
    late = FakeBus([Published.RETURNED, Published.RETURNED], there=[False])
    late.reconnected_at = time.monotonic()
    assert await stream(late).final("chat.error", b"x") is Published.ROUTED
    assert await stream(late).is_there()
    direct = FakeBus(there=[False])
    direct.reconnected_at = time.monotonic()
    assert not await stream(direct, DIRECT).is_there()


async def test_the_grace_after_a_reconnect_ends() -> None:
    """Ten seconds later a missing queue means that the requester is gone."""
    bus = FakeBus([Published.RETURNED], there=[False])
    bus.reconnected_at = time.monotonic() - replies.GRACE_SECONDS - 1
    assert await stream(bus).final("chat.error", b"x") is Published.RETURNED
    assert not await stream(bus).is_there()


async def test_a_broker_that_cannot_be_asked_proves_nothing() -> None:
    """A lost connection is not a lost requester."""
    assert await stream(FakeBus(there=[None])).is_there()


async def test_chunks_joined_are_the_text_and_keep_flowing_while_the_broker_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory is bounded by the answer: what waits grows into one pending chunk."""
    monkeypatch.setattr(replies, "RETRY_SECONDS", 0.01)
    bus = FakeBus([BusUnavailable("away")] * 3)
    pump = ChunkPump(stream(bus), 0.0, lambda text, _: text.encode())
    running = asyncio.create_task(pump.run())
    for word in ("a", "b", "c", "d"):
        pump.feed(TextEvent(word, (1,)))
        await asyncio.sleep(0)
    pump.close()
    assert await running is Published.ROUTED
    assert b"".join(reply.body for reply in bus.published) == b"abcd"
    assert len(bus.published) <= 2


async def test_closing_does_not_wait_for_a_long_chunk_interval() -> None:
    """The final message must not be late because chunks are gathered for a minute."""
    bus = FakeBus()
    pump = ChunkPump(stream(bus), 60.0, lambda text, _: text.encode())
    running = asyncio.create_task(pump.run())
    pump.feed(TextEvent("a", (1,)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pump.feed(TextEvent("b", (2,)))
    pump.close()
    await asyncio.wait_for(running, 5)
    assert b"".join(reply.body for reply in bus.published) == b"ab"


async def test_a_returned_chunk_ends_the_pump() -> None:
    """Nobody listens: the generation is to be stopped."""
    pump = ChunkPump(stream(FakeBus([Published.RETURNED])), 0.0, lambda text, _: text.encode())
    pump.feed(TextEvent("a", (1,)))
    assert await asyncio.wait_for(pump.run(), 5) is Published.RETURNED

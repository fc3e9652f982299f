"""Jobs and the registry: stop reasons, deadlines, bounded memory of what has finished."""

import time

import pytest

from daemon.bus import Envelope
from daemon.jobs import Job, Outcome, Registry, Settle, StopReason
from tests.support.fake_bus import FakeDelivery


def job(correlation_id: str = "a", *, deadline: float | None = None) -> Job:
    return Job(FakeDelivery(Envelope(b"{}", "r", correlation_id)), deadline=deadline)


def test_the_first_stop_reason_stands() -> None:
    """A cancel that is followed by a shutdown is answered as a cancel."""
    stopped = job()
    assert not stopped.should_stop()
    stopped.stop(StopReason.CANCELLED)
    stopped.stop(StopReason.HAND_BACK)
    assert stopped.stop_reason() is StopReason.CANCELLED


def test_a_deadline_stops_by_itself_and_once_seen_stays() -> None:
    """A deadline that was reported must not turn into something else later."""
    late = job(deadline=time.monotonic() - 1)
    assert late.stop_reason() is StopReason.DEADLINE
    late.stop(StopReason.CANCELLED)
    assert late.stop_reason() is StopReason.DEADLINE
    assert job(deadline=time.monotonic() + 60).stop_reason() is None


def test_redeliveries_are_told_apart_by_user_address_ids_and_body() -> None:
    """Two requests that differ in one of them are two requests."""
    same = Envelope(b"x", "r", "c", "m", user_id="u")
    assert same.key == Envelope(b"x", "r", "c", "m", user_id="u", redelivered=True, attempt=3).key
    others = [
        Envelope(b"y", "r", "c", "m", user_id="u"),
        Envelope(b"x", "s", "c", "m", user_id="u"),
        Envelope(b"x", "r", "d", "m", user_id="u"),
        Envelope(b"x", "r", "c", "n", user_id="u"),
        Envelope(b"x", "r", "c", "m", user_id="v"),
    ]
    assert all(other.key != same.key for other in others)


def test_the_registry_remembers_what_ended_but_not_what_was_handed_back() -> None:
    """A hand-back ends nothing: the next delivery of it must be worked on."""
    registry = Registry()
    done, handed_back = job("done"), job("back")
    registry.start(done)
    registry.finish(done, Outcome(Settle.ACK, "ok"))
    registry.start(handed_back)
    registry.finish(handed_back, Outcome(Settle.HAND_BACK, "handed_back"))
    assert registry.outcome(done.key) == Outcome(Settle.ACK, "ok")
    assert registry.outcome(handed_back.key) is None
    assert registry.running is None


def test_a_new_publish_of_a_finished_request_starts_afresh() -> None:
    """Otherwise its redelivery would be settled from the record of the first one."""
    registry = Registry()
    first, second = job(), job()
    registry.start(first)
    registry.finish(first, Outcome(Settle.ACK, "ok"))
    registry.start(second)
    assert registry.outcome(second.key) is None


def test_only_one_job_runs() -> None:
    """Two running jobs would share the one engine thread's events."""
    registry = Registry()
    registry.start(job("a"))
    with pytest.raises(RuntimeError, match="running already"):
        registry.start(job("b"))


@pytest.mark.parametrize(("most", "seconds", "kept"), [(3, 60.0, 3), (100, 0.0, 0)])
def test_the_record_of_finished_jobs_is_bounded_by_count_and_age(most: int, seconds: float, kept: int) -> None:
    """A daemon that runs for months must not remember every request."""
    registry = Registry(most, seconds)
    for number in range(10):
        one = job(str(number))
        registry.start(one)
        registry.finish(one, Outcome(Settle.ACK, "ok"))
    registry.outcome(job("none").key)
    assert len(registry) == kept

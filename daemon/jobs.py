"""Jobs: one request being worked on, its deadline, how it may be stopped, and how it ended.

A job outlives its deliveries. The registry knows the job that runs and those that have just finished, so that a
redelivery of the same request is recognised instead of being generated again.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto

from daemon.bus import Delivery, Envelope, JobKey

FINISHED_COUNT = 1000
FINISHED_SECONDS = 600.0


class StopReason(Enum):
    """Why a generation must end before its time."""

    CANCELLED = auto()
    DEADLINE = auto()
    GONE = auto()
    REFUSED = auto()
    HAND_BACK = auto()


class Settle(Enum):
    """What is done with the delivery of a finished job."""

    ACK = auto()
    REJECT = auto()
    HAND_BACK = auto()


@dataclass(frozen=True)
class Outcome:
    """How a job ended: what its delivery gets, and a code for logs and metrics (`ok`, a wire code, `gone`, …).

    There is no outcome before the terminal message is confirmed: until then the job runs, and is adopted.
    """

    settle: Settle
    code: str


class Job:
    """One request in work. `stop` and `stop_reason` may be called from any thread."""

    def __init__(self, delivery: Delivery, *, deadline: float | None = None) -> None:
        self.envelope: Envelope = delivery.envelope
        self.key: JobKey = delivery.envelope.key
        self.attempt = delivery.envelope.attempt
        self.delivery = delivery
        self.deadline = deadline
        self.outcome: Outcome | None = None
        self.ended = asyncio.Event()
        self._lock = threading.Lock()
        self._reason: StopReason | None = None

    def lost(self, key: JobKey) -> bool:
        """True where a message with `key` can only be this request again: same identity, and its delivery is gone."""
        return self.key == key and self.delivery.stale

    def attach(self, delivery: Delivery) -> None:
        """Take over a redelivery of this request; the former handle is stale."""
        self.delivery = delivery

    def stop(self, reason: StopReason) -> None:
        """End the job because of `reason`; the first reason stands."""
        with self._lock:
            self._reason = self._reason or reason

    def stop_reason(self) -> StopReason | None:
        """Why the job must end now, None while it may go on."""
        with self._lock:
            if self._reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
                self._reason = StopReason.DEADLINE
            return self._reason

    def should_stop(self) -> bool:
        """The engine's stop check."""
        return self.stop_reason() is not None


class Registry:
    """The job that runs and the outcomes of the last ones, bounded by count and age.

    An outcome is kept for the redelivery that follows a lost ack, so it is forgotten once the ack is known to have
    arrived: a later message of the same identity is then a new request, also where it is a redelivery.
    """

    def __init__(self, most: int = FINISHED_COUNT, seconds: float = FINISHED_SECONDS) -> None:
        self.running: Job | None = None
        self._most, self._seconds = most, seconds
        self._finished: OrderedDict[JobKey, tuple[float, Outcome]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._finished)

    def start(self, job: Job) -> None:
        """Make `job` the one that runs. A new publish of a finished request starts afresh."""
        if self.running is not None:
            raise RuntimeError("a job is running already")
        self.running = job
        self._finished.pop(job.key, None)

    def finish(self, job: Job, outcome: Outcome) -> None:
        """Remember how `job` ended, unless it was handed back, which ends nothing."""
        self.running = None
        job.outcome = outcome
        job.ended.set()
        if outcome.settle is not Settle.HAND_BACK:
            self._finished[job.key] = (time.monotonic(), outcome)
        self._trim()

    def forget(self, key: JobKey) -> None:
        """The broker has had the ack of this request."""
        self._finished.pop(key, None)

    def outcome(self, key: JobKey) -> Outcome | None:
        """How the request ended, if this daemon has just finished it."""
        self._trim()
        record = self._finished.get(key)
        return record[1] if record else None

    def _trim(self) -> None:
        oldest_allowed = time.monotonic() - self._seconds
        while self._finished:
            at, _ = next(iter(self._finished.values()))
            if len(self._finished) <= self._most and at >= oldest_allowed:
                return
            self._finished.popitem(last=False)

"""The worker: takes deliveries, attaches each to a job, has one job at a time answered, and settles what is attached.

Receiving never waits for generation. A delivery is new, adopted by the job that runs (a redelivery of the same
request), settled from the record of finished jobs, or held until the running job ends.
"""

import asyncio
import contextlib
from collections import deque

import structlog

from daemon import metrics, tracing
from daemon.attempt import Attempt, Office
from daemon.bus import Delivery
from daemon.cancels import CancelTable, may_cancel
from daemon.jobs import Job, Outcome, Registry, Settle, StopReason

STOP_SECONDS = 2.0
"""How long an attempt that is handed back may take to end by itself: one step of the model, one publish."""

log = structlog.get_logger(__name__)


class Worker:
    """Implements the delivery protocol (contract, sections 3 and 4). Lives in the event loop."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self.registry, self.cancels = Registry(), CancelTable()
        self._held: deque[Delivery] = deque()
        self._arrived, self._idle, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._draining = False
        self._acked: Delivery | None = None
        self._work_task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """True while a job runs."""
        return self.registry.running is not None

    @property
    def tables(self) -> dict[str, int]:
        """How many entries each internal table has."""
        return {"held": len(self._held), "finished": len(self.registry), "cancels": len(self.cancels)}

    # -- receiving --------------------------------------------------------------------------------------------

    def receive(self, delivery: Delivery) -> None:
        """Take a delivery; returns at once."""
        self._conclude_ack()
        job = self.registry.running
        if job is not None and delivery.envelope.redelivered and job.lost(delivery.envelope.key):
            job.attach(delivery)
            metrics.ADOPTED.inc()
            log.info("redelivery adopted by the running request", **delivery.envelope.log_names(job.attempt))
            return
        self._held = deque(held for held in self._held if not held.stale)
        self._held.append(delivery)
        if not self._draining:
            self._arrived.set()

    def _conclude_ack(self) -> None:
        """With prefetch 1, another delivery on the same connection proves that the last ack has arrived."""
        if self._acked is not None and not self._acked.stale:
            self.registry.forget(self._acked.envelope.key)
        self._acked = None

    def cancel(self, user_id: str | None, request_id: str | None) -> None:
        """Cancel the request with this id, running, queued or yet to come."""
        if request_id is None:
            return
        self.cancels.add(user_id, request_id)
        job = self.registry.running
        if job is not None and job.envelope.echo_id == request_id and may_cancel(user_id, job.envelope.user_id):
            job.stop(StopReason.CANCELLED)

    async def run(self) -> None:
        """Have what arrives answered, one after the other, for ever."""
        while True:
            await self._arrived.wait()
            if not self._held:
                self._arrived.clear()
                continue
            self._idle.clear()
            self._work_task = asyncio.create_task(self._take(self._held.popleft()), name="request")
            await asyncio.wait({self._work_task})
            self._idle.set()
            if not self._work_task.cancelled():
                self._work_task.result()

    # -- shutdown ---------------------------------------------------------------------------------------------

    def stop_taking(self) -> None:
        """Work on nothing new; what still arrives is held, to be handed back."""
        self._draining = True
        self._arrived.clear()

    def hurry(self) -> None:
        """Make `drain` hand back at once."""
        self._hurry.set()

    async def drain(self, seconds: float) -> None:
        """Finish the running job within `seconds`, else hand it back, without a terminal message; likewise the held."""
        self.stop_taking()
        await self._idle_or_hurried(seconds)
        job = self.registry.running
        if job is not None:
            job.stop(StopReason.HAND_BACK)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), STOP_SECONDS)
            if self._work_task is not None:
                self._work_task.cancel()
        await self._idle.wait()
        while self._held:
            await self._held.popleft().hand_back()

    async def _idle_or_hurried(self, seconds: float) -> None:
        waiters = {asyncio.create_task(event.wait()) for event in (self._idle, self._hurry)}
        await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()

    # -- one delivery -----------------------------------------------------------------------------------------

    async def _take(self, delivery: Delivery) -> None:
        envelope = delivery.envelope
        if delivery.stale:
            return
        with structlog.contextvars.bound_contextvars(**envelope.log_names(envelope.attempt)):
            finished = self.registry.outcome(envelope.key) if envelope.redelivered else None
            if finished is not None:
                log.info("redelivery of a finished request settled from its record", code=finished.code)
                await self._settle(delivery, finished)
            elif not self._office.addresses.usable(envelope.reply_to):
                log.warning("request without a usable reply_to goes to the dead letters", reply_to=envelope.reply_to)
                metrics.REQUESTS.labels(code="no_reply_to").inc()
                await delivery.reject()
            else:
                await self._do(Job(delivery))

    async def _do(self, job: Job) -> None:
        self.registry.start(job)
        outcome = Outcome(Settle.HAND_BACK, "handed_back")
        try:
            with metrics.request() as measured, tracing.request(job.envelope, job.attempt) as span:
                outcome = await Attempt(self._office, self.cancels, job).answer()
                measured.code = outcome.code
                span.ended(outcome.code)
        finally:
            self.registry.finish(job, outcome)
            log.info("request ended", code=outcome.code, **measured.summary())
            await self._settle(job.delivery, outcome)

    async def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        verbs = {Settle.ACK: delivery.ack, Settle.REJECT: delivery.reject, Settle.HAND_BACK: delivery.hand_back}
        if not delivery.stale and await verbs[outcome.settle]():
            self._acked = delivery
        else:
            log.info("the delivery is gone; the broker will deliver it again", code=outcome.code)

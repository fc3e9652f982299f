"""The worker: takes deliveries, attaches each to a job, answers one job at a time, and settles what is attached.

Receiving never waits for generation. A delivery is new, adopted by the job that runs (a redelivery of the same
request), answered from the record of finished jobs, or held until the running job ends.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

import structlog

from daemon import metrics
from daemon.addresses import Addresses
from daemon.admission import Admission, Admitted
from daemon.bodies import Bodies
from daemon.bus import Bus, Delivery, Published, PublishRefused, is_direct
from daemon.cancels import CancelTable, may_cancel
from daemon.engine.types import Result
from daemon.errors import Cancelled, DeadlineExceeded, GenerationFailed, LeveretError
from daemon.generator import Generator
from daemon.jobs import Job, Outcome, Registry, Settle, StopReason
from daemon.replies import ChunkPump, ReplyStream

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Office:
    """What the worker works with."""

    bus: Bus
    generator: Generator
    admission: Admission
    addresses: Addresses
    bodies: Bodies
    daemon_id: str
    chunk_seconds: float


class Worker:
    """Implements the delivery protocol (contract, sections 3 and 4). Lives in the event loop."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self.registry, self.cancels = Registry(), CancelTable()
        self._held: deque[Delivery] = deque()
        self._arrived, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._draining = False
        self._work_task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """True while a job runs."""
        return self.registry.running is not None

    # -- receiving --------------------------------------------------------------------------------------------

    def receive(self, delivery: Delivery) -> None:
        """Take a delivery; returns at once."""
        job = self.registry.running
        if job is not None and delivery.envelope.redelivered and delivery.envelope.key == job.key:
            job.attach(delivery)
            metrics.ADOPTED.inc()
            log.info("redelivery adopted by the running request", correlation_id=delivery.envelope.echo_id)
            return
        self._held.append(delivery)
        self._arrived.set()

    def cancel(self, user_id: str | None, request_id: str | None) -> None:
        """Cancel the request with this id, running, queued or yet to come."""
        if request_id is None:
            return
        self.cancels.add(user_id, request_id)
        job = self.registry.running
        if job is not None and job.envelope.echo_id == request_id and may_cancel(user_id, job.envelope.user_id):
            job.stop(StopReason.CANCELLED)

    async def run(self) -> None:
        """Answer what arrives, one after the other, for ever."""
        while True:
            await self._arrived.wait()
            if not self._held:
                self._arrived.clear()
                continue
            self._idle.clear()
            self._work_task = asyncio.create_task(self._take(self._held.popleft()), name="request")
            await asyncio.wait({self._work_task})
            if not self._work_task.cancelled():
                self._work_task.result()
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Finish the running job within `seconds`, else hand it back; hand back what was held. Idempotent."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        await self.hand_back()

    async def hand_back(self) -> None:
        """End the running job now, without a terminal message, and give its delivery back to the queue."""
        self._draining = True
        job = self.registry.running
        if job is not None:
            job.stop(StopReason.HAND_BACK)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), 2.0)
            if self._work_task is not None and not self._work_task.done():
                self._work_task.cancel()
                await asyncio.wait({self._work_task})
        while self._held:
            await self._held.popleft().hand_back()

    # -- one delivery -----------------------------------------------------------------------------------------

    async def _take(self, delivery: Delivery) -> None:
        envelope = delivery.envelope
        if delivery.stale:
            return
        if self._draining:
            await delivery.hand_back()
            return
        names = {"correlation_id": envelope.echo_id, "attempt": envelope.attempt} | envelope.trace
        with structlog.contextvars.bound_contextvars(**names):
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
            with metrics.request() as measured:
                outcome = await self._answer(job)
                measured.code = outcome.code
        finally:
            self.registry.finish(job, outcome)
            log.info("request ended", code=outcome.code, **measured.summary())
            if job.delivery is not None:
                await self._settle(job.delivery, outcome)

    async def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        verbs = {Settle.ACK: delivery.ack, Settle.REJECT: delivery.reject, Settle.HAND_BACK: delivery.hand_back}
        if not await verbs[outcome.settle]():
            log.info("the delivery is gone; the broker will deliver it again", code=outcome.code)

    # -- one job ----------------------------------------------------------------------------------------------

    async def _answer(self, job: Job) -> Outcome:
        """Answer `job` with exactly one terminal message, whatever goes wrong, unless nobody can be answered."""
        stream = ReplyStream(self._office.bus, job.envelope, attempt=job.attempt, daemon_id=self._office.daemon_id)
        try:
            return await self._answer_or_refuse(job, stream)
        except PublishRefused as error:
            log.warning("the reply queue refuses messages; the request goes to the dead letters", reason=str(error))
            return Outcome(Settle.REJECT, "reply_refused")

    async def _answer_or_refuse(self, job: Job, stream: ReplyStream) -> Outcome:
        try:
            if is_direct(job.envelope.reply_to or "") and not await stream.is_there():
                return self._gone()
            return await self._admit_and_generate(job, stream)
        except LeveretError as error:
            return await self._refuse(stream, error)
        except PublishRefused:
            raise
        except Exception as error:
            log.exception("request failed")
            return await self._refuse(stream, GenerationFailed(f"internal error: {type(error).__name__}"))

    async def _admit_and_generate(self, job: Job, stream: ReplyStream) -> Outcome:
        admitted = self._office.admission.admit(job.envelope)
        job.deadline = admitted.deadline
        if self.cancels.hits(job.envelope.user_id, job.envelope.echo_id):
            raise Cancelled("the request was cancelled before it was started")
        if job.stop_reason() is StopReason.DEADLINE:
            raise DeadlineExceeded(f"the budget of {admitted.timeout:g} s ran out in the queue")
        bodies = self._office.bodies.answer(admitted)
        result = await self._generate(
            job, admitted, ChunkPump(stream, self._office.chunk_seconds, bodies.chunk), stream
        )
        if result.finish_reason == "interrupted":
            return await self._interrupted(job, admitted, stream, result)
        body = bodies.completion(result)
        metrics.observe(result, admitted.queue_seconds)
        return self._sent(await stream.final("chat.completion", body), "ok")

    async def _generate(self, job: Job, admitted: Admitted, pump: ChunkPump, stream: ReplyStream) -> Result:
        """Generate, with chunks flowing and an eye on the requester; both side tasks have ended when it returns."""
        chunks = asyncio.create_task(self._pump(job, pump), name="chunk pump")
        watch = asyncio.create_task(self._watch(job, stream), name="requester watch")
        feed = pump.feed if admitted.request.stream else (lambda _: None)
        try:
            return await self._office.generator.generate(admitted.task, job.should_stop, feed)
        except asyncio.CancelledError:
            chunks.cancel()
            raise
        finally:
            pump.close()
            watch.cancel()
            for side_task in (chunks, watch):
                await asyncio.wait({side_task})
                if not side_task.cancelled():
                    side_task.result()

    async def _pump(self, job: Job, pump: ChunkPump) -> None:
        try:
            if await pump.run() is Published.RETURNED:
                job.stop(StopReason.GONE)
        except PublishRefused:
            job.stop(StopReason.REFUSED)

    async def _watch(self, job: Job, stream: ReplyStream) -> None:
        await stream.until_gone()
        job.stop(StopReason.GONE)

    async def _interrupted(self, job: Job, admitted: Admitted, stream: ReplyStream, result: Result) -> Outcome:
        match job.stop_reason():
            case StopReason.CANCELLED:
                return await self._refuse(stream, Cancelled("the request was cancelled"), result)
            case StopReason.DEADLINE:
                error = DeadlineExceeded(f"the budget of {admitted.timeout:g} s ran out while generating")
                return await self._refuse(stream, error, result)
            case StopReason.GONE:
                return self._gone()
            case StopReason.REFUSED:
                return Outcome(Settle.REJECT, "reply_refused")
            case StopReason.HAND_BACK | None:
                return Outcome(Settle.HAND_BACK, "handed_back")

    async def _refuse(self, stream: ReplyStream, error: LeveretError, interrupted: Result | None = None) -> Outcome:
        body = self._office.bodies.error(error, interrupted)
        return self._sent(await stream.final("chat.error", body), error.code)

    def _sent(self, published: Published, code: str) -> Outcome:
        return self._gone() if published is Published.RETURNED else Outcome(Settle.ACK, code)

    def _gone(self) -> Outcome:
        log.info("the requester is gone; its request is dropped")
        return Outcome(Settle.ACK, "gone")

"""One attempt at a request: checked, generated with an eye on the requester, and ended with one terminal message."""

import asyncio
from dataclasses import dataclass

import structlog

from daemon import metrics, tracing
from daemon.addresses import Addresses
from daemon.admission import Admission, Admitted
from daemon.bodies import Bodies
from daemon.bus import Bus, Published, PublishRefused
from daemon.cancels import CancelTable
from daemon.engine.types import Result, TextEvent
from daemon.errors import Cancelled, DeadlineExceeded, GenerationFailed, LeveretError
from daemon.generator import Generator
from daemon.jobs import Job, Outcome, Settle, StopReason
from daemon.logs import log_failure
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


class Attempt:
    """Answers one job. Cancelling `answer` ends the attempt without a terminal message."""

    def __init__(self, office: Office, cancels: CancelTable, job: Job) -> None:
        self._office, self._cancels, self._job = office, cancels, job
        self._stream = ReplyStream(office.bus, job.envelope, attempt=job.attempt, daemon_id=office.daemon_id)

    async def answer(self) -> Outcome:
        """Exactly one terminal message, whatever goes wrong, unless nobody can be answered."""
        try:
            return await self._answer_or_refuse()
        except PublishRefused as error:
            log.warning("the reply queue refuses messages; the request goes to the dead letters", reason=str(error))
            return Outcome(Settle.REJECT, "reply_refused")

    async def _answer_or_refuse(self) -> Outcome:
        try:
            if not await self._stream.is_safe():
                return _gone()
            return await self._admit_and_generate()
        except LeveretError as error:
            return await self._refuse(error)
        except PublishRefused:
            raise
        except Exception as error:  # noqa: BLE001 - logged without its text, which may quote the prompt
            log_failure("request failed", error)
            return await self._refuse(GenerationFailed(f"internal error: {type(error).__name__}"))

    async def _admit_and_generate(self) -> Outcome:
        job = self._job
        admitted = self._office.admission.admit(job.envelope)
        job.deadline = admitted.deadline
        if admitted.queue_seconds is not None:
            metrics.QUEUE_WAIT.observe(admitted.queue_seconds)
        tracing.current().asked(admitted.task)
        if self._cancels.hits(job.envelope.user_id, job.envelope.echo_id):
            raise Cancelled("the request was cancelled before it was started")
        if job.stop_reason() is StopReason.DEADLINE:
            raise DeadlineExceeded(f"the budget of {admitted.timeout:g} s ran out in the queue")
        bodies = self._office.bodies.answer(admitted)
        result = await self._generate(admitted, ChunkPump(self._stream, self._office.chunk_seconds, bodies.chunk))
        tracing.current().answered(result)
        if result.finish_reason == "interrupted":
            return await self._interrupted(admitted, result)
        body = bodies.completion(result)
        metrics.observe(result)
        return _sent(await self._stream.final("chat.completion", body), "ok")

    async def _generate(self, admitted: Admitted, pump: ChunkPump) -> Result:
        """Generate, with chunks flowing and an eye on the requester; both side tasks have ended when it returns."""
        chunks = asyncio.create_task(self._pump(pump), name="chunk pump")
        watch = asyncio.create_task(self._watch(), name="requester watch")
        clock = metrics.TokenClock(self._job.envelope.received_at)

        def feed(event: TextEvent) -> None:
            clock.tick(event)
            if admitted.request.stream:
                pump.feed(event)

        try:
            try:
                return await self._office.generator.generate(admitted.task, self._job.should_stop, feed)
            except asyncio.CancelledError:
                chunks.cancel()
                raise
            finally:
                pump.close()
                await asyncio.wait({chunks})
        finally:
            await _end(chunks, watch)

    async def _pump(self, pump: ChunkPump) -> None:
        try:
            if await pump.run() is Published.RETURNED:
                self._job.stop(StopReason.GONE)
        except PublishRefused:
            self._job.stop(StopReason.REFUSED)

    async def _watch(self) -> None:
        await self._stream.until_gone()
        self._job.stop(StopReason.GONE)

    async def _interrupted(self, admitted: Admitted, result: Result) -> Outcome:
        reason = self._job.stop_reason() or StopReason.HAND_BACK
        metrics.STOPPED.labels(reason=reason.name.lower()).inc()
        match reason:
            case StopReason.CANCELLED:
                return await self._refuse(Cancelled("the request was cancelled"), result)
            case StopReason.DEADLINE:
                error = DeadlineExceeded(f"the budget of {admitted.timeout:g} s ran out while generating")
                return await self._refuse(error, result)
            case StopReason.GONE:
                return _gone()
            case StopReason.REFUSED:
                return Outcome(Settle.REJECT, "reply_refused")
            case StopReason.HAND_BACK:
                return Outcome(Settle.HAND_BACK, "handed_back")

    async def _refuse(self, error: LeveretError, interrupted: Result | None = None) -> Outcome:
        body = self._office.bodies.error(error, interrupted)
        return _sent(await self._stream.final("chat.error", body), error.code)


async def _end(*tasks: "asyncio.Task[None]") -> None:
    """Cancel what still runs, and wait until all have ended; what one of them raised is raised here."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _sent(published: Published, code: str) -> Outcome:
    return _gone() if published is Published.RETURNED else Outcome(Settle.ACK, code)


def _gone() -> Outcome:
    log.info("the requester is gone; its request is dropped")
    return Outcome(Settle.ACK, "gone")

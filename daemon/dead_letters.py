"""Dead letters: requests that expired or failed too often are answered by a daemon, then parked for the operator.

The order is what makes it safe: the answer is confirmed, then the copy in the parked queue, then the ack. After a
crash in between, the answer may come twice, and the client keeps the first.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import structlog

from daemon import metrics
from daemon.addresses import Addresses
from daemon.bodies import Bodies
from daemon.bus import Bus, BusUnavailable, Delivery, Envelope, JobKey, PublishRefused
from daemon.errors import DeliveryLimitExceeded, Expired, LeveretError
from daemon.jobs import Registry, Settle
from daemon.logs import log_failure
from daemon.replies import RETRY_SECONDS, ReplyStream

log = structlog.get_logger(__name__)


class DeadLetters:
    """Answers and parks one dead letter at a time.

    `registry` tells of the requests that this daemon itself works on: a delivery that was lost with its connection
    can expire, or reach its limit, while its request is still being answered here.
    """

    def __init__(  # noqa: PLR0913 - its collaborators, each by name
        self,
        *,
        bus: Bus,
        addresses: Addresses,
        bodies: Bodies,
        registry: Registry,
        daemon_id: str,
        delivery_limit: int,
    ) -> None:
        self._bus, self._addresses, self._bodies, self._registry = bus, addresses, bodies, registry
        self._daemon_id, self._delivery_limit = daemon_id, delivery_limit
        self._next: Delivery | None = None
        self._arrived, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._answered: JobKey | None = None

    def receive(self, delivery: Delivery) -> None:
        """Take a dead letter; returns at once. With prefetch 1, one that still waits has lost its connection."""
        self._next = delivery
        self._arrived.set()

    async def run(self) -> None:
        """Settle dead letters for ever."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            delivery, self._next = self._next, None
            if delivery is not None and not delivery.stale:
                self._idle.clear()
                names = delivery.envelope.log_names(self._attempt(delivery.envelope))
                with structlog.contextvars.bound_contextvars(**names):
                    await self._settle_or_pass_on(delivery)
                self._idle.set()

    def _attempt(self, envelope: Envelope) -> int:
        return attempt_after(self._delivery_limit, envelope.attempt)

    async def drain(self, seconds: float) -> None:
        """Wait for the one in work, at most `seconds`; what is unsettled goes back with its connection."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)

    async def _settle_or_pass_on(self, delivery: Delivery) -> None:
        try:
            await self._settle(delivery)
        except Exception as error:  # noqa: BLE001 - one letter must not stop the daemon; rejected, the broker parks it
            log_failure("dead letter failed", error)
            await delivery.reject()

    async def _settle(self, delivery: Delivery) -> None:
        reason = death_reason(delivery.envelope.headers)
        if not await self._is_answered(delivery.envelope):
            await self._answer(delivery.envelope, reason)
        await self._park(delivery)
        if not delivery.stale and await delivery.ack():
            metrics.DEAD_LETTERS.labels(reason=reason).inc()
            log.warning("dead letter parked", reason=reason)

    async def _is_answered(self, envelope: Envelope) -> bool:
        """True where the requester has an answer of this daemon, or has got one by the time this returns."""
        key = envelope.key
        job = self._registry.running
        if job is not None and job.lost(key):
            log.info("dead letter of the running request waits for its answer")
            await job.ended.wait()
            return job.outcome is not None and job.outcome.settle is not Settle.HAND_BACK
        return self._registry.outcome(key) is not None or (envelope.redelivered and key == self._answered)

    async def _park(self, delivery: Delivery) -> None:
        while not delivery.stale:
            try:
                await delivery.park()
                break
            except BusUnavailable as error:
                log.info("dead letter is kept until it can be parked", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _answer(self, envelope: Envelope, reason: str) -> None:
        error = self._error(reason)
        if error is None or not self._addresses.usable(envelope.reply_to):
            return
        stream = ReplyStream(self._bus, envelope, attempt=self._attempt(envelope), daemon_id=self._daemon_id)
        if not await stream.is_safe():
            return
        try:
            await stream.final("chat.error", self._bodies.error(error))
            metrics.DEAD_ANSWERED.labels(reason=reason).inc()
        except PublishRefused as refusal:
            log.warning("the reply queue refuses the answer to a dead letter", reason=str(refusal))
        self._answered = envelope.key

    def _error(self, reason: str) -> LeveretError | None:
        match reason:
            case "expired":
                return Expired("the request's expiration passed while it waited in the queue")
            case "delivery_limit":
                return DeliveryLimitExceeded("the request was delivered as often as allowed and never answered")
            case _:
                return None


def death_reason(headers: Mapping[str, Any]) -> str:
    """Why the message was dead-lettered last: RabbitMQ's word, `rejected` where its history is unreadable."""
    deaths = headers.get("x-death")
    latest = deaths[0] if isinstance(deaths, list) and deaths else None
    reason = latest.get("reason") if isinstance(latest, dict) else None
    return reason if isinstance(reason, str) and reason in metrics.DEATHS else "rejected"


def attempt_after(delivery_limit: int, delivery: int) -> int:
    """An attempt above every one before it; `delivery` counts those of the dead letter itself, from 1.

    A dead letter does not tell how often its request was delivered, which was at most `delivery_limit + 1` times: so
    the number may leave a gap.
    """
    return delivery_limit + 1 + delivery

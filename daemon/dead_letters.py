"""Dead letters: requests that expired or failed too often are answered by a daemon, then parked for the operator.

The order is what makes it safe: the answer is confirmed, then the copy in the parked queue, then the ack. After a
crash in between, the answer may come twice, and the client keeps the first.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from daemon import metrics
from daemon.addresses import Addresses
from daemon.bodies import Bodies
from daemon.bus import Bus, BusUnavailable, Delivery, Envelope, PublishRefused, is_direct
from daemon.errors import DeliveryLimitExceeded, Expired, LeveretError
from daemon.replies import RETRY_SECONDS, ReplyStream

log = structlog.get_logger(__name__)


class DeadLetters:
    """Answers and parks one dead letter at a time."""

    def __init__(self, bus: Bus, addresses: Addresses, bodies: Bodies, daemon_id: str, delivery_limit: int) -> None:
        self._bus, self._addresses, self._bodies = bus, addresses, bodies
        self._daemon_id, self._delivery_limit = daemon_id, delivery_limit
        self._inbox: asyncio.Queue[Delivery] = asyncio.Queue()

    def receive(self, delivery: Delivery) -> None:
        """Take a dead letter; returns at once."""
        self._inbox.put_nowait(delivery)

    async def run(self) -> None:
        """Settle dead letters for ever."""
        while True:
            delivery = await self._inbox.get()
            if not delivery.stale:
                with structlog.contextvars.bound_contextvars(correlation_id=delivery.envelope.echo_id):
                    await self._settle(delivery)

    async def _settle(self, delivery: Delivery) -> None:
        reason = death_reason(delivery.envelope.headers)
        await self._answer(delivery.envelope, reason)
        while not delivery.stale:
            try:
                await delivery.park()
                break
            except BusUnavailable as error:
                log.info("dead letter is kept until it can be parked", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        await delivery.ack()
        metrics.DEAD_LETTERS.labels(reason=reason).inc()
        log.warning("dead letter parked", reason=reason)

    async def _answer(self, envelope: Envelope, reason: str) -> None:
        error = self._error(reason)
        if error is None or not self._addresses.usable(envelope.reply_to):
            return
        attempt = attempt_after(self._delivery_limit)
        stream = ReplyStream(self._bus, envelope, attempt=attempt, daemon_id=self._daemon_id)
        if is_direct(envelope.reply_to or "") and not await stream.is_there():
            return
        try:
            await stream.final("chat.error", self._bodies.error(error))
        except PublishRefused as refusal:
            log.warning("the reply queue refuses the answer to a dead letter", reason=str(refusal))

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
    return reason if reason in {"expired", "delivery_limit", "rejected", "maxlen"} else "rejected"


def attempt_after(delivery_limit: int) -> int:
    """An attempt above every one before it: at most `delivery_limit + 1` deliveries were made.

    A dead letter does not tell how often it was delivered, so the number may leave a gap.
    """
    return delivery_limit + 2

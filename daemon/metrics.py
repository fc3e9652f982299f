"""The instruments, with units in their names.

Labels are bounded: codes and reasons of fixed lists, never ids or texts.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from daemon.engine.types import Result

REGISTRY = CollectorRegistry()
DURATION_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds; OpenTelemetry's bucket bounds for GenAI operation durations."""

REQUESTS = Counter("leveret_requests", "Requests ended, by outcome code.", ["code"], registry=REGISTRY)
IN_FLIGHT = Gauge("leveret_requests_in_flight", "Requests in work: 0 or 1.", registry=REGISTRY)
DURATION = Histogram(
    "leveret_request_duration_seconds", "Receipt to settled.", buckets=DURATION_BOUNDS, registry=REGISTRY
)
QUEUE_WAIT = Histogram(
    "leveret_queue_wait_seconds", "Timestamp to receipt.", buckets=DURATION_BOUNDS, registry=REGISTRY
)
PREFILL = Histogram("leveret_prefill_seconds", "Prefill of a prompt.", buckets=DURATION_BOUNDS, registry=REGISTRY)
TOKENS = Counter("leveret_tokens", "Tokens by kind: prompt, cached, completion.", ["kind"], registry=REGISTRY)
DECODE_RATE = Gauge("leveret_decode_tokens_per_second", "Decode rate of the last answer.", registry=REGISTRY)
ADOPTED = Counter("leveret_redeliveries_adopted", "Redeliveries adopted by the running request.", registry=REGISTRY)
DEAD_LETTERS = Counter("leveret_dead_letters", "Dead letters parked, by reason.", ["reason"], registry=REGISTRY)
UNCONFIRMED = Counter(
    "leveret_replies_unconfirmed",
    "Replies whose confirm did not come; they are sent again, so their requesters may get a copy.",
    registry=REGISTRY,
)
REMEMBERED = Gauge(
    "leveret_remembered",
    "Entries of the worker's tables: deliveries held, requests finished, cancels.",
    ["table"],
    registry=REGISTRY,
)
CONSUMER = Gauge("leveret_consumer_registered", "1 while the broker has this consumer.", registry=REGISTRY)
RECONNECTS = Gauge("leveret_broker_reconnects", "Reconnects since the start.", ["link"], registry=REGISTRY)


@dataclass
class RequestMeasure:
    """What one request costs, filled in as it goes."""

    code: str = "handed_back"
    started: float = field(default_factory=time.monotonic)

    def summary(self) -> dict[str, float]:
        """Figures for the log line that ends a request."""
        return {"seconds": round(time.monotonic() - self.started, 3)}


@contextmanager
def request() -> Iterator[RequestMeasure]:
    """Count a request and time it, whatever becomes of it."""
    measure = RequestMeasure()
    IN_FLIGHT.set(1)
    try:
        yield measure
    finally:
        IN_FLIGHT.set(0)
        REQUESTS.labels(code=measure.code).inc()
        DURATION.observe(time.monotonic() - measure.started)


def observe(result: Result, queue_seconds: float | None) -> None:
    """Count the tokens and times of an answer."""
    if queue_seconds is not None:
        QUEUE_WAIT.observe(queue_seconds)
    PREFILL.observe(result.timings.prefill_seconds)
    DECODE_RATE.set(result.timings.tokens_per_second)
    TOKENS.labels(kind="prompt").inc(result.usage.prompt_tokens)
    TOKENS.labels(kind="cached").inc(result.usage.cached_tokens)
    TOKENS.labels(kind="completion").inc(result.usage.completion_tokens)


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)

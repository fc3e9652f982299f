"""The instruments, with units in their names.

Labels are bounded: codes, reasons and names of fixed lists, never ids or texts. Every series is there from the start,
at 0, so that a rate sees the first event too. What can be observed at any moment (connections, queues, tables) is
collected when it is asked for, in `observed`.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from daemon.engine.types import Result, Source, TextEvent

REGISTRY = CollectorRegistry()

DURATION_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds; OpenTelemetry's bucket bounds for `gen_ai.server.request.duration`."""
FIRST_TOKEN_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds; OpenTelemetry's for `gen_ai.server.time_to_first_token`."""
TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
"""Seconds; OpenTelemetry's for `gen_ai.server.time_per_output_token`."""

CODES = (
    *("ok", "invalid_request", "model_not_found", "context_length_exceeded", "deadline_exceeded", "cancelled"),
    *("generation_failed", "gone", "reply_refused", "no_reply_to", "handed_back"),
)
"""How a request ends: answered, refused with a code of the wire, or without a terminal message (the last four)."""
STOP_REASONS = ("cancelled", "deadline", "gone", "refused", "hand_back")
"""Why a running generation was stopped; `jobs.StopReason` in lower case."""
DEATHS = ("expired", "delivery_limit", "rejected", "maxlen")
"""Why a request became a dead letter, in RabbitMQ's words."""


def _counter(name: str, text: str, **labels: Iterable[str]) -> Counter:
    """A counter with at most one label, whose values are all there from the start."""
    counter = Counter(name, text, list(labels), registry=REGISTRY)
    for label, values in labels.items():
        for value in values:
            counter.labels(**{label: value})
    return counter


def _seconds(name: str, text: str, bounds: tuple[float, ...] = DURATION_BOUNDS) -> Histogram:
    return Histogram(name, text, buckets=bounds, registry=REGISTRY)


REQUESTS = _counter("leveret_requests", "Requests ended, by outcome code.", code=CODES)
IN_FLIGHT = Gauge("leveret_requests_in_flight", "Requests in work: 0 or 1.", registry=REGISTRY)
STOPPED = _counter("leveret_generations_stopped", "Running generations stopped, by reason.", reason=STOP_REASONS)

QUEUE_WAIT = _seconds("leveret_queue_wait_seconds", "Timestamp of a request to its receipt.")
PREFILL = _seconds("leveret_prefill_seconds", "Prefill of a prompt.")
FIRST_TOKEN = _seconds("leveret_time_to_first_token_seconds", "Receipt to the first token.", FIRST_TOKEN_BOUNDS)
INTER_TOKEN = _seconds("leveret_inter_token_seconds", "Time of each token after the first.", TOKEN_BOUNDS)
DURATION = _seconds("leveret_request_duration_seconds", "Start of the work to the confirmed terminal message.")

TOKENS = _counter("leveret_tokens", "Tokens of answered requests, by kind.", kind=("prompt", "cached", "completion"))
EMITTED = _counter("leveret_emitted_tokens", "Tokens emitted, by how they came about.", source=tuple(Source))
DECODE_RATE = Gauge(
    "leveret_decode_tokens_per_second", "Decode rate of the last answer that was no label.", registry=REGISTRY
)

ADOPTED = _counter("leveret_redeliveries_adopted", "Redeliveries adopted by the running request.")
UNCONFIRMED = _counter(
    "leveret_replies_unconfirmed",
    "Replies whose confirm did not come; they are sent again, so their requesters may get a copy.",
)
RETRIED = _counter("leveret_publishes_retried", "Publishes of replies that were tried again.")
RETURNED = _counter("leveret_publishes_returned", "Replies that came back: no such queue.")
DEAD_ANSWERED = _counter("leveret_dead_letters_answered", "Dead letters answered, by reason.", reason=DEATHS)
DEAD_LETTERS = _counter("leveret_dead_letters", "Dead letters parked, by reason.", reason=DEATHS)

ProcessCollector(registry=REGISTRY)


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


class TokenClock:
    """Times the tokens of one generation as they arrive; `received` is monotonic seconds."""

    def __init__(self, received: float) -> None:
        self._received = received
        self._last: float | None = None

    def tick(self, event: TextEvent) -> None:
        """Count an event's tokens. Several at once share the time since the last ones."""
        count = len(event.token_ids)
        if not count:
            return
        now = time.monotonic()
        EMITTED.labels(source=event.source).inc(count)
        if self._last is None:
            FIRST_TOKEN.observe(now - self._received)
        else:
            for _ in range(count):
                INTER_TOKEN.observe((now - self._last) / count)
        self._last = now


def observe(result: Result) -> None:
    """Count the tokens and times of an answer."""
    PREFILL.observe(result.timings.prefill_seconds)
    if result.timings.tokens_per_second > 0:  # of a label nothing is decoded
        DECODE_RATE.set(result.timings.tokens_per_second)
    TOKENS.labels(kind="prompt").inc(result.usage.prompt_tokens)
    TOKENS.labels(kind="cached").inc(result.usage.cached_tokens)
    TOKENS.labels(kind="completion").inc(result.usage.completion_tokens)

"""Spans for OpenTelemetry, where the operator wants them: the extra `otel`, and an address to send them to.

Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` (or its `_TRACES_` variant) is set; then nothing here costs anything, and the
daemon connects nowhere but to the broker. OpenTelemetry's own variables (`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`,
`OTEL_EXPORTER_OTLP_HEADERS`, …) are honoured. Prompts and answers are never in a span.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from daemon.bus import Envelope
from daemon.engine.types import Result, Task
from daemon.errors import ConfigurationError

FLUSH_SECONDS = 2.0
"""How long the end of the process waits for the last spans to be sent."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Span:
    """What is told of one request while it is worked on; this one tells nobody."""

    def asked(self, task: Task) -> None:
        """The request is valid, and this is what it wants."""

    def answered(self, result: Result) -> None:
        """The generation has ended."""

    def ended(self, code: str) -> None:
        """How the request ended: `ok`, a wire code, `gone`, …."""


@dataclass(frozen=True)
class Exporter:
    """Makes spans of requests (their envelope and attempt), and sends them."""

    span: Callable[[Envelope, int], AbstractContextManager[Span]]
    flush: Callable[[], object]


_NOBODY = Span()
_current: ContextVar[Span] = ContextVar("span", default=_NOBODY)
_exporter: Exporter | None = None


def start(*, model_id: str, queue: str, daemon_id: str) -> None:
    """Begin to export, where an address is set. Raises ConfigurationError where the extra is not installed."""
    global _exporter  # noqa: PLW0603 - one for the process, as the metrics' registry is
    _exporter = None
    chosen = next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    if chosen is None or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from daemon import otel  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise ConfigurationError(
            f"{chosen} is set, but {error.name or 'opentelemetry'} is not installed; install leveret[otel], or unset it"
        ) from error
    _exporter = otel.exporter(model_id=model_id, queue=queue, daemon_id=daemon_id)


async def stop() -> None:
    """Send what is left, for a limited time: a thread that nobody joins, for a collector may never answer."""
    if _exporter is not None:
        sending = threading.Thread(target=_exporter.flush, name="last spans", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, FLUSH_SECONDS)


@contextmanager
def request(envelope: Envelope, attempt: int) -> Iterator[Span]:
    """A span around an attempt at a request; within it, `current` is this span."""
    if _exporter is None:
        yield _NOBODY
        return
    with _exporter.span(envelope, attempt) as span:
        token = _current.set(span)
        try:
            yield span
        finally:
            _current.reset(token)


def current() -> Span:
    """The span of the request in work."""
    return _current.get()

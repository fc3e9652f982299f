"""Spans by the OpenTelemetry SDK, sent over OTLP/HTTP. Imported only where tracing is wanted.

Names follow OpenTelemetry's semantic conventions for generative AI (`gen_ai.*`) and messaging.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from daemon import __version__
from daemon.bus import Envelope
from daemon.engine.types import JsonObject, JsonSchema, Result, Task
from daemon.tracing import Exporter, Span

_GOOD = {"ok", "cancelled", "gone", "handed_back"}
"""Ends that are nobody's error."""

Attributes = Mapping[str, str | int | float | bool | list[str] | None]


class RequestSpan(Span):
    """One attempt at a request as a span."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    def asked(self, task: Task) -> None:
        """See `Span.asked`."""
        as_json = isinstance(task.constraint, JsonObject | JsonSchema)
        self._set(
            {
                "gen_ai.output.type": "json" if as_json else "text",
                "gen_ai.request.max_tokens": task.max_new_tokens,
                "gen_ai.request.temperature": task.temperature,
                "gen_ai.request.top_p": task.top_p,
                "gen_ai.request.top_k": task.top_k or None,
                "gen_ai.request.seed": task.seed,
            }
        )

    def answered(self, result: Result) -> None:
        """See `Span.answered`."""
        self._set(
            {
                "gen_ai.response.finish_reasons": [result.finish_reason],
                "gen_ai.usage.input_tokens": result.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": result.usage.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": result.usage.cached_tokens,
                "leveret.prefill_seconds": result.timings.prefill_seconds,
                "leveret.decode_seconds": result.timings.decode_seconds,
            }
        )

    def ended(self, code: str) -> None:
        """See `Span.ended`."""
        self._set({"leveret.outcome": code})
        if code not in _GOOD:
            self._set({"error.type": code})
            self._span.set_status(Status(StatusCode.ERROR))

    def _set(self, attributes: Attributes) -> None:
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def exporter(*, model_id: str, queue: str, daemon_id: str) -> Exporter:
    """An exporter as OpenTelemetry's environment variables configure it."""
    resource = Resource.create(
        {
            "service.name": os.environ.get("OTEL_SERVICE_NAME", "leveret"),
            "service.version": __version__,
            "service.instance.id": daemon_id,
        }
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("leveret", __version__)

    @contextmanager
    def span(envelope: Envelope, attempt: int) -> Iterator[Span]:
        with _span(tracer, envelope, {**_always(model_id, queue), "leveret.attempt": attempt}) as made:
            yield made

    return Exporter(span, provider.force_flush)


def _always(model_id: str, queue: str) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "leveret",
        "gen_ai.request.model": model_id,
        "gen_ai.response.model": model_id,
        "messaging.system": "rabbitmq",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "leveret.outcome": "handed_back",  # unless the attempt gets to another end
    }


@contextmanager
def _span(tracer: Tracer, envelope: Envelope, attributes: dict[str, str | int]) -> Iterator[Span]:
    """A span that continues the requester's trace, where the request names one."""
    ids = {
        "messaging.message.id": envelope.message_id,
        "messaging.message.conversation_id": envelope.echo_id,
    }
    attributes |= {name: _printable(value) for name, value in ids.items() if value is not None}
    parent = TraceContextTextMapPropagator().extract(dict(envelope.trace))
    name = f"chat {attributes['gen_ai.request.model']}"
    with tracer.start_as_current_span(
        name, parent, SpanKind.CONSUMER, attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        yield RequestSpan(span)


def _printable(value: str) -> str:
    """Foreign bytes arrive as surrogate escapes, which would make the export of the whole batch fail."""
    return value.encode("utf-8", "backslashreplace").decode()

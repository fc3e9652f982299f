"""Takes OTLP/HTTP exports of spans, as a collector does."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_KINDS = {"string_value", "int_value", "double_value", "bool_value"}


@dataclass(frozen=True)
class ReceivedSpan:
    """A span with its attributes as plain values; ids in hexadecimal."""

    name: str
    trace_id: str
    parent_id: str
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Receiver:
    """The endpoint to set, and what came."""

    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        """Parse one export."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        ReceivedSpan(
                            name=span.name,
                            trace_id=span.trace_id.hex(),
                            parent_id=span.parent_span_id.hex(),
                            status=span.status.code,
                            attributes=_plain(span.attributes),
                            resource=_plain(resource.resource.attributes),
                        )
                    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind in _KINDS else [_value(item) for item in value.array_value.values]


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Listen on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()

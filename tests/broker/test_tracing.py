"""Spans of real requests, as a collector gets them."""

import socket
import sys
from pathlib import Path

import pytest
from private_broker import PrivateBroker

from daemon import tracing
from daemon.errors import ConfigurationError
from tests.support.daemon_process import DaemonProcess
from tests.support.in_process import running_app
from tests.support.otlp_receiver import otlp_receiver
from tests.support.requester import Requester
from tests.support.scripted_model import write_scripted_model

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
ERROR = 2
"""OTLP's STATUS_CODE_ERROR."""


async def test_an_answer_and_an_error_are_spans_of_the_requesters_trace(
    broker: PrivateBroker, queue: str, requester: Requester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows a request through their services finds the model's part in it, sent before the daemon ends."""
    model = write_scripted_model(tmp_path / "model", ["one", " two"])
    with otlp_receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.endpoint)
        async with running_app(model, amqp_url=broker.url, queue=queue, daemon_id="traced"):
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            answered = await requester.send(headers=headers, fields={"max_new_tokens": 9, "seed": 4})
            await requester.terminal(answered)
            refused = await requester.send({"messages": []}, headers=headers)
            await requester.terminal(refused)
        monkeypatch.delenv(ENDPOINT)
        tracing.start(model_id="", queue="", daemon_id="")
        good, bad = receiver.spans
    assert {(span.name, span.trace_id, span.parent_id) for span in (good, bad)} == {("chat test/model", TRACE, PARENT)}
    assert good.resource["service.name"] == "leveret"
    assert good.resource["service.instance.id"] == "traced"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "test/model",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 4,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.output_tokens": 3,
        "messaging.destination.name": queue,
        "messaging.message.conversation_id": answered,
        "leveret.outcome": "ok",
    }
    assert expected.items() <= good.attributes.items()
    assert good.status != ERROR
    assert (bad.status, bad.attributes["error.type"], bad.attributes["leveret.outcome"]) == (
        ERROR,
        *["invalid_request"] * 2,
    )


async def test_ids_that_are_not_text_do_not_lose_the_batch(
    broker: PrivateBroker, queue: str, requester: Requester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correlation id of foreign bytes cannot be encoded as it is."""
    model = write_scripted_model(tmp_path / "model", ["one"])
    with otlp_receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.endpoint)
        async with running_app(model, amqp_url=broker.url, queue=queue):
            foreign = await requester.send(correlation_id="caf\udce9")
            await requester.terminal(foreign)
        monkeypatch.delenv(ENDPOINT)
        tracing.start(model_id="", queue="", daemon_id="")
        (span,) = receiver.spans
    assert span.attributes["messaging.message.conversation_id"] == "caf\\udce9"


async def test_a_collector_that_never_answers_does_not_hold_the_process(
    broker: PrivateBroker, queue: str, requester: Requester, endless_model: Path
) -> None:
    """The last spans are worth two seconds, not the minute that the exporter is willing to wait."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        collector = {ENDPOINT: f"http://127.0.0.1:{mute.getsockname()[1]}", "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
        daemon = DaemonProcess(amqp_url=broker.url, queue=queue, model=endless_model, environment=collector)
        try:
            await daemon.ready()
            await requester.terminal(await requester.send(fields={"max_new_tokens": 1}))
            daemon.signal()
            assert await daemon.status(60) == 0
        finally:
            daemon.close()


def test_without_an_address_nothing_is_loaded_or_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing that nobody asked for must not cost a connection or an import."""
    monkeypatch.delenv(ENDPOINT, raising=False)
    monkeypatch.setitem(sys.modules, "daemon.otel", None)
    tracing.start(model_id="m", queue="q", daemon_id="d")
    assert type(tracing.current()) is tracing.Span


def test_an_address_without_the_extra_is_a_plain_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that silently go nowhere are found missing when they are needed."""
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "daemon.otel", None)
    monkeypatch.delattr("daemon.otel", raising=False)
    with pytest.raises(ConfigurationError, match=r"is not installed; install leveret\[otel\], or unset it"):
        tracing.start(model_id="m", queue="q", daemon_id="d")

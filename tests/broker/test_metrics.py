"""What `/metrics` tells of a daemon at work on a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from private_broker import PrivateBroker

from daemon import metrics
from daemon.app import App
from daemon.engine.types import Model
from daemon.errors import LeveretError
from daemon.jobs import StopReason
from tests.support.fake_engine import SlowModel
from tests.support.in_process import running_app
from tests.support.metrics import Scrape, scrape
from tests.support.requester import Requester
from tests.support.scripted_model import write_scripted_model
from tests.support.wait import wait_until

REQUESTS = 500
IN_TURN = 20
"""Requests sent before their answers are awaited."""


@pytest.fixture
async def app(broker: PrivateBroker, queue: str, tmp_path: Path) -> AsyncIterator[App]:
    """A daemon that answers five words."""
    model = write_scripted_model(tmp_path / "model", ["one", " two", " three", " four", " five"])
    async with running_app(model, amqp_url=broker.url, queue=queue) as running:
        yield running


async def idle(app: App) -> Scrape:
    """A scrape while nothing is in work, with the queues' lengths: on a busy machine the first may come without."""
    return await scrape_until(
        app,
        lambda seen: (
            seen.value("leveret_requests_in_flight") == 0
            and ("leveret_queue_messages", frozenset({("queue", "parked")})) in seen.samples
        ),
    )


async def scrape_until(app: App, holds: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until one `holds`."""
    async with asyncio.timeout(60):
        while not holds(seen := await scrape(app.health_port)):
            pass
    return seen


def distinct_request(number: int) -> tuple[dict[str, object], dict[str, object]]:
    """Body and envelope of a request like no other; four of five are wrong, each in words of its own."""
    faults: list[dict[str, object]] = [
        {"max_new_tokens": 2, "stream": number % 2 == 0},
        {f"field_{number}": number},
        {"model": f"model-{number}"},
        {"temperature": f"{number}"},
        {"max_new_tokens": 2000, "seed": number},
    ]
    body = {"messages": [{"role": "user", "content": f"question {number}"}], **faults[number % len(faults)]}
    return body, {
        "correlation_id": f"id-{number}",
        "message_id": f"m-{number}",
        "headers": {"traceparent": f"{number}"},
    }


async def test_500_distinct_requests_leave_the_number_of_series_constant(app: App, requester: Requester) -> None:
    """A label that takes its value from a request (an id, a model's name, an error's text) grows memory for ever."""
    before = await idle(app)
    for begin in range(0, REQUESTS, IN_TURN):
        asked = []
        for number in range(begin, begin + IN_TURN):
            body, envelope = distinct_request(number)
            asked.append(await requester.send(body, **envelope))
        for correlation_id in asked:
            await requester.terminal(correlation_id, 60)
    after = await idle(app)
    assert set(after.samples) == set(before.samples)
    counted = {code: after.increase(before, "leveret_requests_total", code=code) for code in metrics.CODES}
    assert {code: count for code, count in counted.items() if count} == {
        "ok": REQUESTS / 5,
        "invalid_request": REQUESTS / 5 * 2,
        "model_not_found": REQUESTS / 5,
        "context_length_exceeded": REQUESTS / 5,
    }


async def test_an_answer_is_counted_in_every_instrument_it_touches(app: App, requester: Requester) -> None:
    """A dashboard of instruments that nothing feeds shows a healthy zero."""
    before = await idle(app)
    asked = await requester.send(timestamp=1.0, fields={"timeout": 1})
    assert (await requester.terminal(asked)).code == "deadline_exceeded"
    asked = await requester.send()
    assert (await requester.terminal(asked)).text == "one two three four five"
    after = await idle(app)
    assert after.increase(before, "leveret_requests_total", code="deadline_exceeded") == 1
    assert after.increase(before, "leveret_queue_wait_seconds_count") == 1
    assert after.increase(before, "leveret_queue_wait_seconds_sum") > 1e9
    assert after.increase(before, "leveret_prefill_seconds_count") == 1
    assert after.increase(before, "leveret_time_to_first_token_seconds_count") == 1
    assert after.increase(before, "leveret_inter_token_seconds_count") == 4
    assert after.increase(before, "leveret_emitted_tokens_total", source="sampled") == 5
    assert after.increase(before, "leveret_tokens_total", kind="completion") == 6
    rate = after.value("leveret_decode_tokens_per_second")
    assert rate > 0
    labelled = await requester.send(fields={"structured_outputs": {"choice": ["a", "b"]}})
    assert (await requester.terminal(labelled)).code == "ok"
    assert (await idle(app)).value("leveret_decode_tokens_per_second") == rate, "of a label nothing is decoded"
    assert after.value("process_resident_memory_bytes") > 1e6
    assert after.increase(before, "process_cpu_seconds_total") > 0


async def test_queues_links_and_model_as_they_are(
    app: App, broker: PrivateBroker, queue: str, requester: Requester
) -> None:
    """What the alerts ask first: is it connected, registered and loaded, and what waits where?"""
    seen = await idle(app)
    assert seen.value("leveret_daemon_info", version="0.1.0", model="test/model") == 1
    assert [seen.value(f"leveret_{name}") for name in ("ready", "model_loaded", "consumer_registered")] == [1, 1, 1]
    assert [seen.value("leveret_broker_connected", link=link) for link in ("consume", "publish")] == [1, 1]
    assert [seen.value("leveret_queue_messages", queue=name) for name in ("requests", "dead", "parked")] == [0, 0, 0]
    losses = seen.value("leveret_broker_reconnects_total", link="consume")
    app.lifecycle.broker.consuming.drop("a test wants it so")
    await wait_until(lambda: not app.lifecycle.broker.registered, description="the link is down")
    await wait_until(lambda: app.lifecycle.broker.registered, description="the link is up")
    assert (await scrape(app.health_port)).value("leveret_broker_reconnects_total", link="consume") == losses + 1


async def test_what_is_stopped_parked_and_answered_late_is_counted_by_reason(
    broker: PrivateBroker, queue: str, requester: Requester, endless_model: Path
) -> None:
    """Cancelled, out of time and expired: the operator sees which it was."""

    def slow(model: Model) -> Model:
        return SlowModel(model, 0.01)

    async with running_app(endless_model, amqp_url=broker.url, queue=queue, wrap=slow) as app:
        before = await idle(app)
        cancelled = await requester.send(fields={"max_new_tokens": 2000, "stream": True})
        late = await requester.send(fields={"max_new_tokens": 2000, "timeout": 2})
        await requester.until_chunks(cancelled, 1)
        expired = await requester.send(expiration=0.001)
        await requester.cancel(cancelled)
        for asked, code in ((cancelled, "cancelled"), (late, "deadline_exceeded"), (expired, "expired")):
            assert (await requester.terminal(asked)).code == code
        parked = "leveret_dead_letters_total"
        after = await scrape_until(app, lambda seen: seen.increase(before, parked, reason="expired") == 1)
    assert after.increase(before, "leveret_generations_stopped_total", reason="cancelled") == 1
    assert after.increase(before, "leveret_generations_stopped_total", reason="deadline") == 1
    assert after.increase(before, "leveret_dead_letters_answered_total", reason="expired") == 1


def test_the_lists_of_label_values_are_whole() -> None:
    """A code or reason that is not listed would appear only once it happens, so its first rate is lost."""
    wire = {kind.code for kind in LeveretError.__subclasses__()}
    assert wire - {"expired", "delivery_limit_exceeded"} <= set(metrics.CODES)
    assert {reason.name.lower() for reason in StopReason} == set(metrics.STOP_REASONS)

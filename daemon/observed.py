"""The metrics that are read off the process and the broker at the moment of asking, as the health answers are."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon import __version__, metrics
from daemon.lifecycle import Lifecycle

DEPTH_SECONDS = 5.0
"""The broker is asked for the queues' lengths at most so often, and only while somebody scrapes."""
ASK_SECONDS = 0.1
"""How long the scrape that asks waits for the answer; one that comes later goes into the next scrape."""


class Observed(Collector):
    """Connections, consumer, queues and tables. `tables` tells how many entries each table of the worker has."""

    def __init__(self, lifecycle: Lifecycle, model_id: str, tables: Callable[[], Mapping[str, int]]) -> None:
        self._lifecycle, self._model_id, self._tables = lifecycle, model_id, tables
        self._depths: Mapping[str, int] = {}
        self._asking: asyncio.Task[None] | None = None
        self._ask_again_at = 0.0

    async def exposition(self) -> bytes:
        """All metrics, those of `metrics` included, in Prometheus' text format."""
        await self._refresh()
        return generate_latest(metrics.REGISTRY) + generate_latest(self)

    async def close(self) -> None:
        """Ask no longer; idempotent."""
        if self._asking is not None:
            self._asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._asking

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them."""
        broker, thread = self._lifecycle.broker, self._lifecycle.thread
        links = {"consume": broker.consuming, "publish": broker.publishing}
        yield InfoMetricFamily("leveret_daemon", "What runs.", {"version": __version__, "model": self._model_id})
        yield GaugeMetricFamily("leveret_ready", "1 while requests can be served.", not self._lifecycle.not_ready())
        yield GaugeMetricFamily("leveret_model_loaded", "1 while the model is loaded.", thread.loaded)
        yield GaugeMetricFamily("leveret_consumer_registered", "1 while the broker has it.", broker.registered)
        connected = GaugeMetricFamily("leveret_broker_connected", "1 while the link is up.", labels=["link"])
        yield _filled(connected, {name: link.up.is_set() for name, link in links.items()})
        reconnects = CounterMetricFamily("leveret_broker_reconnects", "Reconnects after a loss.", labels=["link"])
        yield _filled(reconnects, {name: link.losses for name, link in links.items()})
        tables = GaugeMetricFamily("leveret_remembered", "Entries of the worker's tables.", labels=["table"])
        yield _filled(tables, self._tables())
        depths = GaugeMetricFamily("leveret_queue_messages", "Messages that wait in the broker.", labels=["queue"])
        yield _filled(depths, self._depths)

    async def _refresh(self) -> None:
        now = time.monotonic()
        if self._asking is None or (self._asking.done() and now >= self._ask_again_at):
            self._ask_again_at = now + DEPTH_SECONDS
            self._asking = asyncio.create_task(self._ask(), name="queue lengths")
            await asyncio.wait({self._asking}, timeout=ASK_SECONDS)

    async def _ask(self) -> None:
        self._depths = await self._lifecycle.broker.depths()


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    """The family with one sample for each value of its only label."""
    for label, value in values.items():
        family.add_metric([label], value)
    return family

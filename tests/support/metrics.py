"""What `/metrics` exposes, for tests."""

import asyncio
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]
"""Name of a sample and its labels."""


@dataclass(frozen=True)
class Scrape:
    """All samples of one scrape."""

    samples: Mapping[Series, float]

    def value(self, name: str, **labels: str) -> float:
        """The one sample with this name and exactly these labels. Raises KeyError without it."""
        return self.samples[name, frozenset(labels.items())]

    def increase(self, earlier: "Scrape", name: str, **labels: str) -> float:
        """How much a sample has grown since an earlier scrape."""
        return self.value(name, **labels) - earlier.value(name, **labels)


def parse(text: str) -> Scrape:
    """Read the text format. Raises where a series occurs twice or a line is malformed."""
    samples: dict[Series, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = sample.name, frozenset(sample.labels.items())
            assert series not in samples, f"twice: {series}"
            samples[series] = sample.value
    return Scrape(samples)


async def scrape(port: int) -> Scrape:
    """`GET /metrics` of the daemon whose health port this is."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            body: bytes = answer.read()
        return body.decode()

    return parse(await asyncio.to_thread(get))

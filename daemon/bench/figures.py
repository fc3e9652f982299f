"""What a measurement gives, and how two are compared."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

BASELINE = "transformers"
"""The kind that stands for plain transformers: `generate` in float32."""


@dataclass(frozen=True)
class Figures:
    """One kind of weights on this machine. Rates are tokens a second, the median of several runs.

    `decode` was measured behind a context of about 100 tokens, `decode_long` behind the long one. The first token is
    that of a prompt of the long size: cold, and with all but its last part in the prompt cache (None where there is
    no cache). Memory is the process's resident memory, mapped weights included: `steady` at the end, `peak` at most.
    """

    weights: str
    threads: int
    short_tokens: int
    long_tokens: int
    startup_seconds: float
    prefill_short: float
    prefill_long: float
    decode: float
    decode_long: float
    first_token_cold_seconds: float
    first_token_cached_seconds: float | None
    steady_bytes: int
    peak_bytes: int


def report(model_id: str, figures: list[Figures]) -> dict[str, Any]:
    """All figures as JSON data, with ratios to the baseline where that was measured."""
    baseline = next((one for one in figures if one.weights == BASELINE), None)
    ratios = {one.weights: _ratios(one, baseline) for one in figures if baseline and one is not baseline}
    return {"model": model_id, "figures": [asdict(one) for one in figures], "ratios_to_baseline": ratios or None}


def _ratios(one: Figures, baseline: Figures) -> dict[str, float]:
    """How many times faster, and how many times less memory."""
    return {
        "prefill_short": round(one.prefill_short / baseline.prefill_short, 2),
        "prefill_long": round(one.prefill_long / baseline.prefill_long, 2),
        "decode": round(one.decode / baseline.decode, 2),
        "decode_long": round(one.decode_long / baseline.decode_long, 2),
        "steady_bytes": round(baseline.steady_bytes / one.steady_bytes, 2),
    }


def table(figures: list[Figures]) -> list[str]:
    """The figures as lines of text, a column for each kind."""
    cells: list[tuple[str, Callable[[Figures], str]]] = [
        ("", lambda one: one.weights),
        ("ready after", lambda one: f"{one.startup_seconds:.1f} s"),
        ("prefill, short prompt", lambda one: f"{one.prefill_short:.0f} tokens/s"),
        ("prefill, long prompt", lambda one: f"{one.prefill_long:.0f} tokens/s"),
        ("decode, short context", lambda one: f"{one.decode:.1f} tokens/s"),
        ("decode, long context", lambda one: f"{one.decode_long:.1f} tokens/s"),
        ("first token, cold", lambda one: f"{one.first_token_cold_seconds:.2f} s"),
        ("first token, cached", lambda one: _seconds(one.first_token_cached_seconds)),
        ("memory, steady", lambda one: f"{one.steady_bytes >> 20} MiB"),
        ("memory, peak", lambda one: f"{one.peak_bytes >> 20} MiB"),
    ]
    rows = [(label, *(value(one) for one in figures)) for label, value in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f} s"


def middle(values: list[float]) -> float:
    """The median."""
    return float(median(values))

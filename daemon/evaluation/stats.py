"""The statistics of a report, small enough to be checked by hand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z_95 = 1.959963984540054
"""The normal distribution's 97.5 % point: intervals hold 95 %."""
BOOTSTRAP_SAMPLES = 10_000
_AT_ONCE = 100
"""So many samples are drawn together: quick, and little memory for many cases."""
_SEED = 20240501
"""The resampling is the same in every run, so that a report can be made again to the digit."""


@dataclass(frozen=True)
class Rate:
    """`hits` of `total` with a 95 % interval; all three numbers are None where the total is 0."""

    hits: int
    total: int
    rate: float | None
    low: float | None
    high: float | None


def rate(hits: int, total: int) -> Rate:
    """A share with Wilson's score interval, which holds for few cases and near 0 and 1 too.

    Source: E. B. Wilson, Probable inference, JASA 22 (1927) 209-212.
    """
    if total == 0:
        return Rate(hits, total, None, None, None)
    share = hits / total
    spread = Z_95 * math.sqrt(share * (1 - share) / total + Z_95**2 / (4 * total**2))
    middle, scale = share + Z_95**2 / (2 * total), 1 + Z_95**2 / total
    low = 0.0 if hits == 0 else (middle - spread) / scale
    high = 1.0 if hits == total else (middle + spread) / scale
    return Rate(hits, total, share, low, high)


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`, None where there is no whole."""
    return part / whole if whole else None


def f1(precision: float | None, recall: float | None) -> float | None:
    """The harmonic mean; 0 where one of the two is 0 or undefined, None where both are undefined."""
    if precision is None and recall is None:
        return None
    both = (precision or 0.0) + (recall or 0.0)
    return 2 * (precision or 0.0) * (recall or 0.0) / both if both else 0.0


@dataclass(frozen=True)
class Bin:
    """Answers with a probability in (`low`, `high`]: how many, their mean probability, the share that is right."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> tuple[Bin, ...]:
    """Group answers by their probability into bins of equal width; a probability of 0 belongs to the first."""
    places = [min(bins - 1, max(0, math.ceil(confidence * bins) - 1)) for confidence in confidences]
    return tuple(_bin(place, bins, confidences, right, places) for place in range(bins))


def _bin(place: int, bins: int, confidences: Sequence[float], right: Sequence[bool], places: Sequence[int]) -> Bin:
    members = [index for index, at in enumerate(places) if at == place]
    confidence = ratio(sum(confidences[index] for index in members), len(members))
    accuracy = ratio(sum(right[index] for index in members), len(members))
    return Bin(place / bins, (place + 1) / bins, len(members), confidence, accuracy)


def expected_calibration_error(bins: Sequence[Bin]) -> float | None:
    """Mean distance between probability and accuracy over the bins, weighted by their counts; None without answers.

    Source: C. Guo et al., On calibration of modern neural networks, ICML 2017, equation 3.
    """
    distance = sum(
        entry.count * abs(entry.accuracy - entry.confidence)
        for entry in bins
        if entry.accuracy is not None and entry.confidence is not None
    )
    return ratio(distance, sum(entry.count for entry in bins))


@dataclass(frozen=True)
class Threshold:
    """What happens when only answers with at least this probability are used."""

    threshold: float
    coverage: Rate
    accuracy: Rate


def threshold_row(threshold: float, confidences: Sequence[float], right: Sequence[bool]) -> Threshold:
    """Coverage (the share of cases that is answered) and the accuracy among those."""
    kept = [hit for confidence, hit in zip(confidences, right, strict=True) if confidence >= threshold]
    return Threshold(threshold, rate(len(kept), len(confidences)), rate(sum(kept), len(kept)))


@dataclass(frozen=True)
class Spread:
    """A distribution in the unit of its numbers; all None where there are none."""

    count: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    most: float | None


def spread(values: Sequence[float]) -> Spread:
    """Mean and percentiles, interpolated linearly between neighbours."""
    if not values:
        return Spread(0, None, None, None, None, None, None)
    p50, p90, p95, p99, most = (float(value) for value in np.percentile(values, [50, 90, 95, 99, 100]))
    return Spread(len(values), float(np.mean(values)), p50, p90, p95, p99, most)


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided p of the hypothesis that A and B are equally often right, from the cases where only one of them is.

    Source: Q. McNemar, Psychometrika 12 (1947) 153-157, in its exact binomial form.
    """
    total, fewer = only_a + only_b, min(only_a, only_b)
    term = tail = 1
    for count in range(fewer):
        term = term * (total - count) // (count + 1)  # the next binomial coefficient
        tail += term
    return min(1.0, 2 * tail / (1 << total))


@dataclass(frozen=True)
class Difference:
    """The mean of B minus the mean of A over the same cases, with a 95 % interval."""

    value: float
    low: float
    high: float


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """The difference with a percentile bootstrap interval that resamples whole cases; None without cases.

    Source: B. Efron and R. Tibshirani, An introduction to the bootstrap, 1993, chapter 13.
    """
    if not a:
        return None
    differences = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    count = len(differences)
    draws = (random.integers(0, count, (_AT_ONCE, count)) for _ in range(BOOTSTRAP_SAMPLES // _AT_ONCE))
    means = np.concatenate([differences[draw].mean(axis=1) for draw in draws])
    low, high = np.percentile(means, [2.5, 97.5])
    return Difference(float(differences.mean()), float(low), float(high))

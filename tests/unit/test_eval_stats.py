"""The statistics of `leveret eval` against values worked out by hand or taken from the literature."""

import pytest

from daemon.evaluation.stats import (
    Spread,
    expected_calibration_error,
    f1,
    mcnemar_exact,
    paired_difference,
    rate,
    reliability,
    spread,
    threshold_row,
)


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_interval(hits: int, total: int, low: float, high: float) -> None:
    """Guards the interval: at the edges, and 81 of 263, Newcombe's worked example (Statistics in Medicine 17, 1998)."""
    value = rate(hits, total)
    assert (value.low, value.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_a_rate_of_nothing() -> None:
    """Guards against a division by zero, and a 0 % that nobody measured."""
    assert rate(0, 0).rate is None


def test_f1_values() -> None:
    """Guards the harmonic mean and its edges: a label never answered has F1 0, one that does not occur has none."""
    assert f1(0.5, 1.0) == pytest.approx(2 / 3)
    assert f1(None, 0.0) == 0.0
    assert f1(None, None) is None


def test_reliability_bins_and_their_error() -> None:
    """Guards the bins' edges (0.5 belongs to 0.4-0.5, 0 to the first) and the weights of the calibration error."""
    bins = reliability([0.0, 0.5, 0.9, 0.9, 1.0], [False, True, True, False, True], bins=10)
    assert [entry.count for entry in bins] == [1, 0, 0, 0, 1, 0, 0, 0, 2, 1]
    assert (bins[8].confidence, bins[8].accuracy) == (pytest.approx(0.9), 0.5)
    # (1 * |0 - 0| + 1 * |1 - 0.5| + 2 * |0.5 - 0.9| + 1 * |1 - 1|) / 5
    assert expected_calibration_error(bins) == pytest.approx(0.26)
    assert expected_calibration_error(reliability([], [])) is None


def test_thresholds() -> None:
    """Guards what is answered at a threshold (the threshold itself included), and an empty rest."""
    row = threshold_row(0.8, [0.7, 0.8, 0.9, 0.95], [False, False, True, True])
    assert (row.coverage.rate, row.accuracy.rate) == (0.75, pytest.approx(2 / 3))
    assert threshold_row(0.99, [0.5], [True]).accuracy.rate is None


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"), [(1, 5, 14 / 64), (5, 1, 14 / 64), (0, 6, 2 / 64), (4, 4, 1.0), (0, 0, 1.0)]
)
def test_mcnemar(only_a: int, only_b: int, p: float) -> None:
    """Guards the exact two-sided p: 2 * (C(6,0) + C(6,1)) / 2^6 for one against five; never above 1."""
    assert mcnemar_exact(only_a, only_b) == pytest.approx(p)


def test_mcnemar_with_many_cases() -> None:
    """Guards against an overflow of floating point numbers."""
    assert mcnemar_exact(2000, 2200) == pytest.approx(0.00213, abs=1e-4)


def test_paired_difference() -> None:
    """Guards the pairing: a constant gain has no spread at all, whatever the cases are; the sign is B minus A."""
    value = paired_difference([0.0, 0.5, 1.0], [0.25, 0.75, 1.25])
    assert value is not None
    assert (value.value, value.low, value.high) == (pytest.approx(0.25), pytest.approx(0.25), pytest.approx(0.25))
    assert paired_difference([], []) is None


def test_bootstrap_interval_of_a_share() -> None:
    """Guards the interval: for 50 gains in 100 cases it is near the normal one, 0.5 ± 1.96 * 0.05; and it repeats."""
    a, b = [0.0] * 100, [1.0, 0.0] * 50
    value = paired_difference(a, b)
    assert value is not None
    assert (value.low, value.high) == (pytest.approx(0.402, abs=0.011), pytest.approx(0.598, abs=0.011))
    assert paired_difference(a, b) == value


def test_percentiles() -> None:
    """Guards the interpolation between neighbours, and a run without answers."""
    value = spread([4.0, 1.0, 3.0, 2.0])
    assert (value.count, value.mean, value.p50, value.p90, value.most) == (4, 2.5, 2.5, pytest.approx(3.7), 4.0)
    assert spread([]) == Spread(0, None, None, None, None, None, None)

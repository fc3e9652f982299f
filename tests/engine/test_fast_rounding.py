"""Activations that meet int4 weights: rounded to 16 bits, every 32 of them with a scale of their own."""

import numpy as np
import numpy.typing as npt
import pytest

from daemon.engine.fast_kernels import round_group
from daemon.engine.fast_records import GROUP_TERMS, ROUNDED_BYTES, STEP_OFFSET

Floats = npt.NDArray[np.float32]


def _rounded(values: Floats) -> tuple[npt.NDArray[np.int16], np.float32, np.float32]:
    """The integers of a group, what one is worth, and what all together are worth."""
    record = np.zeros(ROUNDED_BYTES, np.uint8)
    round_group(values.ctypes.data, record.ctypes.data)
    step, worth = record[STEP_OFFSET:].view(np.float32)
    return record[:STEP_OFFSET].view(np.int16), step, worth


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_a_value_moves_by_half_a_step_at_most(size: float) -> None:
    """The largest value, positive or negative, must not overflow, and the sum must be that of what is multiplied."""
    values = (np.random.default_rng(2).standard_normal(GROUP_TERMS) * size).astype(np.float32)
    values[7] = -5 * size
    integers, step, worth = _rounded(values)
    assert integers[7] == -32767
    assert np.abs(integers * np.float64(step) - values).max() <= step * 0.501
    assert worth == pytest.approx(integers.sum(dtype=np.int64) * np.float64(step), rel=1e-6)


@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-44])
def test_what_is_next_to_nothing_is_zero(size: float) -> None:
    """Dividing by it would give infinities, and NaN for every token that follows."""
    integers, _, worth = _rounded(np.full(GROUP_TERMS, size, np.float32))
    assert (integers == 0).all()
    assert worth == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_none(value: float) -> None:
    """An overflow must show in the logits, as it does in float32, and not become a plausible number."""
    values = np.ones(GROUP_TERMS, np.float32)
    values[3] = value
    _, step, worth = _rounded(values)
    assert not np.isfinite(step)
    assert not np.isfinite(worth)

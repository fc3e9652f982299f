"""int4 weights in numbers: 16 levels between a least and a largest value, for every 32 columns of a row.

Levels that need not lie around zero, as in llama.cpp's Q4_1 (https://github.com/ggml-org/llama.cpp), lose less than
symmetric ones, and cost the kernel nothing. `fast_records.GROUP_BYTES` says how a group is arranged in memory.
"""

import numpy as np
import numpy.typing as npt

from daemon.engine.fast_checkpoint import Floats
from daemon.engine.fast_config import LANES
from daemon.engine.fast_records import GROUP_TERMS

_LEVELS = 15
_STRETCHES = (1.0, 0.94, 0.88, 0.82)
"""Parts of a group's range that the levels are tried on: what lies beyond is cut, what is inside gets finer levels."""

_WORDS = (4, 2, 2, 2)
"""A row's 32 nibbles: words, bytes of a half word, nibbles of a byte, half words of a word."""

_BLOCK = (2, LANES)
_HEADER_BYTES = 2 * np.prod(_BLOCK)

Bytes = npt.NDArray[np.uint8]


def quantize_int4(rows: Floats) -> Bytes:
    """Quantise whole blocks of rows, `[16 * blocks, K]`, K a multiple of 32, to groups `[blocks, K / 32, 320]`."""
    groups = rows.reshape(-1, GROUP_TERMS)
    scale, least = _best_levels(groups)
    nibbles = _nibbles(groups, scale, least).astype(np.uint8)
    blocks = (-1, LANES, rows.shape[1] // GROUP_TERMS)
    factors = np.stack([_upper_half(scale), _upper_half(least)]).reshape(2, *blocks).transpose(1, 3, 0, 2)
    pairs = nibbles.reshape(*blocks, *_WORDS).transpose(0, 2, 3, 1, 6, 4, 5)
    packed = pairs[..., 0] | (pairs[..., 1] << 4)
    shape = (*factors.shape[:2], -1)
    header = np.ascontiguousarray(factors).view(np.uint8).reshape(shape)
    return np.concatenate([header, packed.reshape(shape)], axis=2)


def dequantize_int4(weight: Bytes) -> Floats:
    """The weights that the kernels compute with, as plain rows `[16 * blocks, K]`."""
    blocks, groups, _ = weight.shape
    halves = np.ascontiguousarray(weight[..., :_HEADER_BYTES]).view(np.uint16).reshape(blocks, groups, *_BLOCK)
    scale, least = (_float_of(halves[:, :, i]).transpose(0, 2, 1)[..., None] for i in range(2))
    packed = weight[..., _HEADER_BYTES:].reshape(blocks, groups, 4, LANES, 2, 2)
    pairs = np.stack([packed & 15, packed >> 4], axis=6)
    nibbles = pairs.transpose(0, 3, 1, 2, 5, 6, 4).reshape(blocks, LANES, groups, GROUP_TERMS)
    rows: Floats = nibbles * scale + least
    return rows.reshape(blocks * LANES, groups * GROUP_TERMS)


def _best_levels(groups: Floats) -> tuple[Floats, Floats]:
    """Scale and least value of each group, of those tried the ones with the smallest sum of squared errors."""
    smallest, largest = groups.min(axis=1), groups.max(axis=1)
    best = np.full(len(groups), np.inf, np.float32)
    scale, least = np.zeros_like(best), np.zeros_like(best)
    for stretch in _STRETCHES:
        cut = (largest - smallest) * np.float32((1 - stretch) / 2)
        levels = _fitted(groups, (largest - smallest - 2 * cut) / np.float32(_LEVELS), smallest + cut)
        errors = _errors(groups, *levels)
        better = errors < best
        best[better] = errors[better]
        scale[better], least[better] = levels[0][better], levels[1][better]
    return scale, least


def _fitted(groups: Floats, scale: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Levels of the least squares for the nibbles that the given levels make, as bfloat16 holds them."""
    nibbles = _nibbles(groups, scale, least)
    mean, weight_mean = nibbles.mean(axis=1), groups.mean(axis=1)
    spread = np.square(nibbles).mean(axis=1) - mean * mean
    shared = (nibbles * groups).mean(axis=1) - mean * weight_mean
    flat = spread < np.float32(1e-6)
    slope = np.where(flat, scale, shared / np.where(flat, 1, spread))
    return _rounded(slope), _rounded(weight_mean - slope * mean)


def _nibbles(groups: Floats, scale: Floats, least: Floats) -> Floats:
    inverse = 1 / np.where(scale == 0, np.float32(1), scale)
    return np.clip(np.rint((groups - least[:, None]) * inverse[:, None]), 0, _LEVELS)


def _errors(groups: Floats, scale: Floats, least: Floats) -> Floats:
    restored = _nibbles(groups, scale, least) * scale[:, None] + least[:, None]
    errors: Floats = np.square(restored - groups).sum(axis=1)
    return errors


def _rounded(values: Floats) -> Floats:
    return _float_of(_upper_half(values))


def _upper_half(values: Floats) -> npt.NDArray[np.uint16]:
    """The nearest bfloat16, as the upper half of the float32."""
    return ((values.astype(np.float32).view(np.uint32) + np.uint32(0x8000)) >> 16).astype(np.uint16)


def _float_of(halves: npt.NDArray[np.uint16]) -> Floats:
    return (halves.astype(np.uint32) << 16).view(np.float32)

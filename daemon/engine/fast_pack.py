"""Quantises rows of weights and arranges them for the kernels.

A block of 16 rows stands side by side: a row is a vector lane, so no sum crosses lanes.

    int8: `weight` int8 `[blocks, K, 16]`, `scale` float32 `[blocks, 16]`; a weight is `weight * scale`, and the
    largest of a row is 127 or -127
    int4: `weight` uint8 `[blocks, K / 32, 320]`, scales included (`fast_int4`)
"""

from collections.abc import Iterator, Sequence

import numpy as np

from daemon.engine.fast_checkpoint import Checkpoint, Floats
from daemon.engine.fast_config import LANES
from daemon.engine.fast_file import Array, TensorSpec
from daemon.engine.fast_int4 import quantize_int4
from daemon.engine.fast_layout import Matrix, Vector, blocks_of
from daemon.engine.fast_records import GROUP_BYTES, GROUP_TERMS
from daemon.errors import ConfigurationError

_CHUNK_ITEMS = 4_000_000
"""Weights quantised at a time; bounds the memory that quantising takes (about 50 MB)."""


def specs_of(part: Matrix | Vector, checkpoint: Checkpoint) -> list[TensorSpec]:
    """The file's tensors that a part becomes."""
    if isinstance(part, Vector):
        return [TensorSpec(part.name, "F32", (part.size,))]
    if part.kind == "int4":
        groups = part.columns // GROUP_TERMS
        specs = [TensorSpec(f"{part.name}.weight", "U8", (part.blocks, groups, GROUP_BYTES))]
    else:
        specs = [
            TensorSpec(f"{part.name}.weight", "I8", (part.blocks, part.columns, LANES)),
            TensorSpec(f"{part.name}.scale", "F32", (part.blocks, LANES)),
        ]
    if _has_bias(part, checkpoint):
        specs.append(TensorSpec(f"{part.name}.bias", "F32", (part.blocks, LANES)))
    return specs


def pack(part: Matrix | Vector, checkpoint: Checkpoint) -> Iterator[tuple[str, Array]]:
    """Names and data of a part's tensors, in the order of `specs_of`, the weights in several pieces.

    Raises ConfigurationError where a weight is not a finite number.
    """
    if isinstance(part, Vector):
        yield part.name, checkpoint.whole(part.source)
        return
    scales = []
    for rows in _row_chunks(part, checkpoint):
        if not np.isfinite(rows).all():
            raise ConfigurationError(f"a weight of {part.sources[0]} is not a finite number")
        if part.kind == "int4":
            yield f"{part.name}.weight", quantize_int4(rows)
        else:
            weight, scale = quantize_int8(rows)
            scales.append(scale)
            yield f"{part.name}.weight", weight
    if scales:
        yield f"{part.name}.scale", np.concatenate(scales)
    if _has_bias(part, checkpoint):
        yield f"{part.name}.bias", _bias(part, checkpoint)


def quantize_int8(rows: Floats) -> tuple[Array, Floats]:
    """Quantise whole blocks of rows, shape `[16 * blocks, K]`; see the module for what comes out."""
    scale = np.abs(rows).max(axis=1) / np.float32(127)
    scale[scale == 0] = 1
    integers = np.rint(rows / scale[:, None]).astype(np.int8)
    blocks = integers.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(blocks), scale.reshape(-1, LANES)


def dequantize_int8(weight: Array, scale: Floats) -> Floats:
    """The weights that the kernels compute with, as plain rows `[16 * blocks, K]`."""
    rows: Floats = (weight.astype(np.float32) * scale[:, None, :]).transpose(0, 2, 1)
    return rows.reshape(-1, weight.shape[1])


def interleave(parts: Sequence[Array]) -> Array:
    """Alternate the blocks of arrays of the shape `[16 * blocks, ...]`, all of one shape."""
    blocks = np.stack([part.reshape(-1, LANES, *part.shape[1:]) for part in parts], axis=1)
    return blocks.reshape(-1, *parts[0].shape[1:])


def _row_chunks(matrix: Matrix, checkpoint: Checkpoint) -> Iterator[Floats]:
    """The matrix's rows from top to bottom, arranged and padded, some whole blocks at a time."""
    step = max(_CHUNK_ITEMS // matrix.columns // LANES, 1) * LANES
    if matrix.interleaved:
        for begin in range(0, matrix.rows[0], step):
            yield interleave([_padded_rows(checkpoint, source, begin, step) for source in matrix.sources])
        return
    for source, rows in zip(matrix.sources, matrix.rows, strict=True):
        for begin in range(0, rows, step):
            yield _padded_rows(checkpoint, source, begin, step)


def _padded_rows(checkpoint: Checkpoint, source: str, begin: int, count: int) -> Floats:
    name = f"{source}.weight"
    return _pad(checkpoint.rows(name, begin, min(begin + count, checkpoint.shape(name)[0])))


def _pad(rows: Floats) -> Floats:
    """Zero rows up to whole blocks."""
    missing = blocks_of(len(rows)) * LANES - len(rows)
    return np.pad(rows, ((0, missing), *((0, 0),) * (rows.ndim - 1))) if missing else rows


def _has_bias(matrix: Matrix, checkpoint: Checkpoint) -> bool:
    return any(f"{source}.bias" in checkpoint for source in matrix.sources)


def _bias(matrix: Matrix, checkpoint: Checkpoint) -> Floats:
    """The bias of all rows; a part without one gets zeros."""
    parts = []
    for source, rows in zip(matrix.sources, matrix.rows, strict=True):
        name = f"{source}.bias"
        values = checkpoint.whole(name) if name in checkpoint else np.zeros(rows, np.float32)
        if len(values) != rows:
            raise ConfigurationError(f"{name} has {len(values)} values, expected {rows}")
        parts.append(_pad(values))
    return interleave(parts) if matrix.interleaved else np.concatenate(parts)

"""What the compiled code works on: named groups of arrays, and the constants that its parts share."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from daemon.engine.fast_checkpoint import Floats
from daemon.engine.fast_team import Control

Integers = npt.NDArray[np.int64]

PAGE_TOKENS = 64
"""Tokens whose keys and values share one page of memory; a multiple of 16."""

PANEL_TERMS = 512
"""Columns of a weight block that are converted to float32 at a time: 32 KB, which stays in the nearest caches."""

QKV, OUT, GATE_UP, DOWN = 0, 1, 2, 3
MATRICES_PER_LAYER = 4
"""A layer's matrices in `Weights.matrices`; behind the last layer's follow the embedding and the head."""

MATRIX = np.dtype([("address", np.int64), ("blocks", np.int64), ("columns", np.int64), ("first_row", np.int64)])
"""A quantised matrix: address of its weights, blocks of 16 rows, columns, and where its scales and biases begin."""

SEGMENT = np.dtype([("first_row", np.int64), ("rows", np.int64), ("start", np.int64), ("table", np.int64)])
"""New tokens that continue one sequence: their rows, the position of the first, where their pages' addresses begin."""


class Shape(NamedTuple):
    """The model's sizes, as compiled code needs them."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    epsilon: np.float32
    query_scale: np.float32
    head_norms: bool


class Weights(NamedTuple):
    """The model's numbers. `scales` and `biases` hold those of all matrices' rows, one matrix after the other.

    `norms` has two rows for each layer (attention, MLP) and the final one; `head_norms` two for each layer (query,
    key), all ones where the model has none. `cosines` and `sines`: `[context, head_dim // 2]`.
    """

    matrices: npt.NDArray[Any]
    scales: Floats
    biases: Floats
    norms: Floats
    head_norms: Floats
    cosines: Floats
    sines: Floats


class Job(NamedTuple):
    """One call: the tokens of all segments (`rows` of them), and which rows' logits are wanted.

    `counts` holds rows, segments, first wanted row, wanted rows, and the address of the logits. For each row: its
    token, its position, and the address of the page that its keys and values go to. `table` holds pages' addresses.
    """

    counts: Integers
    tokens: Integers
    positions: Integers
    pages: Integers
    segments: npt.NDArray[Any]
    table: Integers


ROWS, SEGMENTS, FIRST_WANTED, WANTED, LOGITS = range(5)


class Scratch(NamedTuple):
    """Room for the values between the phases (first axis: row), and for each member of the team (first axis: member).

    `query` is `[kv head, row, head in its group, head_dim]`, so that heads sharing keys lie together.
    """

    hidden: Floats
    normed: Floats
    qkv: Floats
    query: Floats
    mixed: Floats
    gated: Floats
    products: Floats
    panel: Floats
    scores: Floats
    values: Floats


class Engine(NamedTuple):
    """Everything that a step of the compiled code is given."""

    control: Control
    shape: Shape
    weights: Weights
    job: Job
    scratch: Scratch

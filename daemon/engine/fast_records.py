"""What the compiled code works on: records of addresses and sizes, laid out once for Python and for compiled code.

Compiled code gets the address of one `ENGINE` record; a step changes only what its job part says. Addresses are in
bytes; all arrays lie row by row (C order).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

PAGE_TOKENS = 64
"""Tokens whose keys and values share one page of memory; a multiple of 16."""

PANEL_TERMS = 1024
"""Columns of a weight block that are converted to float32 at a time: 64 KB, which stays in the second cache."""

GROUP_TERMS = 32
"""Columns of an int4 matrix that share a scale and a least value in a row."""

GROUP_BYTES = 320
"""A group of 16 int4 rows: their scales, then their least values, bfloat16, then four words a row, uint32 `[4, 16]`.
Nibble s of a half word p (0 the lower) of word t holds column `8 t + 2 s + p`. A weight is `nibble * scale + least`."""

ROUNDED_BYTES = 72
"""A group of an activation row that is multiplied with int4 weights: int16 `[32]`, at STEP_OFFSET what one is worth and
what all together are worth, float32."""
STEP_OFFSET = 64

INT8, INT4 = 0, 1
"""Kinds of a matrix."""

QKV, OUT, GATE_UP, DOWN = 0, 1, 2, 3
MATRICES_PER_LAYER = 4
"""A layer's matrices in `ENGINE.matrices`; behind the last layer's follow the embedding and the head."""

MATRIX = np.dtype([(name, np.int64) for name in ("address", "blocks", "columns", "kind", "first_row")])
"""A quantised matrix: its weights, blocks of 16 rows, columns, INT8 or INT4, where its scales and biases begin."""

SEGMENT = np.dtype([(name, np.int64) for name in ("first_row", "rows", "start")])
"""New tokens that continue one sequence: their rows, the first one's position."""

_SHAPE = ("hidden", "inner", "layers", "heads", "kv_heads", "head_dim", "vocab_size", "has_head_norms")
_WEIGHTS = ("matrices", "scales", "biases", "norms", "head_norms", "cosines", "sines")
_JOB = ("rows", "segment_count", "longest_segment", "first_slot", "first_wanted", "wanted", "logits")
_JOB_ARRAYS = ("tokens", "positions", "pages", "segments")
_SCRATCH = (
    "states",
    "normed",
    "qkv",
    "query",
    "mixed",
    "gated",
    "rounded",
    "products",
    "panels",
    "scores",
    "totals",
    "mixes",
)

ENGINE = np.dtype(
    [
        *((name, np.int64) for name in ("control", "members", "row_limit", "seen_limit", *_SHAPE)),
        ("epsilon", np.float64),
        ("query_scale", np.float64),
        *((name, np.int64) for name in (*_WEIGHTS, *_JOB, *_JOB_ARRAYS, *_SCRATCH)),
    ]
)
"""Everything that a step needs.

Sizes: `row_limit` rows of scratch, `seen_limit` scores a query may have, and those of the model.
Weights: `matrices` (MATRIX), the `scales` and `biases` of all their rows one after the other, `norms` (two rows for
each layer, attention and MLP, then the final one), `head_norms` (two for each layer, query and key), and the rotary
`cosines` and `sines`, `[context, head_dim / 2]`.
Job: how many rows (new tokens) there are, in how many segments, the longest one's rows; the slot that the first row's
keys and values go to, the other rows' follow; the first row whose logits are wanted, how many, and where they go,
`[wanted, vocab_size]`; for each row its token and its position; the addresses of the `pages`, which hold the slots one
after the other; and the `segments` (SEGMENT). A token's slot is its position, but for branches: all of them begin at
the same position, and share the slots from there.
Scratch by row: `states` (the residual stream), `normed`, `qkv`, `query` (`[kv head, row, head in its group, head_dim]`,
so that heads sharing keys lie together), `mixed` (attention's result), `gated`, `rounded` (what an int4 matrix reads
instead of one of them: a row's groups one after the other, as many as the matrix has). Scratch by member of the team:
`products` `[2, row_limit, 16]`, `panels` `[PANEL_TERMS, 16]`, `scores` `[6, seen_limit]`, `totals` `[6]`,
`mixes` `[6, head_dim]`.
"""

Records = npt.NDArray[Any]

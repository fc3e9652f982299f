"""What the compiled code works on: records of addresses and sizes, laid out once for Python and for compiled code.

Compiled code gets the address of one `ENGINE` record; a step changes only what its job part says. Addresses are in
bytes; all arrays lie row by row (C order).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

PAGE_TOKENS = 64
"""Tokens whose keys and values share one page of memory; a multiple of 16."""

PANEL_TERMS = 512
"""Columns of a weight block that are converted to float32 at a time: 32 KB, which stays in the nearest caches."""

QKV, OUT, GATE_UP, DOWN = 0, 1, 2, 3
MATRICES_PER_LAYER = 4
"""A layer's matrices in `ENGINE.matrices`; behind the last layer's follow the embedding and the head."""

MATRIX = np.dtype([("address", np.int64), ("blocks", np.int64), ("columns", np.int64), ("first_row", np.int64)])
"""A quantised matrix: its weights, its blocks of 16 rows, its columns, and where its scales and biases begin."""

SEGMENT = np.dtype([("first_row", np.int64), ("rows", np.int64), ("start", np.int64), ("table", np.int64)])
"""New tokens that continue one sequence: their rows, the first one's position, the array of its pages' addresses."""

_SHAPE = ("hidden", "inner", "layers", "heads", "kv_heads", "head_dim", "vocab_size", "has_head_norms")
_WEIGHTS = ("matrices", "scales", "biases", "norms", "head_norms", "cosines", "sines")
_JOB = ("rows", "segment_count", "longest_segment", "first_wanted", "wanted", "logits")
_JOB_ARRAYS = ("tokens", "positions", "pages", "segments")
_SCRATCH = ("states", "normed", "qkv", "query", "mixed", "gated", "products", "panels", "scores", "totals", "mixes")

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
Job: how many rows (new tokens) there are, in how many segments, the longest one's rows; the first row whose logits are
wanted, how many, and where they go, `[wanted, vocab_size]`; for each row its token, its position and the page that its
keys and values go to; and the `segments` (SEGMENT).
Scratch by row: `states` (the residual stream), `normed`, `qkv`, `query` (`[kv head, row, head in its group, head_dim]`,
so that heads sharing keys lie together), `mixed` (attention's result), `gated`. Scratch by member of the team:
`products` `[2, row_limit, 16]`, `panels` `[PANEL_TERMS, 16]`, `scores` `[6, seen_limit]`, `totals` `[6]`,
`mixes` `[6, head_dim]`.
"""

Records = npt.NDArray[Any]

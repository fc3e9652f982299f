"""Attention over keys and values that are kept in pages, as compiled code.

A page holds PAGE_TOKENS tokens for all layers: for each layer and key-value head the keys, `[head_dim, tokens]`, then
the values, `[tokens, head_dim]`, float32. So tokens are the vector lanes of the scores, elements those of the mix.
"""

from typing import Any

import numpy as np

from daemon.engine.fast_arrays import PAGE_TOKENS, ROWS, SEGMENTS
from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import compiled, compiled_sums
from daemon.engine.fast_kernels import add_float_tile, exponential, normalize
from daemon.engine.fast_memory import store_float
from daemon.engine.fast_team import take
from daemon.engine.fast_vector import TILE_ROWS

F = np.float32


@compiled
def page_offset(shape: Any, layer: Any, kv_head: Any) -> Any:
    """Where in a page the keys of a head begin, in bytes; its values follow."""
    return 4 * 2 * PAGE_TOKENS * shape.head_dim * (layer * shape.kv_heads + kv_head)


@compiled
def rotate(x: Any, cosines: Any, sines: Any, scale: Any) -> None:
    """Rotary position of one head, in place, times `scale`; an element's partner is half a head away."""
    half = x.size // 2
    for i in range(half):
        a, b = x[i], x[half + i]
        x[i] = (a * cosines[i] - b * sines[i]) * scale
        x[half + i] = (b * cosines[i] + a * sines[i]) * scale


@compiled
def place_query(engine: Any, layer: Any, row: Any, head: Any) -> None:
    """Norm (if any) and position of a query head, which is then scaled by 1 / sqrt(head_dim)."""
    shape, weights, scratch = engine.shape, engine.weights, engine.scratch
    size, group = shape.head_dim, shape.heads // shape.kv_heads
    query = scratch.query[head // group, row, head % group]
    query[:] = scratch.qkv[row, head * size : (head + 1) * size]
    if shape.head_norms:
        normalize(query, weights.head_norms[2 * layer], shape.epsilon, query)
    position = engine.job.positions[row]
    rotate(query, weights.cosines[position], weights.sines[position], shape.query_scale)


@compiled
def place_key_value(engine: Any, layer: Any, row: Any, kv_head: Any) -> None:
    """Norm (if any) and position of a key head, and its value, into the row's page."""
    shape, weights = engine.shape, engine.weights
    size, begin = shape.head_dim, (shape.heads + kv_head) * shape.head_dim
    key = engine.scratch.qkv[row, begin : begin + size]
    value = engine.scratch.qkv[row, begin + shape.kv_heads * size : begin + (shape.kv_heads + 1) * size]
    if shape.head_norms:
        normalize(key, weights.head_norms[2 * layer + 1], shape.epsilon, key)
    position = engine.job.positions[row]
    rotate(key, weights.cosines[position], weights.sines[position], F(1))
    slot = position % PAGE_TOKENS
    keys = engine.job.pages[row] + page_offset(shape, layer, kv_head)
    values = keys + 4 * PAGE_TOKENS * size
    for i in range(size):
        store_float(keys + 4 * (i * PAGE_TOKENS + slot), key[i])
        store_float(values + 4 * (slot * size + i), value[i])


@compiled
def team_place(engine: Any, layer: Any) -> None:
    """Queries, keys and values of all rows from `qkv` to where attention reads them."""
    rows, heads = engine.job.counts[ROWS], engine.shape.heads + engine.shape.kv_heads
    task = take(engine.control, 4)
    while task < rows * heads:
        for one in range(task, min(task + 4, rows * heads)):
            row, head = one // heads, one % heads
            if head < engine.shape.heads:
                place_query(engine, layer, row, head)
            else:
                place_key_value(engine, layer, row, head - engine.shape.heads)
        task = take(engine.control, 4)


@compiled_sums
def softmax(scores: Any, count: Any, end: Any) -> Any:
    """Exponentials of the first `count` scores in place, zeros from there to `end`; the exponentials' sum."""
    largest = scores[0]
    for i in range(1, count):
        largest = max(largest, scores[i])
    total = F(0)
    for i in range(count):
        scores[i] = exponential(scores[i] - largest)
        total += scores[i]
    scores[count:end] = F(0)
    return total


@compiled
def score_tile(
    engine: Any, layer: Any, kv_head: Any, table: Any, query: Any, rows: Any, seen: Any, scores: Any
) -> None:
    """Products of a tile of queries with the first `seen` keys into `scores`, `[rows, context]`."""
    shape, job, width = engine.shape, engine.job, scores.shape[1]
    for row in range(rows):
        scores[row, : (seen + LANES - 1) // LANES * LANES] = F(0)
    for begin in range(0, seen, LANES):
        keys = job.table[table + begin // PAGE_TOKENS] + page_offset(shape, layer, kv_head)
        keys += 4 * (begin % PAGE_TOKENS)
        out = scores.ctypes.data + 4 * begin
        add_float_tile(rows, query, shape.head_dim, keys, 4 * PAGE_TOKENS, shape.head_dim, out, width)


@compiled
def mix_tile(engine: Any, layer: Any, kv_head: Any, table: Any, rows: Any, seen: Any, scores: Any, mix: Any) -> None:
    """Sums of the first `seen` values, weighted with `scores`, into `mix`, `[rows, head_dim]`."""
    shape, size = engine.shape, engine.shape.head_dim
    mix[:rows] = F(0)
    for begin in range(0, seen, PAGE_TOKENS):
        values = engine.job.table[table + begin // PAGE_TOKENS] + page_offset(shape, layer, kv_head)
        values += 4 * PAGE_TOKENS * size
        terms = min(PAGE_TOKENS, seen - begin)
        x = scores.ctypes.data + 4 * begin
        for column in range(0, size, LANES):
            out = mix.ctypes.data + 4 * column
            add_float_tile(rows, x, scores.shape[1], values + 4 * column, 4 * size, terms, out, size)


@compiled
def attend_tile(engine: Any, member: Any, layer: Any, kv_head: Any, segment: Any, first: Any) -> None:
    """Attention of up to 6 pairs of row and head, from pair `first` of a segment on, which share keys and values."""
    shape, scratch = engine.shape, engine.scratch
    size, group = shape.head_dim, shape.heads // shape.kv_heads
    rows = min(TILE_ROWS, segment.rows * group - first)
    seen = segment.start + (first + rows - 1) // group + 1
    scores, mix = scratch.scores[member], scratch.values[member]
    at = (kv_head * scratch.query.shape[1] + segment.first_row) * group + first
    query = scratch.query.ctypes.data + 4 * size * at
    score_tile(engine, layer, kv_head, segment.table, query, rows, seen, scores)
    for i in range(rows):
        total = softmax(scores[i], segment.start + (first + i) // group + 1, seen)
        mix[TILE_ROWS + i, 0] = F(1) / total
    mix_tile(engine, layer, kv_head, segment.table, rows, seen, scores, mix)
    for i in range(rows):
        column = (kv_head * group + (first + i) % group) * size
        for j in range(size):
            value = mix[i, j] * mix[TILE_ROWS + i, 0]
            scratch.mixed[segment.first_row + (first + i) // group, column + j] = value


@compiled
def team_attend(engine: Any, member: Any, layer: Any) -> None:
    """Attention of all rows, from `query` and the pages into `mixed`."""
    job, kv_heads = engine.job, engine.shape.kv_heads
    group = engine.shape.heads // kv_heads
    longest = 0
    for number in range(job.counts[SEGMENTS]):
        longest = max(longest, job.segments[number].rows)
    tiles = (longest * group + TILE_ROWS - 1) // TILE_ROWS
    task = take(engine.control, 1)
    while task < job.counts[SEGMENTS] * kv_heads * tiles:
        segment = job.segments[task // (kv_heads * tiles)]
        kv_head, first = task // tiles % kv_heads, task % tiles * TILE_ROWS
        if first < segment.rows * group:
            attend_tile(engine, member, layer, kv_head, segment, first)
        task = take(engine.control, 1)

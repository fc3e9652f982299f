"""Attention over keys and values that are kept in pages, as compiled code.

A page holds PAGE_TOKENS tokens for all layers: for each layer and key-value head the keys, `[tokens / 16, head_dim,
16]`, then the values, `[head_dim / 16, tokens, 16]`, float32. So tokens are the vector lanes of the scores, elements
those of the mix, and every tile of either is read front to back.
"""

from typing import Any

import numpy as np

from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import compiled
from daemon.engine.fast_kernels import add_float_tile, clear, exponential, first_needed_row, normalize
from daemon.engine.fast_memory import floats, integers, segment_at
from daemon.engine.fast_records import PAGE_TOKENS, SEGMENT
from daemon.engine.fast_vector import TILE_ROWS, largest_of, sum_of

F = np.float32

_SEGMENT_BYTES = SEGMENT.itemsize


@compiled
def keys_offset(e: Any, layer: Any, kv_head: Any) -> Any:
    """Where in a page the keys of a head begin, in bytes; its values follow."""
    return 4 * 2 * PAGE_TOKENS * e.head_dim * (layer * e.kv_heads + kv_head)


@compiled
def rotate(e: Any, x: Any, position: Any, scale: Any) -> None:
    """Rotary position of one head, in place, times `scale`; an element's partner is half a head away."""
    half = x.size // 2
    cosines, sines = floats(e.cosines + 4 * position * half, half), floats(e.sines + 4 * position * half, half)
    for i in range(half):
        a, b = x[i], x[half + i]
        x[i] = (a * cosines[i] - b * sines[i]) * scale
        x[half + i] = (b * cosines[i] + a * sines[i]) * scale


@compiled
def place_query(e: Any, layer: Any, row: Any, head: Any, position: Any) -> None:
    """Norm (if any) and position of a query head, which is then scaled by 1 / sqrt(head_dim)."""
    size, group = e.head_dim, e.heads // e.kv_heads
    source = e.qkv + 4 * (row * (e.heads + 2 * e.kv_heads) + head) * size
    target = e.query + 4 * ((head // group * e.row_limit + row) * group + head % group) * size
    query, unplaced = floats(target, size), floats(source, size)
    if e.has_head_norms:
        normalize(source, size, e.head_norms + 4 * 2 * layer * size, e.epsilon, target)
    else:
        for i in range(size):
            query[i] = unplaced[i]
    rotate(e, query, position, F(e.query_scale))


@compiled
def store_key_value(start: Any, slot: Any, key: Any, value: Any) -> None:
    """A key and a value into slot `slot` of a head's part of a page, which begins at `start`."""
    size = key.size
    keys, values = floats(start, PAGE_TOKENS * size), floats(start + 4 * PAGE_TOKENS * size, PAGE_TOKENS * size)
    for i in range(size):
        keys[(slot // LANES * size + i) * LANES + slot % LANES] = key[i]
        values[(i // LANES * PAGE_TOKENS + slot) * LANES + i % LANES] = value[i]


@compiled
def place_key_value(e: Any, layer: Any, row: Any, kv_head: Any, position: Any) -> None:
    """Norm (if any) and position of a key head, and its value, into the row's slot."""
    size, first = e.head_dim, row * (e.heads + 2 * e.kv_heads) + e.heads + kv_head
    source = e.qkv + 4 * first * size
    key, value = floats(source, size), floats(source + 4 * e.kv_heads * size, size)
    if e.has_head_norms:
        normalize(source, size, e.head_norms + 4 * (2 * layer + 1) * size, e.epsilon, source)
    rotate(e, key, position, F(1))
    slot = e.first_slot + row
    page = integers(e.pages, slot // PAGE_TOKENS + 1)[slot // PAGE_TOKENS]
    store_key_value(page + keys_offset(e, layer, kv_head), slot % PAGE_TOKENS, key, value)


@compiled
def place_task(e: Any, layer: Any, row: Any) -> None:
    """Queries, keys and values of a row from `qkv` to where attention reads them."""
    position = integers(e.positions, e.rows)[row]
    for head in range(e.heads):
        place_query(e, layer, row, head, position)
    for kv_head in range(e.kv_heads):
        place_key_value(e, layer, row, kv_head, position)


@compiled
def softmax(address: Any, count: Any, seen: Any) -> Any:
    """Exponentials of the first `count` scores in place, zeros behind them up to `seen`; the exponentials' sum.

    There is room for a whole number of vectors.
    """
    vectors = (count + LANES - 1) // LANES
    scores = floats(address, max(vectors * LANES, seen))
    for i in range(count, scores.size):
        scores[i] = F(-np.inf)
    largest = largest_of(address, vectors)
    for i in range(count):
        scores[i] = exponential(scores[i] - largest)
    for i in range(count, scores.size):
        scores[i] = F(0)
    return sum_of(address, vectors)


@compiled
def score_tile(e: Any, offset: Any, query: Any, rows: Any, slots: Any, scores: Any) -> None:
    """Products of a tile of queries with the keys in the first `slots` slots into `scores`, `[rows, seen_limit]`."""
    pages = integers(e.pages, slots // PAGE_TOKENS + 1)
    for row in range(rows):
        clear(scores + 4 * row * e.seen_limit, (slots + LANES - 1) // LANES * LANES)
    for first in range(0, slots, LANES):
        keys = pages[first // PAGE_TOKENS] + offset + 4 * (first % PAGE_TOKENS) * e.head_dim
        out = scores + 4 * first
        add_float_tile(rows, query, e.head_dim, keys, e.head_dim, out, e.seen_limit)


@compiled
def mix_tile(e: Any, offset: Any, rows: Any, first: Any, end: Any, scores: Any, mix: Any) -> None:
    """Add the values in the slots from `first` to `end`, weighted with `scores`, to `mix`, `[rows, head_dim]`."""
    pages = integers(e.pages, end // PAGE_TOKENS + 1)
    slot = first
    while slot < end:
        values = pages[slot // PAGE_TOKENS] + offset + 4 * (PAGE_TOKENS * e.head_dim + slot % PAGE_TOKENS * LANES)
        terms, x = min(PAGE_TOKENS - slot % PAGE_TOKENS, end - slot), scores + 4 * (slot - first)
        for column in range(0, e.head_dim, LANES):
            w, out = values + 4 * column * PAGE_TOKENS, mix + 4 * column
            add_float_tile(rows, x, e.seen_limit, w, terms, out, e.head_dim)
        slot += terms


@compiled
def tiles_of(e: Any, rows: Any) -> Any:
    """Tiles that the queries of so many rows make for one key-value head."""
    return (rows * (e.heads // e.kv_heads) + TILE_ROWS - 1) // TILE_ROWS


@compiled
def attend_task(e: Any, member: Any, layer: Any, task: Any) -> None:
    """Attention of one tile: up to 6 pairs of row and head that share keys and values, of one segment.

    Scores stand by position: those behind a gap move down to where they would be without it.
    """
    tiles = tiles_of(e, e.longest_segment)
    segment = segment_at(e.segments + _SEGMENT_BYTES * (task // (e.kv_heads * tiles)))
    kv_head, first = task // tiles % e.kv_heads, task % tiles * TILE_ROWS
    size, group = e.head_dim, e.heads // e.kv_heads
    rows = min(TILE_ROWS, segment.rows * group - first)
    last = (first + rows - 1) // group
    if rows <= 0 or segment.first_row + last < first_needed_row(e, layer):
        return
    seen, gap = segment.start + last + 1, e.first_slot + segment.first_row - segment.start
    before = segment.start if gap > 0 else seen
    scores = e.scores + 4 * TILE_ROWS * e.seen_limit * member
    mix = e.mixes + 4 * TILE_ROWS * size * member
    offset = keys_offset(e, layer, kv_head)
    query = e.query + 4 * size * ((kv_head * e.row_limit + segment.first_row) * group + first)
    score_tile(e, offset, query, rows, seen + gap, scores)
    totals = floats(e.totals + 4 * TILE_ROWS * member, TILE_ROWS)
    for i in range(rows):
        address = scores + 4 * i * e.seen_limit
        row_scores = floats(address, seen + gap)
        for position in range(before, seen):
            row_scores[position] = row_scores[position + gap]
        totals[i] = softmax(address, segment.start + (first + i) // group + 1, seen)
    clear(mix, rows * size)
    mix_tile(e, offset, rows, 0, before, scores, mix)
    mix_tile(e, offset, rows, before + gap, seen + gap, scores + 4 * before, mix)
    for i in range(rows):
        row, head = segment.first_row + (first + i) // group, kv_head * group + (first + i) % group
        out, sums = floats(e.mixed + 4 * (row * e.heads + head) * size, size), floats(mix + 4 * i * size, size)
        for j in range(size):
            out[j] = sums[j] / totals[i]

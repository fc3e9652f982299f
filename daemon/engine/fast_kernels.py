"""The products of activations with quantised weights, and the small functions between them, as compiled code.

A function that ends in `_task` is one task of a phase (`fast_step`): it writes only what no other task of its phase
reads or writes.
"""

from typing import Any

import numpy as np

from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import compiled
from daemon.engine.fast_memory import (
    bits_of_float,
    bits_of_floats,
    float_of_bits,
    floats,
    integers,
    load_int8,
    short_integers,
)
from daemon.engine.fast_records import GROUP_BYTES, GROUP_TERMS, INT4, PANEL_TERMS, ROUNDED_BYTES, STEP_OFFSET
from daemon.engine.fast_vector import TILE_ROWS, make_group_tile, make_tile, multiply_add, sum_of_squares

F = np.float32

_TO_INTEGER = F(1.5 * 2**23)
"""Added to a small float32 it rounds it to an integer, which then stands in its last bits."""
_LARGEST_INTEGER = 32767
"""What the largest activation of a group becomes."""

_q1, _q2, _q3, _q4, _q5, _q6 = (make_tile(rows, quantized=True) for rows in range(1, TILE_ROWS + 1))
_f1, _f2, _f3, _f4, _f5, _f6 = (make_tile(rows, quantized=False) for rows in range(1, TILE_ROWS + 1))
_c4, _c6 = (make_tile(rows, quantized=True, keeping=True) for rows in (4, TILE_ROWS))
_g1, _g4 = (make_group_tile(rows) for rows in (1, 4))


@compiled
def rows_together(rows: Any) -> Any:
    """How many of the rows that are left make the next tile: not so many that one or two are left over.

    A tile of one or two rows waits for its few sums, and takes as long as one of three.
    """
    return 4 if rows == TILE_ROWS + 1 or rows == TILE_ROWS + 2 else min(rows, TILE_ROWS)


@compiled
def add_quantized_tile(rows: Any, x: Any, x_stride: Any, w: Any, terms: Any, out: Any) -> None:
    """`out[m, lane] += sum of x[m, k] * w[k, lane]` for int8 w, 1 to 6 rows, 16 lanes; `out` is `[rows, 16]`."""
    if rows == 1:
        _q1(x, x_stride, w, terms, out, LANES, 0)
    elif rows == 2:
        _q2(x, x_stride, w, terms, out, LANES, 0)
    elif rows == 3:
        _q3(x, x_stride, w, terms, out, LANES, 0)
    elif rows == 4:
        _q4(x, x_stride, w, terms, out, LANES, 0)
    elif rows == 5:
        _q5(x, x_stride, w, terms, out, LANES, 0)
    else:
        _q6(x, x_stride, w, terms, out, LANES, 0)


@compiled
def add_converting_tile(rows: Any, x: Any, x_stride: Any, w: Any, terms: Any, out: Any, panel: Any) -> None:
    """The same for 4 or 6 rows; w is left as float32 in `panel`, `[terms, 16]`."""
    if rows == 4:
        _c4(x, x_stride, w, terms, out, LANES, panel)
    else:
        _c6(x, x_stride, w, terms, out, LANES, panel)


@compiled
def add_float_tile(rows: Any, x: Any, x_stride: Any, w: Any, terms: Any, out: Any, out_stride: Any) -> None:
    """The same for float32 w and rows of `out` that are `out_stride` floats apart."""
    if rows == 1:
        _f1(x, x_stride, w, terms, out, out_stride, 0)
    elif rows == 2:
        _f2(x, x_stride, w, terms, out, out_stride, 0)
    elif rows == 3:
        _f3(x, x_stride, w, terms, out, out_stride, 0)
    elif rows == 4:
        _f4(x, x_stride, w, terms, out, out_stride, 0)
    elif rows == 5:
        _f5(x, x_stride, w, terms, out, out_stride, 0)
    else:
        _f6(x, x_stride, w, terms, out, out_stride, 0)


@compiled
def exponential(x: Any) -> Any:
    """The exponential of a float32, within 2e-7 relative; below -87 it is as for -87. LLVM can do several at once.

    Range reduction and polynomial as in the Cephes library's expf.
    """
    x = min(max(x, F(-87.0)), F(88.0))
    shifted = multiply_add(x, F(1.44269504), _TO_INTEGER)
    power = shifted - _TO_INTEGER
    rest = multiply_add(power, F(2.12194440e-4), multiply_add(power, F(-0.693359375), x))
    p = F(1.9875691500e-4)
    p = multiply_add(p, rest, F(1.3981999507e-3))
    p = multiply_add(p, rest, F(8.3334519073e-3))
    p = multiply_add(p, rest, F(4.1665795894e-2))
    p = multiply_add(p, rest, F(1.6666665459e-1))
    p = multiply_add(p, rest, F(5.0000001201e-1))
    p = multiply_add(multiply_add(p, rest, F(1)), rest, F(1))
    return p * float_of_bits((bits_of_float(shifted) << np.int32(23)) + np.int32(127 << 23))


@compiled
def clear(address: Any, count: Any) -> None:
    """Zero so many floats."""
    room = floats(address, count)
    for i in range(count):
        room[i] = F(0)


@compiled
def round_group(x: Any, rounded: Any) -> None:
    """32 activations as int16 (`ROUNDED_BYTES`): each is off by 1.6e-5 of the largest at most.

    A group without a value above 1e-30 counts as zeros. An infinity or NaN makes every product NaN.
    """
    bits, values, integers = (
        bits_of_floats(x, GROUP_TERMS),
        floats(x, GROUP_TERMS),
        short_integers(rounded, GROUP_TERMS),
    )
    largest_bits = np.int32(0)
    for i in range(GROUP_TERMS):
        largest_bits = max(largest_bits, bits[i] & np.int32(0x7FFFFFFF))
    largest = float_of_bits(largest_bits)
    inverse = F(0) if largest < F(1e-30) else F(_LARGEST_INTEGER) / largest
    total = 0
    for i in range(GROUP_TERMS):
        integers[i] = np.int16(np.rint(values[i] * inverse))
        total += integers[i]
    step = largest / F(_LARGEST_INTEGER)
    factors = floats(rounded + STEP_OFFSET, 2)
    factors[0], factors[1] = step, F(total) * step


@compiled
def round_row(e: Any, x: Any, row: Any, matrix: Any) -> None:
    """Row `row` of x into `rounded`, if the matrix that reads it next is int4."""
    if matrix.kind == INT4:
        groups = matrix.columns // GROUP_TERMS
        for number in range(row * groups, (row + 1) * groups):
            round_group(x + 4 * GROUP_TERMS * number, e.rounded + ROUNDED_BYTES * number)


@compiled
def grouped_products(rounded: Any, rows: Any, matrix: Any, block: Any, products: Any) -> None:
    """Products of rounded rows with 16 rows of an int4 matrix into `products`, `[rows, 16]`."""
    groups = matrix.columns // GROUP_TERMS
    weights, width, in_fours = matrix.address + block * groups * GROUP_BYTES, groups * ROUNDED_BYTES, rows // 4 * 4
    for row in range(0, in_fours, 4):
        _g4(rounded + row * width, width, weights, groups, products + 4 * row * LANES, LANES)
    for row in range(in_fours, rows):
        _g1(rounded + row * width, width, weights, groups, products + 4 * row * LANES, LANES)


@compiled
def block_products(
    e: Any, x: Any, first_row: Any, rows: Any, matrix: Any, block: Any, products: Any, panel: Any
) -> None:
    """Products, unscaled if int8, of `rows` rows of x with 16 rows of a matrix into `products`, `[rows, 16]`.

    For int4, x must stand in `rounded`. Few rows are multiplied with the int8 weights directly; of many, the first
    ones keep what they convert for the others, a part at a time.
    """
    columns = matrix.columns
    weights = matrix.address + block * columns * LANES
    clear(products, rows * LANES)
    if matrix.kind == INT4:
        rounded = e.rounded + first_row * columns // GROUP_TERMS * ROUNDED_BYTES
        grouped_products(rounded, rows, matrix, block, products)
        return
    x += 4 * first_row * columns
    if rows <= TILE_ROWS:
        add_quantized_tile(rows, x, columns, weights, columns, products)
        return
    for first in range(0, columns, PANEL_TERMS):
        terms, row = min(PANEL_TERMS, columns - first), 0
        while row < rows:
            tile_rows, at, out = rows_together(rows - row), x + 4 * (row * columns + first), products + 4 * row * LANES
            if row == 0:
                add_converting_tile(tile_rows, at, columns, weights + first * LANES, terms, out, panel)
            else:
                add_float_tile(tile_rows, at, columns, panel, terms, out, LANES)
            row += tile_rows


@compiled
def first_needed_row(e: Any, layer: Any) -> Any:
    """The first row needed behind a layer's keys and values: in the last layer the first whose logits are wanted."""
    return e.first_wanted if layer == e.layers - 1 else 0


@compiled
def own_products(e: Any, member: Any) -> Any:
    """A member's room for products."""
    return e.products + 4 * 2 * e.row_limit * LANES * member


@compiled
def own_panel(e: Any, member: Any) -> Any:
    """A member's room for converted weights."""
    return e.panels + 4 * PANEL_TERMS * LANES * member


@compiled
def project_task(
    e: Any, member: Any, matrix: Any, block: Any, x: Any, first_row: Any, end: Any, out: Any, width: Any, adding: Any
) -> None:
    """16 columns of `out = x @ matrix.T + bias`, or of `out += ...`, in some rows; out has rows of `width`."""
    products = own_products(e, member)
    block_products(e, x, first_row, end - first_row, matrix, block, products, own_panel(e, member))
    column = block * LANES
    lanes = min(LANES, width - column)
    scales = floats(e.scales + 4 * (matrix.first_row + column), lanes)
    biases = floats(e.biases + 4 * (matrix.first_row + column), lanes)
    for row in range(first_row, end):
        sums = floats(products + 4 * (row - first_row) * LANES, lanes)
        target = floats(out + 4 * (row * width + column), lanes)
        for lane in range(lanes):
            value = sums[lane] * scales[lane] + biases[lane]
            target[lane] = target[lane] + value if adding else value


@compiled
def gate_task(e: Any, member: Any, matrix: Any, pair: Any, first_row: Any) -> None:
    """16 columns of `gated = silu(normed @ gate.T) * (normed @ up.T)`; blocks of gate and up alternate."""
    gates, rows = own_products(e, member), e.rows - first_row
    ups = gates + 4 * e.row_limit * LANES
    panel = own_panel(e, member)
    block_products(e, e.normed, first_row, rows, matrix, 2 * pair, gates, panel)
    block_products(e, e.normed, first_row, rows, matrix, 2 * pair + 1, ups, panel)
    lanes, first = min(LANES, e.inner - pair * LANES), matrix.first_row + 2 * pair * LANES
    scales, biases = floats(e.scales + 4 * first, 2 * LANES), floats(e.biases + 4 * first, 2 * LANES)
    for row in range(rows):
        gate, up = floats(gates + 4 * row * LANES, LANES), floats(ups + 4 * row * LANES, LANES)
        target = floats(e.gated + 4 * ((first_row + row) * e.inner + pair * LANES), lanes)
        for lane in range(lanes):
            g = gate[lane] * scales[lane] + biases[lane]
            u = up[lane] * scales[LANES + lane] + biases[LANES + lane]
            target[lane] = g / (F(1) + exponential(-g)) * u


@compiled
def normalize(x: Any, size: Any, factors: Any, epsilon: Any, out: Any) -> None:
    """RMS norm of `size` floats, by addresses: `out = x / sqrt(mean(x^2) + epsilon) * factors`."""
    values, weights, results = floats(x, size), floats(factors, size), floats(out, size)
    total = sum_of_squares(x, size // LANES) if size >= LANES else F(0)
    for i in range(size // LANES * LANES, size):
        total = multiply_add(values[i], values[i], total)
    scale = F(1) / np.sqrt(total / F(size) + F(epsilon))
    for i in range(size):
        results[i] = values[i] * scale * weights[i]


@compiled
def normalize_task(e: Any, number: Any, source: Any, row: Any, matrix: Any) -> None:
    """The norm of row `source` of the states into row `row` of `normed`, for a matrix to read."""
    width = 4 * e.hidden
    normalize(e.states + source * width, e.hidden, e.norms + number * width, e.epsilon, e.normed + row * width)
    round_row(e, e.normed, row, matrix)


@compiled
def embed_task(e: Any, matrix: Any, row: Any) -> None:
    """The embedding of a row's token into the states."""
    token = integers(e.tokens, e.rows)[row]
    scale = floats(e.scales, matrix.first_row + token + 1)[matrix.first_row + token]
    weights = matrix.address + token // LANES * matrix.columns * LANES + token % LANES
    out = floats(e.states + 4 * row * e.hidden, e.hidden)
    for i in range(e.hidden):
        out[i] = F(load_int8(weights + i * LANES)) * scale

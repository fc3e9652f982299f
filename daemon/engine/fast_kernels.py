"""Products of activations with quantised weights, and the small functions between them, as compiled code.

Every function that begins with `team_` is one phase of a step: all members of the team call it, and it is over for
each of them when there is no task left; the caller lets them meet before anyone uses what it wrote.
"""

from typing import Any

import numpy as np

from daemon.engine.fast_arrays import PANEL_TERMS
from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import compiled, compiled_sums
from daemon.engine.fast_memory import float_of_bits, load_int8, store_float
from daemon.engine.fast_team import take, team_size
from daemon.engine.fast_vector import TILE_ROWS, make_tile

F = np.float32

_QUANTIZED = [make_tile(rows, quantized=True) for rows in range(1, TILE_ROWS + 1)]
_FLOAT = [make_tile(rows, quantized=False) for rows in range(1, TILE_ROWS + 1)]
_q1, _q2, _q3, _q4, _q5, _q6 = _QUANTIZED
_f1, _f2, _f3, _f4, _f5, _f6 = _FLOAT


@compiled
def add_quantized_tile(rows: Any, x: Any, x_stride: Any, w: Any, terms: Any, out: Any) -> None:
    """`out[m, lane] += sum of x[m, k] * w[k, lane]` for int8 w, 1 to 6 rows, 16 lanes; `out` is `[rows, 16]`."""
    if rows == 1:
        _q1(x, x_stride, w, LANES, terms, out, LANES)
    elif rows == 2:
        _q2(x, x_stride, w, LANES, terms, out, LANES)
    elif rows == 3:
        _q3(x, x_stride, w, LANES, terms, out, LANES)
    elif rows == 4:
        _q4(x, x_stride, w, LANES, terms, out, LANES)
    elif rows == 5:
        _q5(x, x_stride, w, LANES, terms, out, LANES)
    else:
        _q6(x, x_stride, w, LANES, terms, out, LANES)


@compiled
def add_float_tile(rows: Any, x: Any, x_stride: Any, w: Any, w_stride: Any, terms: Any, out: Any, stride: Any) -> None:
    """The same for float32 w, whose terms are `w_stride` bytes apart; `out` has rows of `stride` floats."""
    if rows == 1:
        _f1(x, x_stride, w, w_stride, terms, out, stride)
    elif rows == 2:
        _f2(x, x_stride, w, w_stride, terms, out, stride)
    elif rows == 3:
        _f3(x, x_stride, w, w_stride, terms, out, stride)
    elif rows == 4:
        _f4(x, x_stride, w, w_stride, terms, out, stride)
    elif rows == 5:
        _f5(x, x_stride, w, w_stride, terms, out, stride)
    else:
        _f6(x, x_stride, w, w_stride, terms, out, stride)


@compiled
def exponential(x: Any) -> Any:
    """E to the power of a float32, within 2e-7 relative; below -87 it is as for -87. LLVM can do several at once.

    Range reduction and polynomial as in the Cephes library's expf.
    """
    x = min(max(x, F(-87.0)), F(88.0))
    scaled = x * F(1.44269504)
    power = np.int32(scaled + (F(0.5) if scaled >= F(0) else F(-0.5)))
    rest = x - F(power) * F(0.693359375) + F(power) * F(2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * rest + F(1.3981999507e-3)
    p = p * rest + F(8.3334519073e-3)
    p = p * rest + F(4.1665795894e-2)
    p = p * rest + F(1.6666665459e-1)
    p = p * rest + F(5.0000001201e-1)
    return (p * rest * rest + rest + F(1)) * float_of_bits((power + np.int32(127)) << np.int32(23))


@compiled
def block_products(x: Any, row_count: Any, matrix: Any, block: Any, products: Any, panel: Any) -> None:
    """Unscaled products of rows of x with 16 rows of a matrix into `products`, `[rows, 16]`.

    Few rows are multiplied with the int8 weights directly; for many, weights are first converted, a part at a time.
    """
    columns = matrix.columns
    weights = matrix.address + block * columns * LANES
    products[: row_count * LANES] = F(0)
    base, out = x.ctypes.data, products.ctypes.data
    if row_count <= TILE_ROWS:
        add_quantized_tile(row_count, base, x.shape[1], weights, columns, out)
        return
    for begin in range(0, columns, PANEL_TERMS):
        terms = min(PANEL_TERMS, columns - begin)
        for i in range(terms * LANES):
            panel[i] = F(load_int8(weights + begin * LANES + i))
        for row in range(0, row_count, TILE_ROWS):
            rows = min(TILE_ROWS, row_count - row)
            at = base + 4 * (row * x.shape[1] + begin)
            add_float_tile(rows, at, x.shape[1], panel.ctypes.data, 4 * LANES, terms, out + 4 * row * LANES, LANES)


@compiled
def tasks_at_once(control: Any, tasks: Any) -> Any:
    """How many tasks to take at a time: few, so that all members end together, but not one by one."""
    return max(tasks // (8 * team_size(control)), 1)


@compiled
def team_project(engine: Any, member: Any, number: Any, x: Any, rows: Any, out: Any, adding: Any) -> None:
    """`out = x @ matrix.T + bias`, or `out += ...`, for `rows` rows."""
    matrix, weights, scratch = engine.weights.matrices[number], engine.weights, engine.scratch
    products, panel = scratch.products[member], scratch.panel[member]
    step = tasks_at_once(engine.control, matrix.blocks)
    first = take(engine.control, step)
    while first < matrix.blocks:
        for block in range(first, min(first + step, matrix.blocks)):
            block_products(x, rows, matrix, block, products, panel)
            column = block * LANES
            for row in range(rows):
                for lane in range(min(LANES, out.shape[1] - column)):
                    at = matrix.first_row + column + lane
                    value = products[row * LANES + lane] * weights.scales[at] + weights.biases[at]
                    out[row, column + lane] = out[row, column + lane] + value if adding else value
        first = take(engine.control, step)


@compiled
def team_gate(engine: Any, member: Any, number: Any, rows: Any) -> None:
    """`gated = silu(normed @ gate.T) * (normed @ up.T)`; the blocks of gate and up alternate in the matrix."""
    matrix, weights, scratch = engine.weights.matrices[number], engine.weights, engine.scratch
    products, panel, gated = scratch.products[member], scratch.panel[member], scratch.gated
    up_products = products[rows * LANES :]
    pairs = matrix.blocks // 2
    step = tasks_at_once(engine.control, pairs)
    first = take(engine.control, step)
    while first < pairs:
        for pair in range(first, min(first + step, pairs)):
            block_products(scratch.normed, rows, matrix, 2 * pair, products, panel)
            block_products(scratch.normed, rows, matrix, 2 * pair + 1, up_products, panel)
            column, at = pair * LANES, matrix.first_row + 2 * pair * LANES
            for row in range(rows):
                for lane in range(min(LANES, gated.shape[1] - column)):
                    gate = products[row * LANES + lane] * weights.scales[at + lane] + weights.biases[at + lane]
                    other = at + LANES + lane
                    up = up_products[row * LANES + lane] * weights.scales[other] + weights.biases[other]
                    gated[row, column + lane] = gate / (F(1) + exponential(-gate)) * up
        first = take(engine.control, step)


@compiled
def team_logits(engine: Any, member: Any, number: Any) -> None:
    """Scores of every token for the wanted rows, which `normed` begins with."""
    matrix, weights, scratch, job = engine.weights.matrices[number], engine.weights, engine.scratch, engine.job
    rows, logits, width = job.counts[3], job.counts[4], engine.shape.vocab_size
    products, panel = scratch.products[member], scratch.panel[member]
    step = tasks_at_once(engine.control, matrix.blocks)
    first = take(engine.control, step)
    while first < matrix.blocks:
        for block in range(first, min(first + step, matrix.blocks)):
            block_products(scratch.normed, rows, matrix, block, products, panel)
            column = block * LANES
            for row in range(rows):
                for lane in range(min(LANES, width - column)):
                    value = products[row * LANES + lane] * weights.scales[matrix.first_row + column + lane]
                    store_float(logits + 4 * (row * width + column + lane), value)
        first = take(engine.control, step)


@compiled_sums
def normalize(x: Any, factors: Any, epsilon: Any, out: Any) -> None:
    """RMS norm: `out = x / sqrt(mean(x^2) + epsilon) * factors`."""
    total = F(0)
    for i in range(x.size):
        total += x[i] * x[i]
    scale = F(1) / np.sqrt(total / F(x.size) + epsilon)
    for i in range(x.size):
        out[i] = x[i] * scale * factors[i]


@compiled
def team_normalize(engine: Any, number: Any, first_row: Any, rows: Any) -> None:
    """The norm of `hidden`'s rows from `first_row` on into the first rows of `normed`."""
    scratch, row = engine.scratch, take(engine.control, 1)
    while row < rows:
        factors = engine.weights.norms[number]
        normalize(scratch.hidden[first_row + row], factors, engine.shape.epsilon, scratch.normed[row])
        row = take(engine.control, 1)


@compiled
def team_embed(engine: Any, number: Any) -> None:
    """The embeddings of the job's tokens into `hidden`."""
    job, matrix, scales = engine.job, engine.weights.matrices[number], engine.weights.scales
    row = take(engine.control, 1)
    while row < job.counts[0]:
        token = job.tokens[row]
        scale = scales[matrix.first_row + token]
        weights = matrix.address + token // LANES * matrix.columns * LANES + token % LANES
        for i in range(matrix.columns):
            engine.scratch.hidden[row, i] = F(load_int8(weights + i * LANES)) * scale
        row = take(engine.control, 1)

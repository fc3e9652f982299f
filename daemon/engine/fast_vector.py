"""Vector instructions for numba's compiled code, written as LLVM IR: products of small tiles, sums.

A sum in a loop of numba's takes one term at a time, as LLVM may not reorder it. Here the sums of a product stand side
by side, each in a vector lane of its own, and run over their terms one after the other: with one fused multiply-add a
term for int8 and float weights, in exact integers within a group of 32 terms for int4 weights. A fold spreads one sum
over 16 lanes and joins them in a fixed order. Either order depends on the number of terms alone, so a result does not
depend on what else is computed beside it: one row, six rows or a whole prompt give the same bits for a row. All
addresses are int64, in bytes.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from daemon.engine.fast_config import LANES
from daemon.engine.fast_jit import instruction
from daemon.engine.fast_records import GROUP_BYTES, GROUP_TERMS, ROUNDED_BYTES, STEP_OFFSET

TILE_ROWS = 6
"""Most rows of a tile: 6 rows of 2 vectors fill 12 of the 16 vector registers of AVX2."""

_WIDTH = 8
_VECTORS = 2
_PREFETCH_BYTES = 4096
"""How far ahead quantised weights are asked for; measured, it brings a fifth to a half more bytes a second."""

_F32, _I8, _I16, _I32, _I64 = ir.FloatType(), ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_FLOATS, _BYTES = ir.VectorType(_F32, _WIDTH), ir.VectorType(_I8, _WIDTH)
_WORDS, _SHORTS = ir.VectorType(_I32, _WIDTH), ir.VectorType(_I16, 2 * _WIDTH)
_NIBBLES = ir.Constant(_WORDS, [0x000F000F] * _WIDTH)

_Codegen = Callable[[Any, Any, Any, Sequence[Any]], Any]
_Step = Callable[[Any, Any, Any], Any]


def _address(builder: Any, base: Any, offset: Any, of: Any) -> Any:
    return builder.inttoptr(builder.add(base, offset), ir.PointerType(of))


def _const(value: int) -> Any:
    return ir.Constant(_I64, value)


def _declare(module: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def _broadcast(b: Any, value: Any) -> Any:
    """A vector of eight times the same 32-bit value."""
    undefined = ir.Constant(ir.VectorType(value.type, _WIDTH), ir.Undefined)
    vector = b.insert_element(undefined, value, ir.Constant(_I32, 0))
    return b.shuffle_vector(vector, undefined, ir.Constant(_WORDS, [0] * _WIDTH))


def _prefetch(b: Any, address: Any) -> None:
    """Ask for the memory some way behind an address."""
    prefetch = _declare(b.module, "llvm.prefetch.p0", ir.VoidType(), [ir.PointerType(_I8), _I32, _I32, _I32])
    read, keep, data = ir.Constant(_I32, 0), ir.Constant(_I32, 3), ir.Constant(_I32, 1)
    b.call(prefetch, [_address(b, address, _const(_PREFETCH_BYTES), _I8), read, keep, data])


def _loop(b: Any, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Repeat `body(i, values)`, which returns the next values, for i from 0 to `count`, at least once."""
    before, block, after = b.block, b.append_basic_block("tile"), b.append_basic_block("tile.end")
    b.branch(block)
    b.position_at_end(block)
    places = [b.phi(value.type) for value in (_const(0), *carried)]
    updated = body(places[0], places[1:])
    following = b.add(places[0], _const(1))
    for place, first, later in zip(places, (_const(0), *carried), (following, *updated), strict=True):
        place.add_incoming(first, before)
        place.add_incoming(later, b.block)
    b.cbranch(b.icmp_signed("<", following, count), block, after)
    b.position_at_end(after)
    return updated


def _places(b: Any, out: Any, stride: Any, rows: int) -> list[Any]:
    """The vectors of a tile's results, row by row; `stride` in floats."""
    starts = [b.add(out, b.mul(stride, _const(4 * m))) for m in range(rows)]
    return [_address(b, start, _const(4 * _WIDTH * v), _FLOATS) for start in starts for v in range(_VECTORS)]


def _fma_of(b: Any) -> Any:
    return _declare(b.module, f"llvm.fmuladd.v{_WIDTH}f32", _FLOATS, [_FLOATS] * 3)


@instruction
def multiply_add(_context: Any, x: Any, y: Any, z: Any) -> tuple[Any, _Codegen]:
    """`x * y + z` of float32 with one rounding, where the processor has such an instruction."""

    def generate(_ctx: Any, builder: Any, _signature: Any, values: Sequence[Any]) -> Any:
        return builder.call(_declare(builder.module, "llvm.fmuladd.f32", _F32, [_F32] * 3), values)

    return types.float32(types.float32, types.float32, types.float32), generate


def _make_fold(start: float, step: _Step, join: _Step) -> Any:
    """A function for compiled code: `16 * count` float32 at an address (count at least 1) as one.

    Each of 16 lanes begins with `start` and goes on by `step(b, value, so far)`; then `join` takes the lanes together.
    A plain loop would go term by term: LLVM makes vector instructions of it only where it may choose the order itself.
    """

    @instruction
    def fold(_context: Any, x: Any, count: Any) -> tuple[Any, _Codegen]:
        def generate(_ctx: Any, b: Any, _signature: Any, values: Sequence[Any]) -> Any:
            x, count = values

            def term(_k: Any, carried: list[Any]) -> list[Any]:
                at, *lanes = carried
                found = [b.load(_address(b, at, _const(4 * _WIDTH * v), _FLOATS), align=4) for v in range(_VECTORS)]
                return [b.add(at, _const(4 * LANES)), *map(functools.partial(step, b), found, lanes)]

            first = ir.Constant(_FLOATS, [start] * _WIDTH)
            _, *vectors = _loop(b, count, [x, *[first] * _VECTORS], term)
            vector = functools.reduce(functools.partial(join, b), vectors)
            lanes = [b.extract_element(vector, ir.Constant(_I32, lane)) for lane in range(_WIDTH)]
            return functools.reduce(functools.partial(join, b), lanes)

        return types.float32(types.int64, types.int64), generate

    return fold


def _maximum(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _sum(b: Any, x: Any, y: Any) -> Any:
    return b.fadd(x, y)


def _sum_of_square(b: Any, x: Any, total: Any) -> Any:
    return b.call(_fma_of(b), [x, x, total])


largest_of = _make_fold(-math.inf, _maximum, _maximum)
"""The largest; what is no number does not count."""
sum_of = _make_fold(0.0, _sum, _sum)
sum_of_squares = _make_fold(0.0, _sum_of_square, _sum)


class _Tile:
    """Emits the loop of one tile; see `make_tile`."""

    def __init__(self, builder: Any, arguments: Sequence[Any], rows: int, *, quantized: bool, keeping: bool) -> None:
        self._b = builder
        self._x, self._x_stride, self._w, self._terms, self._out, self._out_stride, self._panel = arguments
        self._rows, self._quantized, self._keeping = rows, quantized, keeping
        self._fma = _fma_of(builder)

    def emit(self) -> None:
        b = self._b
        places = _places(b, self._out, self._out_stride, self._rows)
        rows = [b.add(self._x, b.mul(self._x_stride, _const(4 * m))) for m in range(self._rows)]

        stride = _const(LANES if self._quantized else 4 * LANES)

        def term(k: Any, values: list[Any]) -> list[Any]:
            weight, *sums = values
            return [b.add(weight, stride), *self._term(rows, k, weight, sums)]

        _, *sums = _loop(b, self._terms, [self._w, *(b.load(place, align=4) for place in places)], term)
        for place, value in zip(places, sums, strict=True):
            b.store(value, place, align=4)

    def _term(self, rows: list[Any], k: Any, weight: Any, sums: list[Any]) -> list[Any]:
        b, offset = self._b, self._b.mul(k, _const(4))
        weights = [self._weights(weight, v) for v in range(_VECTORS)]
        if self._keeping:
            kept = b.add(self._panel, b.mul(k, _const(4 * _WIDTH * _VECTORS)))
            for v, converted in enumerate(weights):
                b.store(converted, _address(b, kept, _const(4 * _WIDTH * v), _FLOATS), align=4)
        inputs = [_broadcast(b, b.load(_address(b, row, offset, _F32), align=4)) for row in rows]
        pairs = [(x, w) for x in inputs for w in weights]
        return [b.call(self._fma, [x, w, value]) for (x, w), value in zip(pairs, sums, strict=True)]

    def _weights(self, weight: Any, v: int) -> Any:
        b = self._b
        if not self._quantized:
            return b.load(_address(b, weight, _const(4 * _WIDTH * v), _FLOATS), align=4)
        if v == 0:
            _prefetch(b, weight)
        return b.sitofp(b.load(_address(b, weight, _const(_WIDTH * v), _BYTES), align=1), _FLOATS)


class _GroupTile:
    """Emits the loop of one tile of int4 weights over their groups; see `make_group_tile`.

    Within a group all is exact: 32 nibbles (0 to 15) times 16-bit integers, summed in 32 bits. LLVM makes one
    instruction of two neighbours' products and their sum (pmaddwd on x86).
    """

    def __init__(self, builder: Any, arguments: Sequence[Any], rows: int) -> None:
        self._b = builder
        self._x, self._x_stride, self._w, self._groups, self._out, self._out_stride = arguments
        self._rows = rows
        self._fma = _fma_of(builder)

    def emit(self) -> None:
        b = self._b
        places = _places(b, self._out, self._out_stride, self._rows)
        totals = _loop(b, self._groups, [b.load(place, align=4) for place in places], self._group)
        for place, total in zip(places, totals, strict=True):
            b.store(total, place, align=4)

    def _group(self, g: Any, totals: list[Any]) -> list[Any]:
        b = self._b
        group = b.add(self._w, b.mul(g, _const(GROUP_BYTES)))
        starts = [b.add(self._x, b.mul(self._x_stride, _const(m))) for m in range(self._rows)]
        rows = [b.add(start, b.mul(g, _const(ROUNDED_BYTES))) for start in starts]
        sums = [ir.Constant(_WORDS, [0] * _WIDTH)] * len(totals)
        sums = _loop(b, _const(GROUP_TERMS // 8), sums, lambda t, values: self._word(group, rows, t, values))
        factors = [self._factors(group, part) for part in range(2 * _VECTORS)]
        updated = []
        for at, (total, value) in enumerate(zip(totals, sums, strict=True)):
            (m, v), products = divmod(at, _VECTORS), b.sitofp(value, _FLOATS)
            step, worth = (self._input(rows[m], _const(STEP_OFFSET + 4 * i), _F32) for i in range(2))
            scaled = b.call(self._fma, [b.fmul(products, step), factors[v], total])
            updated.append(b.call(self._fma, [worth, factors[_VECTORS + v], scaled]))
        return updated

    def _word(self, group: Any, rows: list[Any], t: Any, sums: list[Any]) -> list[Any]:
        """Eight terms, two at a time."""
        b = self._b
        start = b.add(group, b.add(b.mul(t, _const(4 * LANES)), _const(4 * LANES)))
        _prefetch(b, start)
        words = [b.load(_address(b, start, _const(4 * _WIDTH * v), _WORDS), align=1) for v in range(_VECTORS)]
        for pair in range(4):
            shift = ir.Constant(_WORDS, [4 * pair] * _WIDTH)
            nibbles = [b.bitcast(b.and_(b.lshr(word, shift), _NIBBLES), _SHORTS) for word in words]
            place = b.add(b.mul(t, _const(16)), _const(4 * pair))
            inputs = [b.bitcast(self._input(row, place, _I32), _SHORTS) for row in rows]
            products = [self._pair_sums(x, w) for x in inputs for w in nibbles]
            sums = [b.add(value, product) for value, product in zip(sums, products, strict=True)]
        return sums

    def _pair_sums(self, x: Any, w: Any) -> Any:
        b, wide = self._b, ir.VectorType(_I32, 2 * _WIDTH)
        products = b.mul(b.sext(x, wide), b.sext(w, wide))
        picks = [ir.Constant(_WORDS, [2 * i + odd for i in range(_WIDTH)]) for odd in range(2)]
        return b.add(*(b.shuffle_vector(products, products, pick) for pick in picks))

    def _input(self, row: Any, offset: Any, of: Any) -> Any:
        return _broadcast(self._b, self._b.load(_address(self._b, row, offset, of), align=4))

    def _factors(self, group: Any, part: int) -> Any:
        """Eight of a group's scales or least values: bfloat16, the upper half of a float32."""
        b = self._b
        upper = b.load(_address(b, group, _const(2 * _WIDTH * part), ir.VectorType(_I16, _WIDTH)), align=1)
        return b.bitcast(b.shl(b.zext(upper, _WORDS), ir.Constant(_WORDS, [16] * _WIDTH)), _FLOATS)


def make_tile(rows: int, *, quantized: bool, keeping: bool = False) -> Any:
    """A function for compiled code: add a tile of products, `out[m, lane] += sum over k of x[m, k] * w[k, lane]`.

    Called with the address of x, its row stride in floats; the address of w, `[terms, 16]`; the number of terms k, at
    least 1; the address of out, its row stride in floats; and the address of a panel. w holds float32, or int8 if
    `quantized`; its values are left in the panel, float32 `[terms, 16]`, if `keeping`.
    """

    @instruction
    def tile(  # numba takes a parameter's name for a signature, so each is spelt out
        _context: Any, x: Any, x_stride: Any, w: Any, terms: Any, out: Any, out_stride: Any, panel: Any
    ) -> tuple[Any, _Codegen]:
        def generate(context: Any, builder: Any, _signature: Any, values: Sequence[Any]) -> Any:
            _Tile(builder, values, rows, quantized=quantized, keeping=keeping).emit()
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return tile


def make_group_tile(rows: int) -> Any:
    """A function for compiled code: add the products of rounded activation rows with int4 weights, 16 rows of them.

    `out[m, lane] += sum over groups of (integers . nibbles) * step * scale + worth * least`. Called with the address of
    the activations (`fast_records.ROUNDED_BYTES`), their row stride in bytes; the address of the weights
    (`fast_records.GROUP_BYTES`), the number of groups, at least 1; the address of out, its row stride in floats.
    """

    @instruction
    def tile(
        _context: Any, x: Any, x_stride: Any, w: Any, groups: Any, out: Any, out_stride: Any
    ) -> tuple[Any, _Codegen]:
        def generate(context: Any, builder: Any, _signature: Any, values: Sequence[Any]) -> Any:
            _GroupTile(builder, values, rows).emit()
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), generate

    return tile

"""Vector instructions for numba's compiled code, written as LLVM IR: products of small tiles, memory, atomics.

numba's own loops leave it to LLVM how a sum is ordered. Here every sum runs over its terms one after the other, in
its own vector lane, with one fused multiply-add a term. So a result does not depend on what else is computed
beside it: one row, six rows or a whole prompt give the same bits for a row. All addresses are int64, in bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from daemon.engine.fast_jit import instruction

TILE_ROWS = 6
"""Most rows of a tile: 6 rows of 2 vectors fill 12 of the 16 vector registers of AVX2."""

_WIDTH = 8
_VECTORS = 2
_PREFETCH_BYTES = 4096
"""How far ahead int8 weights are asked for; measured, it brings a fifth to a half more bytes a second."""

_F32, _I8, _I32, _I64 = ir.FloatType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_FLOATS, _BYTES = ir.VectorType(_F32, _WIDTH), ir.VectorType(_I8, _WIDTH)

_Codegen = Callable[[Any, Any, Any, Sequence[Any]], Any]


def _address(builder: Any, base: Any, offset: Any, of: Any) -> Any:
    return builder.inttoptr(builder.add(base, offset), ir.PointerType(of))


def _const(value: int) -> Any:
    return ir.Constant(_I64, value)


def _declare(module: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


class _Tile:
    """Emits the loop of one tile: `out[m, lane] += sum over k of x[m, k] * w[k, lane]`, 16 lanes, `rows` rows."""

    def __init__(self, builder: Any, arguments: Sequence[Any], rows: int, *, quantized: bool) -> None:
        self._b = builder
        self._x, self._x_stride, self._w, self._w_stride, self._count, self._out, self._out_stride = arguments
        self._rows, self._quantized = rows, quantized
        self._fma = _declare(builder.module, f"llvm.fmuladd.v{_WIDTH}f32", _FLOATS, [_FLOATS] * 3)

    def emit(self) -> None:
        places = [[self._out_place(m, v) for v in range(_VECTORS)] for m in range(self._rows)]
        sums = [[self._b.load(place, align=4) for place in row] for row in places]
        sums = self._loop(sums)
        for row, values in zip(places, sums, strict=True):
            for place, value in zip(row, values, strict=True):
                self._b.store(value, place, align=4)

    def _out_place(self, m: int, v: int) -> Any:
        row = self._b.add(self._out, self._b.mul(self._out_stride, _const(4 * m)))
        return _address(self._b, row, _const(4 * _WIDTH * v), _FLOATS)

    def _loop(self, sums: list[list[Any]]) -> list[list[Any]]:
        b, before = self._b, self._b.block
        rows = [b.add(self._x, b.mul(self._x_stride, _const(4 * m))) for m in range(self._rows)]
        body, after = b.append_basic_block("tile"), b.append_basic_block("tile.end")
        b.branch(body)
        b.position_at_end(body)
        k, weight = b.phi(_I64), b.phi(_I64)
        k.add_incoming(_const(0), before)
        weight.add_incoming(self._w, before)
        current = [[self._phi(value, before) for value in row] for row in sums]
        updated = self._term(rows, k, weight, current)
        following = b.add(k, _const(1))
        k.add_incoming(following, b.block)
        weight.add_incoming(b.add(weight, self._w_stride), b.block)
        for row, values in zip(current, updated, strict=True):
            for phi, value in zip(row, values, strict=True):
                phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", following, self._count), body, after)
        b.position_at_end(after)
        return updated

    def _phi(self, value: Any, block: Any) -> Any:
        phi = self._b.phi(_FLOATS)
        phi.add_incoming(value, block)
        return phi

    def _term(self, rows: list[Any], k: Any, weight: Any, sums: list[list[Any]]) -> list[list[Any]]:
        b, offset = self._b, self._b.mul(k, _const(4))
        weights = [self._weights(weight, v) for v in range(_VECTORS)]
        updated = []
        for row, values in zip(rows, sums, strict=True):
            x = self._broadcast(b.load(_address(b, row, offset, _F32), align=4))
            updated.append([b.call(self._fma, [x, w, value]) for w, value in zip(weights, values, strict=True)])
        return updated

    def _weights(self, weight: Any, v: int) -> Any:
        b = self._b
        if not self._quantized:
            return b.load(_address(b, weight, _const(4 * _WIDTH * v), _FLOATS), align=4)
        if v == 0:
            prefetch = _declare(b.module, "llvm.prefetch.p0", ir.VoidType(), [ir.PointerType(_I8), _I32, _I32, _I32])
            read, keep, data = ir.Constant(_I32, 0), ir.Constant(_I32, 3), ir.Constant(_I32, 1)
            b.call(prefetch, [_address(b, weight, _const(_PREFETCH_BYTES), _I8), read, keep, data])
        return b.sitofp(b.load(_address(b, weight, _const(_WIDTH * v), _BYTES), align=1), _FLOATS)

    def _broadcast(self, value: Any) -> Any:
        undefined = ir.Constant(_FLOATS, ir.Undefined)
        vector = self._b.insert_element(undefined, value, ir.Constant(_I32, 0))
        return self._b.shuffle_vector(vector, undefined, ir.Constant(ir.VectorType(_I32, _WIDTH), [0] * _WIDTH))


def make_tile(rows: int, *, quantized: bool) -> Any:
    """A function for compiled code: add a tile of products, `out[m, lane] += sum over k of x[m, k] * w[k, lane]`.

    Called with the address of x, its row stride in floats; the address of w, its stride in bytes; the number of
    terms k, at least 1; the address of out, its row stride in floats. w holds float32, or int8 if `quantized`.
    """

    @instruction
    def tile(  # numba takes a parameter's name for a signature, so each is spelt out
        _context: Any,
        x: Any,
        x_stride: Any,
        w: Any,
        w_stride: Any,
        count: Any,
        out: Any,
        out_stride: Any,
    ) -> tuple[Any, _Codegen]:
        def generate(context: Any, builder: Any, _signature: Any, values: Sequence[Any]) -> Any:
            _Tile(builder, values, rows, quantized=quantized).emit()
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return tile


@instruction
def convert_int8(_context: Any, source: Any, target: Any, count: Any) -> Any:
    """The `count` int8 at an address as float32 at another; `count` is a positive multiple of 16."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        b, before, lanes = builder, builder.block, _WIDTH * _VECTORS
        body, after = b.append_basic_block("convert"), b.append_basic_block("convert.end")
        b.branch(body)
        b.position_at_end(body)
        done = b.phi(_I64)
        done.add_incoming(_const(0), before)
        quantized = b.load(_address(b, values[0], done, ir.VectorType(_I8, lanes)), align=1)
        floats = b.sitofp(quantized, ir.VectorType(_F32, lanes))
        b.store(floats, _address(b, values[1], b.mul(done, _const(4)), floats.type), align=4)
        following = b.add(done, _const(lanes))
        done.add_incoming(following, body)
        b.cbranch(b.icmp_signed("<", following, values[2]), body, after)
        b.position_at_end(after)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate

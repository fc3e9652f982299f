"""Memory by address for numba's compiled code: arrays, records, and atomic integers for threads to meet on.

All addresses are int64, in bytes. Atomic operations are sequentially consistent, on int64.
"""

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.np.numpy_support import carray

from daemon.engine.fast_jit import compiled, instruction
from daemon.engine.fast_records import ENGINE, MATRIX, SEGMENT

_ORDER = "seq_cst"
_ENGINE, _MATRIX, _SEGMENT = (numba.from_dtype(kind) for kind in (ENGINE, MATRIX, SEGMENT))
_pointer: Any = types.CPointer  # it has no annotations
_FLOATS, _INTEGERS = _pointer(types.float32), _pointer(types.int64)
_SHORTS, _WORDS = _pointer(types.int16), _pointer(types.int32)

sched_yield = types.ExternalFunction("sched_yield", types.int32())
"""libc: let another thread have this core."""
sem_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
"""libc: sleep until the semaphore at an address is above 0 and take one; -1 where a signal woke it."""
sem_post = types.ExternalFunction("sem_post", types.int32(types.int64))
"""libc: add one to the semaphore at an address and wake a sleeper."""


def _reference(kind: Any) -> Any:
    """A function that takes an address for a pointer or a record of the given type."""

    @instruction
    def at(_context: Any, address: Any) -> Any:
        def generate(ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], ctx.get_value_type(kind))

        return kind(types.int64), generate

    return at


engine_at, matrix_at, segment_at = _reference(_ENGINE), _reference(_MATRIX), _reference(_SEGMENT)
"""The record (`fast_records`) at an address."""
_floats_at, _integers_at = _reference(_FLOATS), _reference(_INTEGERS)
_shorts_at, _words_at = _reference(_SHORTS), _reference(_WORDS)


@compiled
def floats(address: Any, count: Any) -> Any:
    """The `count` float32 at an address, as an array."""
    return carray(_floats_at(address), count)


@compiled
def integers(address: Any, count: Any) -> Any:
    """The `count` int64 at an address, as an array."""
    return carray(_integers_at(address), count)


@compiled
def short_integers(address: Any, count: Any) -> Any:
    """The `count` int16 at an address, as an array."""
    return carray(_shorts_at(address), count)


@compiled
def bits_of_floats(address: Any, count: Any) -> Any:
    """The `count` float32 at an address, as an array of their representations, int32."""
    return carray(_words_at(address), count)


@instruction
def load_int8(_context: Any, address: Any) -> Any:
    """The int8 at an address."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(8))), align=1)

    return types.int8(types.int64), generate


@instruction
def float_of_bits(_context: Any, bits: Any) -> Any:
    """The float32 whose representation is an int32."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@instruction
def bits_of_float(_context: Any, value: Any) -> Any:
    """The representation of a float32, an int32."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@instruction
def atomic_add(_context: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address; what it was before."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        return builder.atomic_rmw("add", pointer, arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), generate


@instruction
def atomic_load(_context: Any, address: Any) -> Any:
    """The int64 at an address."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        return builder.load_atomic(pointer, _ORDER, 8)

    return types.int64(types.int64), generate


@instruction
def atomic_store(_context: Any, address: Any, value: Any) -> Any:
    """Write an int64 to an address."""

    def generate(ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(64)))
        builder.store_atomic(arguments[1], pointer, _ORDER, 8)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), generate

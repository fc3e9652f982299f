"""Single memory accesses for numba's compiled code, by address: plain ones, and atomic ones for threads to meet on.

All addresses are int64, in bytes. Atomic operations are sequentially consistent, on int64.
"""

from typing import Any

from llvmlite import ir
from numba import types

from daemon.engine.fast_jit import instruction

_ORDER = "seq_cst"

sched_yield = types.ExternalFunction("sched_yield", types.int32())
"""libc: let another thread have this core."""
sem_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
"""libc: sleep until the semaphore at an address is above 0 and take one; -1 where a signal woke it."""
sem_post = types.ExternalFunction("sem_post", types.int32(types.int64))
"""libc: add one to the semaphore at an address and wake a sleeper."""


@instruction
def load_int8(_context: Any, address: Any) -> Any:
    """The int8 at an address."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.PointerType(ir.IntType(8))), align=1)

    return types.int8(types.int64), generate


@instruction
def load_float(_context: Any, address: Any) -> Any:
    """The float32 at an address."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.PointerType(ir.FloatType())), align=4)

    return types.float32(types.int64), generate


@instruction
def store_float(_context: Any, address: Any, value: Any) -> Any:
    """Write a float32 to an address."""

    def generate(ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, number = arguments
        builder.store(number, builder.inttoptr(target, ir.PointerType(ir.FloatType())), align=4)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.float32), generate


@instruction
def float_of_bits(_context: Any, bits: Any) -> Any:
    """The float32 whose representation is an int32."""

    def generate(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


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

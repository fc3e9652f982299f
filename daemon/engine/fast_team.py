"""The threads that compute one step together: the caller's own, and helpers that sleep between the steps.

Within a step they meet at barriers and take tasks from a common counter, so a core that is busy with something else
does less. Helpers never hold the interpreter's lock: they wait for work in compiled code, on a semaphore each, and
take no time of a core while they sleep. Only one step runs at a time.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.engine.fast_jit import compiled
from daemon.engine.fast_memory import atomic_add, atomic_load, atomic_store, sched_yield, sem_post, sem_wait

Control = npt.NDArray[np.int64]
"""What the members of a team meet on; zeros at first, shape `[CONTROL_ITEMS + SEMAPHORE_ITEMS * team size]`."""

MAX_THREADS = 64

_SIZE, _ARRIVED, _ROUND, _NEXT, _STOP = 0, 8, 16, 24, 32
_CONTROL_ITEMS = 40
_SEMAPHORE_ITEMS = 8  # sem_t has 32 bytes on 64-bit Linux; a cache line each, all zeros is a semaphore at 0
_SPINS = 2000
"""How often a waiting member looks before it offers its core to others; some ten microseconds."""


def new_control(size: int) -> Control:
    """The control block of a team of `size` members."""
    control = np.zeros(_CONTROL_ITEMS + _SEMAPHORE_ITEMS * size, np.int64)
    control[_SIZE] = size
    return control


@compiled
def team_size(control: Any) -> Any:
    """How many members compute."""
    return control[_SIZE]


@compiled
def meet(control: Any) -> None:
    """Wait until all members are here; the task counter then starts from 0 again."""
    base, size = control.ctypes.data, control[_SIZE]
    now = atomic_load(base + 8 * _ROUND)
    if atomic_add(base + 8 * _ARRIVED, 1) == size - 1:
        atomic_store(base + 8 * _ARRIVED, 0)
        atomic_store(base + 8 * _NEXT, 0)
        atomic_add(base + 8 * _ROUND, 1)
        return
    spins = 0
    while atomic_load(base + 8 * _ROUND) == now:
        spins += 1
        if spins > _SPINS:
            sched_yield()


@compiled
def take(control: Any, count: int) -> Any:
    """Take the next `count` tasks of this phase; the first one's number, which may be beyond the last there is."""
    return atomic_add(control.ctypes.data + 8 * _NEXT, count)


@compiled
def wake_helpers(control: Any) -> None:
    """Start the helpers on the step that was prepared."""
    for member in range(1, control[_SIZE]):
        sem_post(control.ctypes.data + 8 * (_CONTROL_ITEMS + _SEMAPHORE_ITEMS * member))


@compiled
def wait_for_work(control: Any, member: int) -> Any:
    """Sleep until there is a step to compute; False where the team is dissolved."""
    while sem_wait(control.ctypes.data + 8 * (_CONTROL_ITEMS + _SEMAPHORE_ITEMS * member)) != 0:
        pass  # a signal handler ran in this thread
    return atomic_load(control.ctypes.data + 8 * _STOP) == 0


def start_helpers(control: Control, serve: Callable[[int], None]) -> None:
    """Start the helper threads, each in `serve(member)`, which must wait for work until the team is dissolved."""
    for member in range(1, int(control[_SIZE])):
        threading.Thread(target=serve, args=(member,), name=f"leveret-compute-{member}", daemon=True).start()


def dissolve(control: Control) -> None:
    """Let the helpers end. No step may be running."""
    control[_STOP] = 1
    wake_helpers(control)

"""The threads that compute one step together: the caller's own, and helpers that sleep between the steps.

A step is a row of phases, a phase a number of tasks. Whoever has time takes the next task of the current phase; who
finishes the last one opens the next phase. Nobody waits for a member, only for a task that it has begun: a helper that
is still asleep, or whose core is busy with something else, does less and holds up nobody. Helpers never take the
interpreter's lock, and no time of a core while they sleep.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.engine.fast_jit import compiled
from daemon.engine.fast_memory import atomic_add, atomic_load, atomic_store, sched_yield, sem_post, sem_wait

Control = npt.NDArray[np.int64]
"""What the members of a team meet on: a ticket (phase and next task), tasks done, helpers at work, a stop mark,
semaphores."""

MAX_THREADS = 64

CLOSED = 1 << 30
"""The phase that no step has: there is no work now."""

_TICKET, _DONE, _INSIDE, _STOP, _SEMAPHORES = 0, 64, 128, 192, 256  # in bytes; a cache line each
_SEMAPHORE_BYTES = 64  # sem_t has 32 bytes on 64-bit Linux; all zeros is a semaphore at 0
_PHASE_BITS = 32
_SPINS = 2000
"""How often a waiting member looks before it offers its core to others; some ten microseconds."""


def new_control(members: int) -> Control:
    """The control block of a team without a step."""
    control = np.zeros((_SEMAPHORES + _SEMAPHORE_BYTES * members) // 8, np.int64)
    control[_TICKET // 8] = CLOSED << _PHASE_BITS
    return control


@compiled
def begin(control: Any, members: Any) -> None:
    """Open the first phase of a prepared step and wake the helpers."""
    atomic_store(control + _DONE, 0)
    atomic_store(control + _TICKET, 0)
    for member in range(1, members):
        sem_post(control + _SEMAPHORES + _SEMAPHORE_BYTES * member)


@compiled
def take(control: Any) -> tuple[Any, Any]:
    """The current phase and its next task, which may be beyond its last; no other member gets the same."""
    ticket = atomic_add(control + _TICKET, 1)
    return ticket >> _PHASE_BITS, ticket & ((1 << _PHASE_BITS) - 1)


@compiled
def finish(control: Any, tasks: Any, following: Any) -> None:
    """Report a task done. The last one of a phase's `tasks` opens the following phase; CLOSED ends the step."""
    if atomic_add(control + _DONE, 1) == tasks - 1:
        atomic_store(control + _DONE, 0)
        atomic_store(control + _TICKET, following << _PHASE_BITS)


@compiled
def end(control: Any) -> None:
    """Wait until no helper can still look at the step, whose place the next one takes."""
    while atomic_load(control + _INSIDE) > 0:
        sched_yield()


@compiled
def wait(control: Any, phase: Any) -> None:
    """Wait until the other members' tasks of a phase are done."""
    spins = 0
    while atomic_load(control + _TICKET) >> _PHASE_BITS == phase:
        spins += 1
        if spins > _SPINS:
            sched_yield()


@compiled
def wait_for_work(control: Any, member: Any) -> Any:
    """Sleep until there is a step to help with; False where the team is dissolved. `leave` must follow a True."""
    while sem_wait(control + _SEMAPHORES + _SEMAPHORE_BYTES * member) != 0:
        pass  # a signal handler ran in this thread
    atomic_add(control + _INSIDE, 1)
    return atomic_load(control + _STOP) == 0


@compiled
def leave(control: Any) -> None:
    """A helper is through with a step."""
    atomic_add(control + _INSIDE, -1)


@compiled
def dissolve(control: Any, members: Any) -> None:
    """Let the helpers end. No step may be running."""
    atomic_store(control + _STOP, 1)
    for member in range(1, members):
        sem_post(control + _SEMAPHORES + _SEMAPHORE_BYTES * member)


def start_helpers(members: int, serve: Callable[[int], None]) -> list[threading.Thread]:
    """Start the helper threads, each in `serve(member)`, which must wait for work until the team is dissolved."""
    threads = [
        threading.Thread(target=serve, args=(member,), name=f"leveret-compute-{member}", daemon=True)
        for member in range(1, members)
    ]
    for thread in threads:
        thread.start()
    return threads

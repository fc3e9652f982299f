"""The machine: processor, threads, memory, clock."""

import ctypes
import platform
from datetime import UTC, datetime
from pathlib import Path

from daemon.doctor.findings import Finding, fail, ok, warn
from daemon.doctor.memory import needed_bytes, read_memory

_EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""Before this the program did not exist."""
_UNSYNCHRONISED = 0x0040
"""STA_UNSYNC. Source: adjtimex(2), linux/timex.h."""
_TIMEX_BYTES, _TIMEX_STATUS_AT = 208, 40
"""Size of `struct timex` and the place of its `status` on 64-bit Linux."""
_TIGHT = 0.8
"""Share of the free memory beyond which there is little room left."""


def check_processor(cpuinfo: Path = Path("/proc/cpuinfo"), machine: str = platform.machine()) -> Finding:
    """Are there the vector instructions that the fast kernels live on?"""
    if machine not in {"x86_64", "AMD64"}:
        return warn("processor", f"{machine}, which this release was not measured on", "run `leveret bench` and judge")
    flags = _flags(cpuinfo.read_text("utf-8"))
    missing = sorted({"avx2", "fma"} - flags)
    if missing:
        return warn(
            "processor", f"no {' and no '.join(missing)}", "expect a fraction of the speed; use another machine"
        )
    more = sorted(flag for flag in flags if flag in {"avx512f", "avx512_vnni", "avx_vnni", "amx_int8"})
    return ok("processor", f"avx2 and fma are there{', also ' + ', '.join(more) if more else ''}")


def _flags(cpuinfo: str) -> set[str]:
    lines = (line for line in cpuinfo.splitlines() if line.startswith("flags"))
    return set(next(lines, "").partition(":")[2].split())


def check_threads(wanted: int | None, quota: int) -> Finding:
    """`wanted` is the setting, `quota` what the machine and its cgroup allow."""
    if wanted is None:
        return ok("threads", f"{quota} in use, as many as the processor quota allows")
    if wanted > quota:
        return warn("threads", f"LEVERET_THREADS is {wanted}, the quota {quota}", f"set it to {quota} or unset it")
    return ok("threads", f"LEVERET_THREADS is {wanted}, the quota {quota}")


def check_memory(parameters: int, weights: str, prompt_cache_bytes: int, root: Path = Path("/")) -> Finding:
    """Is there room for one more daemon with so many parameters in weights of this kind?"""
    memory = read_memory(root)
    need = needed_bytes(parameters, weights, prompt_cache_bytes)
    seen = f"a daemon with {weights} weights takes up to {_mib(need)}, {_mib(memory.free)} are free"
    if memory.limit is not None:
        seen += f" (the group's limit is {_mib(memory.limit)})"
    if need > memory.free:
        return fail(
            "memory", seen, "raise the limit, take a smaller model or int8 weights, or lower LEVERET_PROMPT_CACHE_BYTES"
        )
    if need > _TIGHT * memory.free:
        return warn("memory", seen, "leave more room: beside it, other processes could be killed")
    return ok("memory", seen)


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def check_clock(now: datetime, *, synchronised: bool | None) -> Finding:
    """Time budgets count from the timestamp that the requester's machine gave; so clocks must agree."""
    advice = "keep the clock right with NTP: a request's time budget counts from the requester's timestamp"
    if now < _EARLIEST:
        return fail("clock", f"it shows {now:%Y-%m-%d}", advice)
    if synchronised is None:
        return warn("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC; whether it is synchronised is unknown here", advice)
    if not synchronised:
        return warn("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, not synchronised", advice)
    return ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, synchronised")


def clock_is_synchronised() -> bool | None:
    """Ask the kernel, changing nothing; None where it cannot be asked."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    answer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ask(answer) < 0:
        return None
    status = int.from_bytes(answer.raw[_TIMEX_STATUS_AT : _TIMEX_STATUS_AT + 4], "little")
    return not status & _UNSYNCHRONISED

"""How much memory this process may still take, and how much a daemon will need."""

from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60
"""cgroup v1 writes a huge number where there is no limit."""
_COMPILED_BASE_BYTES = 300 << 20
_TORCH_BASE_BYTES = 600 << 20
"""Interpreter, libraries, tokenizer, buffers: the most that daemons held beside their weights, with some room."""
_WEIGHT_BYTES = {"int4": 0.85, "int8": 1.05, "bfloat16": 2.0, "float32": 4.0}
"""Bytes for a parameter, scales included."""


@dataclass(frozen=True)
class Memory:
    """Bytes: `free` is what can still be taken, `limit` the group's limit, None without one."""

    free: int
    limit: int | None


def read_memory(root: Path = Path("/")) -> Memory:
    """What the machine has available, or less where a cgroup (version 2 or 1) allows less."""
    available = _meminfo(root / "proc/meminfo", "MemAvailable")
    rooms = [room for room in (_version_2(root), _version_1(root)) if room is not None]
    limits = [limit for limit, _ in rooms]
    free = min([available, *(max(0, limit - used) for limit, used in rooms)])
    return Memory(free, min(limits, default=None))


def needed_bytes(parameters: int, weights: str, prompt_cache_bytes: int) -> int:
    """What a daemon will take with a model of `parameters` weights of the kind `weights`."""
    base = _COMPILED_BASE_BYTES if weights.startswith("int") else _TORCH_BASE_BYTES
    return int(parameters * _WEIGHT_BYTES[weights]) + prompt_cache_bytes + base


def _meminfo(path: Path, name: str) -> int:
    for line in path.read_text("ascii").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise OSError(f"{path} has no line {name}")


def _version_2(root: Path) -> tuple[int, int] | None:
    return _tightest(root, "", "memory.max", "memory.current", "sys/fs/cgroup")


def _version_1(root: Path) -> tuple[int, int] | None:
    return _tightest(root, "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "sys/fs/cgroup/memory")


def _tightest(root: Path, controller: str, limit: str, usage: str, mount: str) -> tuple[int, int] | None:
    """The limit and use of the group with the least room, from this process's group up to the mount; None without."""
    base = root / mount
    group = base / _group_of_this_process(root, controller)
    found = [
        (most, used)
        for place in (group, *group.parents)
        if place.is_relative_to(base)
        and (most := _number(place / limit))
        and (used := _number(place / usage)) is not None
    ]
    return min(found, key=lambda room: room[0] - room[1], default=None)


def _group_of_this_process(root: Path, controller: str) -> str:
    """The path below the mount, from `/proc/self/cgroup`; a container sees itself at the top."""
    path = root / "proc/self/cgroup"
    for line in path.read_text("ascii").splitlines() if path.exists() else []:
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group.lstrip("/")
    return ""


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, such as `max`, or where it stands for no limit."""
    try:
        value = int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
    return value if value < _UNLIMITED else None

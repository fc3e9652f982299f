"""How many threads may compute: what the processor quota of the control group allows, not what the host has.

More threads than the quota are throttled in the middle of their work, all together, and are many times slower.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

log = logging.getLogger(__name__)

_UNIFIED = "sys/fs/cgroup"
_LEGACY = ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")
"""Where version 1 mounts its `cpu` controller."""


def effective_threads(wanted: int | None = None, root: Path = Path("/"), available: int | None = None) -> int:
    """The number of threads to compute with, at least 1.

    `wanted`, an explicit setting, wins. Else the processors that this process may run on (`available`), or fewer where
    the quota allows less; a fraction is rounded down. `root` is where `proc` and `sys` are found.
    """
    if wanted is not None:
        log.info("computing with %d threads, as configured", wanted)
        return wanted
    processors = available or _affinity()
    quota = processor_quota(root)
    threads = processors if quota is None else max(1, min(processors, int(quota)))
    limit = "no quota" if quota is None else f"a quota of {quota:g}"
    log.info("computing with %d threads: %d processors, %s", threads, processors, limit)
    return threads


def processor_quota(root: Path = Path("/")) -> float | None:
    """The tightest processor quota of this process's control group and those above it; None where there is none."""
    quotas = [*_unified_quotas(root), *_legacy_quotas(root)]
    return min(quotas, default=None)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unified_quotas(root: Path) -> Iterator[float]:
    """Version 2 of control groups: `cpu.max` holds `QUOTA PERIOD` in microseconds, or `max` for no quota."""
    for folder in _folders(root, "", [_UNIFIED]):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            yield int(words[0]) / int(words[1])


def _legacy_quotas(root: Path) -> Iterator[float]:
    """Version 1 of control groups: two files, a quota of -1 for none."""
    for folder in _folders(root, "cpu", _LEGACY):
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period)


def _folders(root: Path, controller: str, mounts: Sequence[str]) -> Iterator[Path]:
    """The control group's folder and those above it, below each mount; in a container it sees itself at the top."""
    path = PurePosixPath(_group(root, controller))
    for mount in mounts:
        for part in (path, *path.parents):
            yield root / mount / str(part).lstrip("/")


def _group(root: Path, controller: str) -> str:
    """The group's path from `/proc/self/cgroup`: lines of `ID:CONTROLLERS:PATH`, without controllers in version 2."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            return path
    return "/"


def _read(path: Path) -> str:
    """A file's text, empty where there is none."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

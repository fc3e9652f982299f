"""How many threads compute: quotas of both cgroup versions, affinity, the explicit setting."""

from pathlib import Path

import pytest

from daemon.engine.threads import effective_threads, processor_quota


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


@pytest.mark.parametrize(
    ("cpu_max", "quota", "threads"),
    [
        ("200000 100000\n", 2.0, 2),
        ("max 100000\n", None, 8),
        ("50000 100000\n", 0.5, 1),
        ("350000 100000\n", 3.5, 3),
        ("1600000 100000\n", 16.0, 8),
        ("garbage\n", None, 8),
        ("100000 0\n", None, 8),
    ],
)
def test_unified_quota(tmp_path: Path, cpu_max: str, quota: float | None, threads: int) -> None:
    """A fraction is rounded down to at least one thread, `max` and nonsense are no quota."""
    root = _write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": cpu_max})
    assert processor_quota(root) == quota
    assert effective_threads(None, root, available=8) == threads


@pytest.mark.parametrize(("quota", "threads"), [("-1", 8), ("150000", 1), ("400000", 4)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_legacy_quota(tmp_path: Path, quota: str, threads: int, mount: str) -> None:
    """Version 1 keeps quota and period in two files, and -1 means none."""
    base = f"sys/fs/cgroup/{mount}/docker/a1"
    files = {
        "proc/self/cgroup": "5:memory:/docker/a1\n4:cpu,cpuacct:/docker/a1\n",
        f"{base}/cpu.cfs_quota_us": f"{quota}\n",
        f"{base}/cpu.cfs_period_us": "100000\n",
    }
    assert effective_threads(None, _write(tmp_path, files), available=8) == threads


def test_a_parent_group_can_be_tighter(tmp_path: Path) -> None:
    """Slices of systemd and pods of Kubernetes put the quota on a group above the process's own."""
    files = {
        "proc/self/cgroup": "0::/system.slice/leveret.service\n",
        "sys/fs/cgroup/system.slice/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/system.slice/leveret.service/cpu.max": "400000 100000\n",
    }
    assert effective_threads(None, _write(tmp_path, files), available=8) == 2


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path) -> None:
    """The path in /proc may be the host's while the mount shows the container's own group."""
    files = {"proc/self/cgroup": "0::/docker/a1\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}
    assert effective_threads(None, _write(tmp_path, files), available=8) == 3


def test_without_any_file_the_affinity_counts(tmp_path: Path) -> None:
    """A machine without cgroups."""
    assert processor_quota(tmp_path) is None
    assert effective_threads(None, tmp_path, available=3) == 3


def test_the_affinity_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`taskset` and cpusets narrow the processors without any quota."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 5})
    assert effective_threads(None, tmp_path) == 2


def test_an_explicit_setting_wins(tmp_path: Path) -> None:
    """The operator may know better than the quota."""
    root = _write(tmp_path, {"sys/fs/cgroup/cpu.max": "100000 100000\n"})
    assert effective_threads(6, root, available=4) == 6

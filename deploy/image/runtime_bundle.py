"""An OCI runtime bundle (runtime-spec 1.0, config.json) of an image: locked down as deploy/kubernetes asks for it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from container import Image

_MASKED = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

RESOLVER = "192.0.2.1"
"""A name server that does not exist (RFC 5737): whoever looks up a name is seen trying to reach it."""


def write_bundle(bundle: Path, root: str, image: Image, environment: Mapping[str, str]) -> None:
    """Write `config.json`: the image's command as its user, a read-only tree, no capability, the network shared."""
    resolv = bundle / "resolv.conf"
    resolv.write_text(f"nameserver {RESOLVER}\n", encoding="utf-8")
    uid, _, gid = image.user.partition(":")
    everything = {**image.environment, **environment}
    config = {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": int(uid), "gid": int(gid)},
            "args": list(image.command),
            "env": [f"{name}={value}" for name, value in everything.items()],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": root, "readonly": True},
        "hostname": "leveret",
        "mounts": _mounts(str(resolv)),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }
    (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _mounts(resolv: str) -> list[dict[str, Any]]:
    safe = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*safe, "mode=1777"]},  # noqa: S108
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": [*safe, "mode=1777"]},  # noqa: S108
        {"destination": "/etc/resolv.conf", "type": "bind", "source": resolv, "options": ["bind", "ro"]},
    ]

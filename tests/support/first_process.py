"""A command as process 1 of a process namespace of its own, as containers run it.

The kernel gives process 1 no default actions: a signal that it does not handle is ignored, and whatever its children
leave behind becomes its own to reap (pid_namespaces(7)).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.confined import become_root


def as_first_process(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command line for it, as root or through sudo, and as this user again inside.

    It ends with the status of `command`, and kills it where it is itself killed. `environment` is added to what sudo
    leaves of this process's own; the home is not root's.
    """
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    this_user = ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--clear-groups"]
    added = [f"{name}={value}" for name, value in {"HOME": Path.home(), **environment}.items()]
    return [*become_root(), *unshare, *this_user, "env", *added, *command]


def first_process(pid: int) -> int | None:
    """The id, as seen from here, of the process 1 that `as_first_process`, running as `pid`, has started."""
    namespaces = len(_namespace_ids(os.getpid()))
    line = [pid]
    while line:
        process = line.pop()
        ids = _namespace_ids(process)
        if len(ids) > namespaces and ids[-1] == 1:
            return process
        line += children(process)
    return None


def children(pid: int) -> list[int]:
    """The ids of the children that `pid` has not reaped, running or not; none where it has ended itself."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except FileNotFoundError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _namespace_ids(pid: int) -> list[int]:
    """The process's id in each nested namespace, from here inwards."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [int(word) for line in lines if line.startswith("NSpid:") for word in line.split()[1:]]

"""The unit's command as the unit confines it, in namespaces of its own: `python -m tests.support.confined MODEL`.

To be started as root in a new network, mount and process namespace (`in_namespaces` says how). It starts a broker on
the namespace's loopback, then the daemon as nobody on a read-only tree, asks it one question, and prints as one JSON
object what it saw. The kernel counts the packets that found no way out: the namespace has no device but the loopback.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from private_broker import PrivateBroker

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "leveret.service"
NOBODY = "65534"
WAIT_SECONDS = 240.0
"""Longest wait for a ready daemon; some seconds are usual, more on a busy machine."""

_CONFINE = """
set -eu
mount -t tmpfs tmpfs /mnt
mkdir /mnt/repo
mount --bind "$ROOT" /mnt/repo
mount -t tmpfs -o mode=1777 tmpfs /var/cache
mount -o remount,bind,ro /mnt/repo
mount -o remount,ro /mnt
mount -o remount,bind,ro /
cd /mnt/repo
exec setpriv --reuid $NOBODY --regid $NOBODY --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"
"""


def become_root() -> list[str]:
    """What a command line must begin with to run as root; namespaces are made by root only."""
    return [] if os.geteuid() == 0 else ["sudo", "--non-interactive", "--preserve-env=PATH"]


def in_namespaces(model: str) -> list[str]:
    """The command that runs this module confined; everything it starts ends with it."""
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "deploy" / "demo")])
    return [
        *become_root(),
        *unshare,
        "env",
        f"PYTHONPATH={path}",
        sys.executable,
        "-m",
        "tests.support.confined",
        model,
    ]


def unit_environment() -> dict[str, str]:
    """What the unit sets, with its cache folder where the namespace has one."""
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith("Environment=")]
    words = " ".join(line.partition("=")[2] for line in lines).replace("%C/leveret", "/var/cache").split()
    return dict(word.split("=", 1) for word in words)


def attempts_outside() -> int:
    """How often a packet found no route, over IPv4 and IPv6."""
    names, values = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Ip:")]
    ipv6 = dict(line.split() for line in Path("/proc/net/snmp6").read_text().splitlines())
    return int(dict(zip(names, values, strict=True))["OutNoRoutes"]) + int(ipv6.get("Ip6OutNoRoutes", 0))


def reach_out() -> None:
    """Do what the daemon must not, so that a counter that counts nothing is noticed."""
    script = "import socket; socket.create_connection(('192.0.2.7', 443), 2)"
    subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)


@contextmanager
def _daemon(settings: Mapping[str, str], log: Path) -> Any:
    environment = {"PATH": os.environ["PATH"], "ROOT": str(ROOT), "NOBODY": NOBODY, "TMPDIR": "/var/cache"}
    command = ["unshare", "--mount", "sh", "-c", _CONFINE, "confine", "/mnt/repo/.venv/bin/python", "-m", "daemon"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment | unit_environment() | settings, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait(reached: Callable[[], object], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"status {process.poll()}:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


def _events(log: Path) -> list[dict[str, Any]]:
    *whole, _ = log.read_bytes().split(b"\n")
    return [json.loads(line) for line in whole if line.startswith(b"{")]


def _get(log: Path, path: str) -> int:
    port = next((event["port"] for event in _events(log) if "health port is open" in event["event"]), None)
    with suppress(OSError):
        return int(urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).status) if port else 0
    return 0


def _status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def _writable(pid: int) -> list[str]:
    """Where the daemon's own view of the tree can be written to, by a probe as its own user."""
    places = "/ /etc /tmp /var /mnt/repo /mnt/repo/.models /var/cache"
    probe = f"for place in {places}; do touch $place/probe && echo $place; done"
    enter = [
        "nsenter",
        "--mount",
        "--target",
        str(pid),
        "setpriv",
        "--reuid",
        NOBODY,
        "--clear-groups",
        "sh",
        "-c",
        probe,
    ]
    return subprocess.run(enter, capture_output=True, text=True, check=False).stdout.split()


def _ask(url: str) -> str:
    command = [sys.executable, "-c", "from daemon.cli import main; main()", "chat", "What is the capital of France?"]
    options = ["--temperature", "0", "--max-new-tokens", "16", "--timeout", "120"]
    environment = os.environ | {"LEVERET_AMQP_URL": url}
    return subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False).stdout


def main(model: str) -> None:
    """Run it all and print what was seen."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as directory, PrivateBroker() as broker:
        log = Path(directory, "log")
        models = "/mnt/repo/.models"
        settings = {"AMQP_URL": broker.url, "MODEL": model, "MODELS_DIR": models, "HEALTH_PORT": "0"}
        settings["WEIGHTS"] = "float32"  # int8 compiles first, for up to a minute; the image's test runs that
        with _daemon({f"LEVERET_{key}": value for key, value in settings.items()}, log) as process:
            _wait(lambda: _get(log, "/readyz") == 200, process, log)
            seen = {"answer": _ask(broker.url), "live": _get(log, "/livez"), "status": _status(process.pid)}
            seen |= {"writable": _writable(process.pid), "attempts": attempts_outside()}
            reach_out()
            seen["attempts_of_others"] = attempts_outside() - int(seen["attempts"])
            process.terminate()
            seen["exit"] = process.wait(60)
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

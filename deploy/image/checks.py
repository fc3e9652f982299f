"""What the image promises, looked at in a running container."""

import json
import time
from collections.abc import Callable

from container import Container, Image, ImageTestFailed

READY_SECONDS = 300.0
"""Longest wait for a ready daemon: on another processor than the build's it compiles first."""

QUESTION = "What is the capital of France?"
COMPILERS = "gcc cc g++ c++ clang ld make cargo rustc"
_ASK = "import sys, urllib.request as u; print(u.urlopen('http://127.0.0.1:8080' + sys.argv[1]).read().decode())"
_REACH_OUT = "import socket; socket.create_connection(('192.0.2.7', 443), 2)"


def expect(what: str, condition: object, found: object = "") -> None:
    """Print what was checked. Raises ImageTestFailed where it is not so."""
    if not condition:
        raise ImageTestFailed(f"not so: {what}: {found}")
    print(f"  ok: {what}", flush=True)


def check_image(image: Image) -> None:
    """What the image says of itself."""
    expect("the user is a number, and not root", image.user.split(":")[0].isdecimal() and image.user[:1] != "0")
    expect("the command is `leveret run`", image.command == ("leveret", "run"), image.command)
    expect("the health check waits 60 s for the start", image.health_start_period_seconds == 60)
    expect("the health check needs no curl", "curl" not in " ".join(image.health_command))
    labels = {"title", "description", "licenses", "version", "revision"}
    found = {name.rpartition(".")[2] for name in image.labels if name.startswith("org.opencontainers.image.")}
    expect("OCI labels are set", labels <= found, image.labels)
    offline = [image.environment.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")]
    expect("the environment is offline", offline == ["1", "1"], offline)


def check_container(container: Container, image: Image) -> None:
    """From the start to the end of one container."""
    await_ready(container)
    report_size(container)
    expect("the compiled code of the build is used", "fast engine loaded" in container.log(), container.log())
    owner = _output(container, "stat", "--format", "%U", "/proc/1")
    expect("it runs as app", owner == "app", owner)
    status = _output(container, "cat", "/proc/1/status").splitlines()
    expect("process 1 has the image's user", f"Uid:\t{image.user.split(':')[0]}\t" in "\n".join(status))
    expect("process 1 has no capabilities", "CapEff:\t0000000000000000" in status)
    for place in ("/", "/models", "/opt/leveret", "/opt/venv"):
        done = container.execute("touch", f"{place}/probe")
        expect(f"{place} is read-only", "Read-only file system" in done.stderr, done)
    done = container.execute("sh", "-c", f"command -v {COMPILERS}")
    expect("there is no compiler", done.stdout == "", done.stdout)
    check_answer(container, image)
    expect("SIGTERM ends it with 0", (ended := container.stop()) == 0, ended)


def check_answer(container: Container, image: Image) -> None:
    """It is healthy, it answers, and whatever it did, it never tried to reach anything but the broker."""
    health = container.execute(*image.health_command)
    expect("the health check passes", health.returncode == 0, health)
    expect("/readyz says ok", _output(container, "python3", "-c", _ASK, "/readyz").strip() == "ok")
    options = ["--temperature", "0", "--max-new-tokens", "20"]
    answer = container.execute("leveret", "chat", *options, QUESTION)
    expect(f"it answers: {answer.stdout.strip()!r}", answer.returncode == 0 and "Paris" in answer.stdout, answer)
    attempts = attempts_outside(container)
    expect("no connection was tried but to the broker", attempts == 0, attempts)
    container.execute("python3", "-c", _REACH_OUT)
    expect("such an attempt would have been seen", attempts_outside(container) > 0)


def attempts_outside(container: Container) -> int:
    """How often anything in this network looked for a way out, over IPv4 and IPv6: the kernel's OutNoRoutes counts."""
    old, new = _output(container, "cat", "/proc/net/snmp"), _output(container, "cat", "/proc/net/snmp6")
    names, values = [line.split() for line in old.splitlines() if line.startswith("Ip:")]
    ipv6 = dict(line.split() for line in new.splitlines())
    return int(dict(zip(names, values, strict=True))["OutNoRoutes"]) + int(ipv6.get("Ip6OutNoRoutes", 0))


def await_ready(container: Container) -> None:
    """Wait until `/readyz` answers 200, and say how long that took."""
    started = time.monotonic()
    _until(lambda: container.execute("python3", "-c", _ASK, "/readyz").returncode == 0, container)
    print(f"  ready after {time.monotonic() - started:.1f} s", flush=True)


def _until(reached: Callable[[], bool], container: Container) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not reached():
        if container.ended() or time.monotonic() > deadline:
            raise ImageTestFailed(f"the daemon did not get ready:\n{_messages(container.log())}")
        time.sleep(0.2)


def _messages(log: str) -> str:
    """The last lines of a log, the JSON ones as their event."""
    lines = []
    for line in log.splitlines()[-10:]:
        try:
            lines.append(str(json.loads(line)["event"]))
        except (ValueError, KeyError, TypeError):
            lines.append(line)
    return "\n".join(lines)


def _output(container: Container, *command: str) -> str:
    done = container.execute(*command)
    if done.returncode != 0:
        raise ImageTestFailed(f"{' '.join(command)} failed in the container: {done.stderr.strip()}")
    return done.stdout.removesuffix("\n")


def report_size(container: Container) -> None:
    """Print how large the image's tree is, and what of it are libraries and model."""
    places = ("/", "/opt/venv", "/models", "/opt/leveret")
    for place in places:
        kilobytes = int(container.execute("du", "-skx", place).stdout.split()[0])
        print(f"  size of {place}: {kilobytes / 1024:.0f} MiB", flush=True)

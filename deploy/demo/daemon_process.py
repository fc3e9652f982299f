"""The daemon as the demo runs it: a process of its own, watched until it is ready, stopped in good order."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

READY_SECONDS = 300.0
"""Longest wait for a daemon to be ready: loading a model, on a slow disk, compiling on the first start."""

STOP_SECONDS = 40.0
"""Longest wait for its end: the default drain takes 25 seconds at most."""

_LEVERET = str(Path(sys.executable).with_name("leveret"))


class DaemonFailed(Exception):
    """The daemon ended, or did not get ready; the message holds its last log lines."""


def leveret(*arguments: str) -> list[str]:
    """The command line of `leveret` in the environment that runs this."""
    return [_LEVERET, *arguments]


def ask(port: int, path: str) -> tuple[int, str]:
    """GET `path` from the daemon's HTTP port: status and body, status 0 where nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@contextlib.contextmanager
def daemon(settings: Mapping[str, str], log: IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    """Run `leveret run` with these settings; it logs to `log`, or here. Stopped by SIGTERM at the end of the block."""
    process = subprocess.Popen(
        leveret("run"), env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait for 200 from `/readyz`, and tell each state on the way. Raises DaemonFailed."""
    deadline, told = time.monotonic() + READY_SECONDS, ""
    while ask(port, "/readyz")[0] != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            raise DaemonFailed(f"the daemon did not get ready (exit status {process.poll()}):\n{_tail(log)}")
        state = _state(ask(port, "/health")[1])
        if state and state != told:
            print(f"  {state} ...", flush=True)
            told = state
        time.sleep(0.1)


def _state(health: str) -> str:
    try:
        content: dict[str, Any] = json.loads(health)
    except ValueError:
        return ""
    return str(content.get("state", ""))


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-5:])

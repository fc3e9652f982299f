"""A daemon as a process of its own, as an operator runs it: started, observed from outside, killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemon_process import ask
from prometheus_client.parser import text_string_to_metric_families

from daemon.bench.measure import memory_bytes
from tests.support.first_process import as_first_process, first_process
from tests.support.wait import wait_until

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 60.0
"""Longest wait for a daemon to become ready; two seconds are usual, more on a busy machine."""
SLOW_DAEMON = "tests.support.slow_daemon"


class DaemonProcess:
    """`python -m <module>` with these settings (`LEVERET_` names without the prefix) and extra environment.

    `first`: as process 1 of a namespace, as in a container.
    """

    def __init__(
        self,
        *,
        module: str = SLOW_DAEMON,
        environment: Mapping[str, str] | None = None,
        first: bool = False,
        **settings: object,
    ) -> None:
        self._module = module
        self._first = first
        self._settings: dict[str, object] = {"health_port": 0, "daemon_id": f"d{os.urandom(3).hex()}"} | settings
        self._extra = dict(environment or {})
        self._directory = tempfile.TemporaryDirectory(prefix="leveret-daemon-")
        self._out = Path(self._directory.name, "stdout")
        self._err = Path(self._directory.name, "stderr")
        self.process = self._start()
        self.signalled = False
        """Whether it was asked to end: from then on its port may close at any moment."""

    def _start(self) -> "subprocess.Popen[bytes]":
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("LEVERET_")}
        own = {f"LEVERET_{key.upper()}": str(value) for key, value in self._settings.items()}
        own |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **self._extra}
        command = [sys.executable, "-m", self._module]
        with self._out.open("ab") as out, self._err.open("ab") as err:
            return subprocess.Popen(
                as_first_process(command, own) if self._first else command,
                env=inherited | own,
                cwd=self._directory.name,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def daemon_id(self) -> str:
        """The `daemon` header of its replies."""
        return str(self._settings["daemon_id"])

    @property
    def pid(self) -> int:
        """The daemon's process id, as seen from here; what started it as process 1, while it is not there yet."""
        return (self._first and first_process(self.process.pid)) or self.process.pid

    # -- what it says -----------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Everything logged so far, one object a whole line. Raises where a line is no JSON object."""
        *whole, _ = self._out.read_bytes().split(b"\n")
        parsed = [json.loads(line) for line in whole]
        assert all(isinstance(line, dict) for line in parsed), whole
        return parsed

    @property
    def output(self) -> str:
        """Everything it wrote, to stdout and stderr, as it is."""
        return self._out.read_text() + self.errors

    @property
    def errors(self) -> str:
        """What it wrote to stderr: nothing, unless the interpreter itself failed."""
        return self._err.read_text()

    def logged(self, event: str, **fields: object) -> Iterator[dict[str, Any]]:
        """The lines whose event contains `event` and that have these fields."""
        return (line for line in self.lines if event in line["event"] and fields.items() <= line.items())

    async def until_logged(self, event: str, *, times: int = 1, timeout_seconds: float = 30, **fields: object) -> None:
        """Wait until such a line was logged so many times."""
        await wait_until(
            lambda: len(list(self.logged(event, **fields))) >= times,
            description=f"{event!r} {fields or ''} logged {times} times",
            timeout_seconds=timeout_seconds,
        )

    # -- what can be observed ---------------------------------------------------------------------------------

    @property
    def port(self) -> int | None:
        """The health port, None before it is open."""
        return next(
            (int(line["port"]) for line in reversed(self.lines) if "health port is open" in line["event"]), None
        )

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of `GET path`; status 0 where nothing answers."""
        return (0, "") if self.port is None else ask(self.port, path)

    def health(self) -> dict[str, Any]:
        """The body of `/health`; empty where nothing answers."""
        _, body = self.get("/health")
        found: dict[str, Any] = json.loads(body) if body else {}
        return found

    def metric(self, name: str, **labels: str) -> float:
        """The value of a sample of `/metrics`; raises where there is none of that name and these labels."""
        exposition = self.get("/metrics")[1]
        families = text_string_to_metric_families(exposition)
        samples = (sample for family in families for sample in family.samples if sample.name == name)
        found = [float(sample.value) for sample in samples if labels.items() <= sample.labels.items()]
        assert found, f"no sample {name} {labels} in {exposition}"
        return found[0]

    async def ready(self, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until `/readyz` answers 200. Raises with the output where the process ends instead."""
        await wait_until(
            lambda: self.process.poll() is not None or self.get("/readyz")[0] == 200,
            description="the daemon is ready",
            timeout_seconds=timeout_seconds,
        )
        assert self.process.poll() is None, self.output

    async def not_ready(self, timeout_seconds: float = 30) -> None:
        """Wait until `/readyz` answers 503."""
        await wait_until(
            lambda: self.get("/readyz")[0] == 503, description="not ready", timeout_seconds=timeout_seconds
        )

    async def busy(self) -> None:
        """Wait until it generates."""
        await wait_until(lambda: self.health().get("busy"), description="the daemon is busy")

    async def idle(self) -> None:
        """Wait until it neither generates nor holds anything."""
        await wait_until(lambda: self.metric("leveret_requests_in_flight") == 0, description="the daemon is idle")

    @property
    def threads(self) -> int:
        """Number of its threads."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    @property
    def open_files(self) -> int:
        """Number of its open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def rss_bytes(self) -> int:
        """Its resident memory."""
        return self.memory_bytes("VmRSS")

    def memory_bytes(self, name: str) -> int:
        """Its resident memory: `VmRSS` now, `VmHWM` at most."""
        return memory_bytes(name, Path(f"/proc/{self.pid}/status"))

    @property
    def cpu_seconds(self) -> float:
        """Processor time it has used so far."""
        return sum(self._stat(field) for field in (11, 12)) / os.sysconf("SC_CLK_TCK")

    @property
    def reaped_cpu_seconds(self) -> float:
        """Processor time of the children that it has had and reaped."""
        return sum(self._stat(field) for field in (13, 14)) / os.sysconf("SC_CLK_TCK")

    def _stat(self, field: int) -> int:
        """A field of /proc/pid/stat (proc_pid_stat(5)), counted from the one after the name."""
        return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[field])

    # -- how it ends ------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal, unless it has ended."""
        if self.process.poll() is None:
            self.signalled = True
            os.kill(self.pid, number)

    async def status(self, timeout_seconds: float = 30) -> int:
        """Wait for the end and return the exit status, negative for a signal."""
        await wait_until(
            lambda: self.process.poll() is not None, description="the daemon ends", timeout_seconds=timeout_seconds
        )
        return int(self.process.returncode)

    def start_again(self) -> None:
        """Start it again with the same settings; its output is appended."""
        assert self.process.poll() is not None, "it still runs"
        self.process = self._start()
        self.signalled = False

    def close(self) -> None:
        """End it, however it is, and forget its output."""
        self.kill()
        self._directory.cleanup()

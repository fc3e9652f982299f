"""A private, throw-away RabbitMQ node on free loopback ports, from an installed `rabbitmq-server` package.

It needs no service, no root and no configuration of the machine, and touches none: data, logs, cookie and plugins live
in a temporary directory. Nothing outlives the process that started it: `stop` ends node and port mapper, and where
`stop` is never reached (a signal, a crash) a guardian process does, which waits for the end of this one.

    with PrivateBroker() as broker:
        connect(broker.url)
"""

import atexit
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECONDS = 120.0
"""Longest wait for a node to answer; 8 to 12 seconds are usual, more on a busy machine."""

STOP_SECONDS = 30.0
"""Longest wait for an orderly end; 1 to 6 seconds are usual."""

_CTL_SECONDS = 60.0
_ERL_ARGS = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
_GUARDIAN = 'cat >/dev/null; cat "$0"/*.running 2>/dev/null | xargs -r kill -KILL 2>/dev/null; rm -rf "$0"'


class BrokerError(Exception):
    """The private node did not do what was asked; the message says what, with the tail of its log."""


def find_sbin() -> Path | None:
    """The directory of the installed RabbitMQ's own scripts (not the wrappers that switch user), None without one."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    return found[-1].parent if found and shutil.which("erl") else None


def free_port() -> int:
    """A TCP port that is free on the loopback address right now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def answers_amqp(host: str, port: int, timeout_seconds: float = 2.0) -> bool:
    """True when a broker answers there: it takes AMQP 0-9-1's protocol header and sends a method frame."""
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
    except OSError:
        return False


class PrivateBroker:
    """One RabbitMQ node. `kill`, `terminate` and `start` may be repeated; data survive until `stop`.

    `config` is the text of rabbitmq.conf (a TLS listener, limits), `plugins` the names of plugins to enable, `beside`
    a started node whose cookie and port mapper are shared, so that both can form a cluster (`join`).
    """

    def __init__(
        self, name: str = "leveret", *, config: str = "", plugins: tuple[str, ...] = (), beside: "Self | None" = None
    ) -> None:
        sbin = find_sbin()
        if sbin is None:
            raise BrokerError("no RabbitMQ in /usr/lib/rabbitmq; install Debian's package rabbitmq-server")
        self._sbin = sbin
        self.node = f"{name}@localhost"
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="leveret-broker-"))
        self._beside = beside
        self.cookie: str = beside.cookie if beside else secrets.token_hex(16)
        self.epmd_port: int = beside.epmd_port if beside else free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._write_files(config, plugins)
        self._environment = self._make_environment()
        self._guardian = subprocess.Popen(
            ["/bin/sh", "-c", _GUARDIAN, str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self.stop)

    def _write_files(self, config: str, plugins: tuple[str, ...]) -> None:
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(self.cookie)
        cookie.chmod(0o400)
        (self.directory / "rabbitmq.conf").write_text(config)
        (self.directory / "advanced.config").write_text("[].\n")
        (self.directory / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        (self.directory / "rabbitmq-env.conf").write_text("")

    def _make_environment(self) -> dict[str, str]:
        """The environment that keeps the node away from everything of the machine's own RabbitMQ."""
        here = self.directory
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "HOME": str(here),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(here / "advanced.config"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(here / "generated"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "rabbitmq-env.conf"),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script then becomes the VM, so that its pid takes signals
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERL_ARGS,
        }

    @property
    def url(self) -> str:
        """The node's AMQP address, for the user guest and the vhost `/`."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def running(self) -> bool:
        """True while the node's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node and wait until it answers AMQP. Raises BrokerError where it does not."""
        if self.running:
            return
        if self._beside is None and self._epmd is None:
            epmd = shutil.which("epmd") or "epmd"
            self._epmd = self._spawn("epmd", [epmd, "-port", str(self.epmd_port), "-address", "127.0.0.1"])
        self._process = self._spawn("node", [str(self._sbin / "rabbitmq-server"), "-noinput"])
        deadline = time.monotonic() + START_SECONDS
        while not answers_amqp("127.0.0.1", self.port):
            if not self.running or time.monotonic() > deadline:
                raise BrokerError(f"RabbitMQ node {self.node} did not start: {self._log_tail()}")
            time.sleep(0.1)

    def _spawn(self, what: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process of the node in a session of its own: a Ctrl-C at the terminal is not meant for it."""
        with (self.directory / f"{what}.out").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.directory / f"{what}.running").write_text(f"{process.pid}\n")
        return process

    def _log_tail(self) -> str:
        path = self.directory / "node.out"
        lines = path.read_text(errors="replace").split() if path.exists() else []
        return " ".join(lines)[-600:] or "it wrote nothing"

    def sync(self) -> None:
        """Write what the node knows of its queues to disk.

        Ra saves its directory of quorum queues every half second only: one that was declared less than that before a
        crash comes back without a leader and stays so.
        """
        self.ctl("eval", "[ok = dets:sync(Table) || Table <- dets:all()].")

    def kill(self) -> None:
        """End the node as a crash does (SIGKILL); `sync` first where a quorum queue is younger than a second."""
        if self._process is not None:
            self._process.kill()
            self._reap(self._process, "node")

    def terminate(self) -> None:
        """Shut the node down in good order (SIGTERM)."""
        if self._process is not None:
            self._process.terminate()
            self._reap(self._process, "node")

    def restart(self) -> None:
        """Shut down in good order and start again, with the same ports and data."""
        self.terminate()
        self.start()

    def _reap(self, process: subprocess.Popen[bytes], what: str) -> None:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        (self.directory / f"{what}.running").unlink(missing_ok=True)

    def stop(self) -> None:
        """End node, port mapper and guardian, and remove all data; safe to call twice."""
        atexit.unregister(self.stop)
        self.terminate()
        if self._epmd is not None:
            self._epmd.terminate()
            self._reap(self._epmd, "epmd")
        shutil.rmtree(self.directory, ignore_errors=True)
        self._guardian.kill()
        self._guardian.wait()
        if self._guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.close()

    def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` on the node, about a second each, and return what it prints. Raises BrokerError."""
        command = [str(self._sbin / "rabbitmqctl"), "--quiet", "--node", self.node, *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=_CTL_SECONDS, check=False
        )
        if done.returncode != 0:
            raise BrokerError(f"rabbitmqctl {arguments[0]} failed: {' '.join((done.stderr + done.stdout).split())}")
        return done.stdout

    def add_vhost(self, name: str) -> str:
        """Make a vhost that guest may use, and return its AMQP address."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "--vhost", name, "guest", ".*", ".*", ".*")
        return f"{self.url}{name}"

    def add_user(self, name: str, password: str, *, configure: str = ".*", write: str = ".*", read: str = ".*") -> str:
        """Make a user with these rights (regular expressions) in the vhost `/`, and return their AMQP address."""
        self.ctl("add_user", name, password)
        self.ctl("set_permissions", "--vhost", "/", name, configure, write, read)
        return f"amqp://{name}:{password}@127.0.0.1:{self.port}/"

    def join(self, other: Self) -> None:
        """Join the cluster of the running node `other`, which this one must have been made `beside`; data are lost."""
        self.ctl("stop_app")
        self.ctl("join_cluster", other.node)
        self.ctl("start_app")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

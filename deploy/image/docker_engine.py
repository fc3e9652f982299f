"""The image test on a machine with Docker: an internal network with a broker and the container under test."""

import contextlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator

from container import MODEL, STOP_SECONDS, TAG, Image, ImageTestFailed, call, show

BROKER_IMAGE = "rabbitmq:4-alpine"
BROKER_SECONDS = 120.0
LOCKED_DOWN = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # noqa: S108


def available() -> bool:
    """True where a Docker engine answers."""
    return shutil.which("docker") is not None and call(["docker", "info"], check=False).returncode == 0


def build() -> None:
    """Build the image with the small model."""
    os.environ.setdefault("DOCKER_BUILDKIT", "1")
    show(["docker", "build", "--build-arg", f"MODEL_ID={MODEL}", "--tag", TAG, "."])


def inspect() -> Image:
    """What the image says of itself."""
    return Image.of(json.loads(call(["docker", "image", "inspect", TAG]).stdout)[0]["Config"])


class DockerContainer:
    """A container of Docker's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As the port says."""
        return call(["docker", "exec", self._name, *command], check=False)

    def log(self) -> str:
        """As the port says."""
        return call(["docker", "logs", self._name]).stdout

    def ended(self) -> bool:
        """As the port says."""
        return call(["docker", "inspect", "--format", "{{.State.Running}}", self._name]).stdout.strip() != "true"

    def stop(self) -> int:
        """As the port says."""
        call(["docker", "stop", "--time", f"{STOP_SECONDS:.0f}", self._name])
        return int(call(["docker", "inspect", "--format", "{{.State.ExitCode}}", self._name]).stdout)


@contextlib.contextmanager
def running() -> Iterator[DockerContainer]:
    """The daemon and its broker in a network without a way out; everything is removed afterwards."""
    name = f"leveret-image-test-{uuid.uuid4().hex[:8]}"
    broker = f"{name}-broker"
    try:
        call(["docker", "network", "create", "--internal", name])
        call(["docker", "run", "--detach", "--name", broker, "--network", name, BROKER_IMAGE])
        _await_broker(broker)
        url = f"LEVERET_AMQP_URL=amqp://guest:guest@{broker}/"
        call(["docker", "run", "--detach", "--name", name, "--network", name, *LOCKED_DOWN, "--env", url, TAG])
        yield DockerContainer(name)
    finally:
        call(["docker", "rm", "--force", "--volumes", name, broker], check=False)
        call(["docker", "network", "rm", name], check=False)


def _await_broker(broker: str) -> None:
    deadline = time.monotonic() + BROKER_SECONDS
    while call(["docker", "exec", broker, "rabbitmq-diagnostics", "check_port_connectivity"], check=False).returncode:
        if time.monotonic() > deadline:
            raise ImageTestFailed(f"{BROKER_IMAGE} did not answer within {BROKER_SECONDS:g} s")
        time.sleep(1)

"""The image test on a machine without Docker: built by buildah, run by crun in an empty network namespace.

Everything is kept below `.work/image`. The private broker runs in the same namespace, whose only device is the
loopback: there is no way out, and the kernel counts every attempt to find one.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from base_image import ensure_base, install_tools
from container import MODEL, STOP_SECONDS, TAG, Image, call, show
from private_broker import PrivateBroker
from runtime_bundle import write_bundle

WORK = Path(".work/image").resolve()


def _buildah() -> list[str]:
    """Buildah with a storage of its own: overlay where the kernel has it, else whole copies (vfs)."""
    overlay = "overlay" in Path("/proc/filesystems").read_text(encoding="utf-8").split()
    os.environ["STORAGE_DRIVER"] = "overlay" if overlay else "vfs"
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    return ["buildah", "--root", str(WORK / "store"), "--runroot", str(WORK / "run")]


def build() -> None:
    """Build the image with the small model."""
    install_tools()
    WORK.mkdir(parents=True, exist_ok=True)
    buildah = _buildah()
    ensure_base(buildah)
    # Keeping the layers makes the second build quick; with vfs each would be a whole copy.
    options = ["--layers"] if os.environ["STORAGE_DRIVER"] == "overlay" else []
    with tempfile.TemporaryDirectory(prefix="leveret-pip-") as directory:
        volumes = [word for volume in _pip_volumes(Path(directory)) for word in ("--volume", volume)]
        # `format docker`: the OCI format has no HEALTHCHECK.
        command = ["nice", *buildah, "bud", "--pull-never", "--format", "docker", *options, *volumes]
        show([*command, "--build-arg", f"MODEL_ID={MODEL}", "--tag", TAG, "."])


def _pip_volumes(directory: Path) -> list[str]:
    """The caller's pip settings (`PIP_*`) as a file that the build sees, with the local files they name.

    A mounted file leaves nothing in the image, as an environment variable would.
    """
    settings = {name[4:].lower().replace("_", "-"): value for name, value in os.environ.items() if name[:4] == "PIP_"}
    lines = [f"{name} = {' '.join(value.split())}" for name, value in sorted(settings.items()) if name != "config-file"]
    config = directory / "pip.conf"
    config.write_text("\n".join(["[global]", *lines, ""]), encoding="utf-8")
    named = {word for value in settings.values() for word in value.split() if word.startswith("/")}
    bundle = os.environ.get("SSL_CERT_FILE")
    local = {path: path for path in [*named, *([bundle] if bundle else [])] if Path(path).exists()}
    return [f"{source}:{target}:ro" for source, target in sorted((local | {str(config): "/etc/pip.conf"}).items())]


def inspect() -> Image:
    """What the image says of itself."""
    found = json.loads(call([*_buildah(), "inspect", "--type", "image", TAG]).stdout)
    return Image.of(found["Docker"]["config"])


class CrunContainer:
    """A container of crun's, whose daemon is a child of this process."""

    def __init__(self, name: str, user: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._name, self._user, self._process, self._log = name, user, process, log

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As the port says."""
        return call(["crun", "exec", "--user", self._user, self._name, *command], check=False)

    def log(self) -> str:
        """As the port says."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def ended(self) -> bool:
        """As the port says."""
        return self._process.poll() is not None

    def stop(self) -> int:
        """As the port says."""
        call(["crun", "kill", self._name, "TERM"])
        return self._process.wait(STOP_SECONDS)


@contextlib.contextmanager
def running() -> Iterator[CrunContainer]:
    """The daemon and its broker in this process's network namespace; both are gone afterwards."""
    buildah = _buildah()
    call(["ip", "link", "set", "lo", "up"])
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(PrivateBroker("image-test"))
        bundle = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-bundle-")))
        container = call([*buildah, "from", "--pull-never", TAG]).stdout.strip()
        stack.callback(call, [*buildah, "rm", container])
        root = call([*buildah, "mount", container]).stdout.strip()
        image = inspect()
        write_bundle(bundle, root, image, {"LEVERET_AMQP_URL": broker.url})
        yield stack.enter_context(_started(bundle, image.user))


@contextlib.contextmanager
def _started(bundle: Path, user: str) -> Iterator[CrunContainer]:
    name, log = f"leveret-image-test-{uuid.uuid4().hex[:8]}", bundle / "log"
    command = ["crun", "--cgroup-manager=disabled", "run", "--bundle", str(bundle), name]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield CrunContainer(name, user, process, log)
    finally:
        call(["crun", "delete", "--force", name], check=False)
        process.wait(STOP_SECONDS)


def in_empty_network(script: str) -> int:
    """Run this script again in a network namespace without any device but the loopback; returns its exit status."""
    # crun refuses control groups in hybrid mode, so their second version is hidden from it, where there are both.
    program = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$1" --built'
    command = ["unshare", "--net", "--mount", "--", "sh", "-c", program, sys.executable, script]
    return subprocess.run(command, check=False).returncode

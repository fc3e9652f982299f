"""A stand-in for python:3.12-slim where no registry can be reached: Debian's own Python, by debootstrap."""

import os
import shutil
import tempfile
from pathlib import Path

from container import BASE, ImageTestFailed, call, show

PACKAGES = "python3,python3-venv,ca-certificates"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def ensure_base(buildah: list[str]) -> None:
    """Make the base image, once; `buildah` is the command with its storage options. Takes one to seven minutes."""
    if call([*buildah, "images", "--quiet", BASE], check=False).stdout.strip():
        return
    print(f"Making a base image in place of {BASE} with debootstrap ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="leveret-base-") as directory:
        root = Path(directory) / "root"
        show(["nice", "debootstrap", "--variant=minbase", f"--include={PACKAGES}", _release(), str(root), _mirror()])
        _tidy(root)
        container = call([*buildah, "from", "scratch"]).stdout.strip()
        call([*buildah, "add", "--quiet", container, str(root), "/"])
        call([*buildah, "config", "--env", f"PATH={PATH}", container])
        call([*buildah, "commit", "--quiet", "--rm", container, BASE])


def _tidy(root: Path) -> None:
    """As in the official image: Python under /usr/local, no package lists, nothing of this machine's network."""
    (root / "usr/local/bin/python3").symlink_to("/usr/bin/python3")
    shutil.rmtree(root / "var/cache/apt")
    shutil.rmtree(root / "var/lib/apt/lists")
    for name in ("etc/resolv.conf", "etc/hostname"):
        (root / name).unlink(missing_ok=True)


def _release() -> str:
    """The code name of this machine's Debian."""
    lines = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines())
    name = lines.get("VERSION_CODENAME", "").strip('"')
    if lines.get("ID") != "debian" or not name:
        raise ImageTestFailed("without Docker the base image is made by debootstrap, which needs Debian here")
    return name


def _mirror() -> str:
    """The mirror that this machine's apt uses."""
    targets = call(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]).stdout.split()
    if not targets:
        raise ImageTestFailed("apt knows no mirror; run apt-get update first")
    return targets[0]


def install_tools() -> None:
    """Install what building and running without Docker needs, where it is missing; needs root."""
    missing = [tool for tool in ("buildah", "debootstrap", "crun") if shutil.which(tool) is None]
    if os.geteuid() != 0:
        raise ImageTestFailed("no Docker engine answers, and building without one needs root")
    if missing:
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        show(["apt-get", "update", "--quiet"])
        show(["nice", "apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing])

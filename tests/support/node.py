"""Node.js for tests: the pinned packages, installed once into `.work`, and a way to run a script with them."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"@asyncapi/parser": "3.6.6", "amqplib": "2.3.1"}
_DIRECTORY = ROOT / ".work" / "node"
_INSTALL_SECONDS = 300


def node_modules() -> Path:
    """The directory of the installed packages; installs them where they are missing."""
    modules = _DIRECTORY / "node_modules"
    if all((modules / name / "package.json").exists() for name in PACKAGES):
        return modules
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    options = ["--prefix", str(_DIRECTORY), "--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
    command = [_program("npm"), "install", *options, "--ignore-scripts", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    if done.returncode:
        raise AssertionError(f"npm install failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return modules


def node_command(script: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that run `script` with the packages: CommonJS looks them up by NODE_PATH."""
    return [_program("node"), str(script), *arguments], os.environ | {"NODE_PATH": str(node_modules())}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise AssertionError(f"{name} is not installed; these tests need Node.js 18 or later with npm")
    return found

"""What the image test needs of a container, whichever engine runs it."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MODEL = "smollm2-135m"
"""The model that is baked into the tested image: small, and to be had without the Hub."""

TAG = "localhost/leveret:image-test"
BASE = "docker.io/library/python:3.12-slim"

STOP_SECONDS = 40.0
"""Longest wait for a container's end; the default drain takes 25 seconds at most."""


class ImageTestFailed(Exception):
    """The image does not do what it promises, or could not be built or run here; the message says what."""


@dataclass(frozen=True)
class Image:
    """What an image says of itself: Docker's image configuration, as far as it matters here."""

    user: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health_command: tuple[str, ...]
    health_start_period_seconds: float
    labels: Mapping[str, str]

    @classmethod
    def of(cls, config: Mapping[str, object]) -> "Image":
        """From the `config` object of Docker's image format. Raises ImageTestFailed without a HEALTHCHECK."""
        health = config.get("Healthcheck")
        if not isinstance(health, dict) or health.get("Test", [""])[0] != "CMD":
            raise ImageTestFailed(f"the image has no HEALTHCHECK in exec form: {health!r}")
        return cls(
            user=str(config.get("User")),
            command=(*_words(config.get("Entrypoint")), *_words(config.get("Cmd"))),
            environment=dict(line.partition("=")[::2] for line in _words(config.get("Env"))),
            health_command=tuple(health["Test"][1:]),
            health_start_period_seconds=health.get("StartPeriod", 0) / 1e9,
            labels=_labels(config.get("Labels")),
        )


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _labels(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


class Container(Protocol):
    """A running daemon in a container with a read-only tree, no capabilities and no network but the broker's."""

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as its user and in its environment."""
        ...

    def log(self) -> str:
        """What the daemon has written so far."""
        ...

    def ended(self) -> bool:
        """True when the daemon has ended."""
        ...

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        ...


def call(command: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program and keep what it writes. Raises ImageTestFailed with the end of it where it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if check and done.returncode != 0:
        end = "\n".join((done.stderr or done.stdout).splitlines()[-10:])
        raise ImageTestFailed(f"{' '.join(command)} failed with {done.returncode}:\n{end}")
    return done


def show(command: Sequence[str]) -> None:
    """Run a program in the foreground, with its own progress. Raises ImageTestFailed where it fails."""
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        raise ImageTestFailed(f"{' '.join(command)} failed with {status}")

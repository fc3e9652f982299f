"""`leveret chat` in a pseudo-terminal."""

import shlex
import sys
from pathlib import Path

from tests.support.pseudo_terminal import PseudoTerminal

PROMPT = "\n> "


def open_chat(
    url: str, queue: str, directory: Path, *arguments: str, before: str = "pass", redirect: str = "", **variables: str
) -> PseudoTerminal:
    """Start it; `before` is Python that runs first, `redirect` the end of a shell's line such as `>out`."""
    program = f"import sys; {before}; from daemon.cli import main; main()"
    command = shlex.join((sys.executable, "-c", program, "chat", *arguments))
    environment = {"LEVERET_AMQP_URL": url, "LEVERET_QUEUE": queue, "NO_COLOR": "1"} | variables
    return PseudoTerminal(("sh", "-c", f"exec {command} {redirect}"), environment, directory)

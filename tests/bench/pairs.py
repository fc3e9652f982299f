"""What paired measurements say: two things measured in turns, so that what else the machine does meets both."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

PEERS = Path(__file__).parent / "peers"
"""Programs that run in an environment of their own, and say so in a line when they are ready."""


@contextmanager
def peer(python: str, script: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run one of them with another Python, from ready to the end of the block."""
    command = [python, str(PEERS / script), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("the peer did not get ready; its words are above")
        yield process
    finally:
        process.terminate()
        process.wait()


def told(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """A line about pairs of seconds, ours and theirs; the ratio says how many times faster ours is."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(other / own for own, other in pairs)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"{name}: {ours * 1e3:.1f} ms against {theirs * 1e3:.1f} ms, ratio {median(ratios):.2f} ({spread})"


def spread(name: str, seconds: Sequence[float]) -> str:
    """A line about many measurements of one thing."""
    cuts = quantiles(seconds, n=100)
    return f"{name}: median {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms"


def circumstances() -> str:
    """When this was, and how busy the machine."""
    return f"{time.strftime('%Y-%m-%d %H:%M')}, load {Path('/proc/loadavg').read_text().split()[0]}"

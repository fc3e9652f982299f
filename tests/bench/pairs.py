"""What paired measurements say: two things measured in turns, so that what else the machine does meets both."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median


def told(name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """A line about pairs of seconds, ours and theirs; the ratio says how many times faster ours is."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(other / own for own, other in pairs)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"{name}: {ours * 1e3:.1f} ms against {theirs * 1e3:.1f} ms, ratio {median(ratios):.2f} ({spread})"


def circumstances() -> str:
    """When this was, and how busy the machine."""
    return f"{time.strftime('%Y-%m-%d %H:%M')}, load {Path('/proc/loadavg').read_text().split()[0]}"

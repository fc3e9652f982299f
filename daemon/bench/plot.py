"""Draws the figures of a measurement as a PNG, with matplotlib (the extra `plot`)."""

from pathlib import Path
from typing import Any

from daemon.bench.figures import Figures
from daemon.errors import ConfigurationError

_PANELS = (
    ("decode, tokens/s", "decode"),
    ("prefill, tokens/s", "prefill_short"),
    ("first token, s", "first_token_cold_seconds"),
    ("memory, MiB", "steady_bytes"),
)


def draw(model_id: str, figures: list[Figures], path: Path) -> None:
    """Write bars of speed and memory, a bar for each kind. Raises ConfigurationError where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError("--plot needs matplotlib; install it with: pip install 'leveret[plot]'") from error
    picture: Any = Figure(figsize=(11, 3.2), layout="constrained")
    axes = picture.subplots(1, len(_PANELS))
    for axis, (title, name) in zip(axes, _PANELS, strict=True):
        scale = 1 << 20 if name == "steady_bytes" else 1
        bars = axis.bar([one.weights for one in figures], [getattr(one, name) / scale for one in figures])
        axis.bar_label(bars, fmt="%.3g")
        axis.set_title(title)
        axis.margins(y=0.15)
    picture.suptitle(f"{model_id}, {figures[0].threads} threads")
    picture.savefig(path, format="png", dpi=120)

"""Plots as inline SVG: plain shapes, text that a screen reader and a printer can use, no script and no network.

Every function returns a whole `<svg>` element. Coordinates are in pixels of a 360 by 260 drawing that scales with the
page; data run from 0 to 1 on both axes unless said otherwise.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from daemon.evaluation.formatting import percent, seconds
from daemon.evaluation.stats import Bin, Rate, Threshold

WIDTH, HEIGHT = 360, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 336, 12, 222
_ROW = 26


def reliability_plot(bins: Sequence[Bin]) -> Markup:
    """Probability said against share right; the size of a dot is the number of cases. On the diagonal is honest."""
    most = max((entry.count for entry in bins), default=1) or 1
    dots = [
        _circle(entry.confidence, entry.accuracy, 3 + 9 * (entry.count / most) ** 0.5, f"{entry.count} cases")
        for entry in bins
        if entry.confidence is not None and entry.accuracy is not None
    ]
    diagonal = _line(0, 0, 1, 1, "guide")
    return _drawing("Reliability", [*_axes("probability said", "share right"), diagonal, *dots])


def threshold_plot(rows: Sequence[Threshold]) -> Markup:
    """Coverage against the accuracy of what is still answered, one dot a threshold."""
    known = [(row, row.coverage.rate, row.accuracy.rate) for row in rows]
    dots = [(row, x, y) for row, x, y in known if x is not None and y is not None]
    path = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for _, x, y in dots)
    marks = [_circle(x, y, 3.5, f"at least {row.threshold:.2f}") for row, x, y in dots]
    curve = Markup('<polyline class="curve" points="{}"/>').format(path)
    return _drawing("Coverage and accuracy", [*_axes("coverage", "share right among answered"), curve, *marks])


def histogram(values: Sequence[float], bins: int = 12) -> Markup:
    """How many answers took how long; the horizontal axis runs from 0 to the longest, in seconds."""
    most = max(values, default=0.0) or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value / most * bins))] += 1
    high = max(counts) or 1
    bars = [_bar(place / bins, (place + 1) / bins, count / high, f"{count}") for place, count in enumerate(counts)]
    ticks = _ticks([seconds(most * share) for share in (0, 0.5, 1)], [str(round(high * share)) for share in (0, 1)])
    return _drawing("Waiting times", [*_frame("seconds waited", "answers"), *ticks, *bars])


def bars(title: str, values: Mapping[str, float | None]) -> Markup:
    """One horizontal bar for each name, from 0 to 1."""
    rows = [_row(place, name, value, None) for place, (name, value) in enumerate(values.items())]
    return _drawing(title, rows, height=_ROW * len(values) + 8)


def rates(title: str, values: Mapping[str, Rate]) -> Markup:
    """One horizontal bar for each name with its 95 % interval."""
    rows = [_row(place, name, value.rate, value) for place, (name, value) in enumerate(values.items())]
    return _drawing(title, rows, height=_ROW * len(values) + 8)


def _row(place: int, name: str, value: float | None, interval: Rate | None) -> Markup:
    top, left, width = place * _ROW + 4, 110, 170
    shown = Markup(
        '<text class="name" x="{name_x}" y="{y}">{name}</text>'
        '<rect class="back" x="{left}" y="{top}" width="{width}" height="18"/>'
        '<rect class="bar" x="{left}" y="{top}" width="{length:.1f}" height="18"/>'
        '<text x="{value_x}" y="{y}">{value}</text>'
    ).format(
        name_x=left - 6,
        y=top + 13,
        name=name,
        left=left,
        top=top,
        width=width,
        length=width * (value or 0.0),
        value_x=left + width + 8,
        value=percent(value),
    )
    if interval is None or interval.low is None or interval.high is None:
        return shown
    return shown + Markup('<line class="whisker" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>').format(
        left + width * interval.low, left + width * interval.high, top + 9, top + 9
    )


def _drawing(title: str, parts: Sequence[Markup], *, height: int = HEIGHT) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, height, title)
    return head + Markup("").join(parts) + Markup("</svg>")


def _x(value: float) -> float:
    return _LEFT + value * (_RIGHT - _LEFT)


def _y(value: float) -> float:
    return _BOTTOM - value * (_BOTTOM - _TOP)


def _axes(x_name: str, y_name: str) -> list[Markup]:
    shares = ["0 %", "50 %", "100 %"]
    return [*_frame(x_name, y_name), *_ticks(shares, shares)]


def _frame(x_name: str, y_name: str) -> list[Markup]:
    return [
        Markup('<rect class="frame" x="{}" y="{}" width="{}" height="{}"/>').format(
            _LEFT, _TOP, _RIGHT - _LEFT, _BOTTOM - _TOP
        ),
        Markup('<text class="middle" x="{}" y="{}">{}</text>').format(_x(0.5), HEIGHT - 6, x_name),
        Markup('<text class="middle" transform="translate(11 {}) rotate(-90)">{}</text>').format(_y(0.5), y_name),
    ]


def _ticks(x_names: Sequence[str], y_names: Sequence[str]) -> list[Markup]:
    """Names at equal distances along both axes."""
    below = Markup('<text class="middle" x="{:.1f}" y="{}">{}</text>')
    beside = Markup('<text class="name" x="{}" y="{:.1f}">{}</text>')
    return [
        *(below.format(_x(at / (len(x_names) - 1)), _BOTTOM + 16, name) for at, name in enumerate(x_names)),
        *(beside.format(_LEFT - 5, _y(at / (len(y_names) - 1)) + 4, name) for at, name in enumerate(y_names)),
    ]


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, _x(x1), _y(y1), _x(x2), _y(y2))


def _circle(x: float, y: float, radius: float, title: str) -> Markup:
    return Markup('<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"><title>{}</title></circle>').format(
        _x(x), _y(y), radius, escape(title)
    )


def _bar(left: float, right: float, height: float, title: str) -> Markup:
    return Markup(
        '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    ).format(_x(left) + 1, _y(height), _x(right) - _x(left) - 2, _y(0) - _y(height), title)

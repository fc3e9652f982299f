"""Numbers as people read them, the same in the terminal and on paper."""

import json

from daemon.evaluation.stats import Difference, Rate

NOTHING = "–"  # noqa: RUF001 - an empty cell


def percent(value: float | None) -> str:
    """`0.7333` as `73.3 %`."""
    return NOTHING if value is None else f"{100 * value:.1f} %"


def with_interval(value: Rate) -> str:
    """A share with its 95 % interval and the counts: `73.3 % (62.4 to 82.0), 55 of 75`."""
    if value.rate is None or value.low is None or value.high is None:
        return NOTHING
    return f"{percent(value.rate)} ({100 * value.low:.1f} to {100 * value.high:.1f}), {value.hits} of {value.total}"


def points(value: Difference | None) -> str:
    """A difference of shares in percentage points, with its interval."""
    if value is None:
        return NOTHING
    return f"{100 * value.value:+.1f} points ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """A duration."""
    return NOTHING if value is None else f"{value:.2f} s"


def plain(value: object) -> str:
    """An expected value: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=list)


def option(value: object) -> str:
    """An option of a run: messages as a conversation, one turn a line; nothing as an empty cell."""
    if value is None or value == []:
        return NOTHING
    if isinstance(value, list) and all(isinstance(turn, dict) and turn.keys() == {"role", "content"} for turn in value):
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in value)
    return plain(value)

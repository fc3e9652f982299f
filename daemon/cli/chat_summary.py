"""What a terminal shows under an answer: counts and times, label probabilities, a cut."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

import typer

from daemon.cli.chat_answer import Answered, complain

MOST_LABELS = 10
"""Labels that are shown; the others are summed up."""

_DIM, _PLAIN = "\033[2m", "\033[0m"


def dimmed(text: str, stream: TextIO) -> str:
    """The text in a faint colour, where the stream is a terminal that has colours and NO_COLOR is not set."""
    colours = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"{_DIM}{text}{_PLAIN}" if colours else text


def print_summary(answered: Answered) -> None:
    """Say on stderr that the answer was cut; the rest only where stderr is a terminal, for it is no output."""
    choice = answered.completion.choices[0]
    if choice.finish_reason == "length":
        complain("the answer was cut at its most tokens; --max-new-tokens sets them")
    if not sys.stderr.isatty():
        return
    for line in (*_labels(choice.label_probs or {}), _timing(answered)):
        typer.echo(dimmed(line, sys.stderr), err=True)


def _timing(answered: Answered) -> str:
    used, timings = answered.completion.usage, answered.completion.timings
    first = "" if answered.first_seconds is None else f"first after {answered.first_seconds:.2f} s, "
    rate = f" at {timings.tokens_per_second:.1f}/s" if timings.tokens_per_second > 0 else ""
    return " · ".join(
        (
            f"tokens: {used.completion_tokens}{rate}",
            f"{first}all after {answered.total_seconds:.2f} s",
            f"prompt: {used.prompt_tokens}, cached: {used.prompt_tokens_details.cached_tokens}",
            answered.completion.model,
        )
    )


def _labels(probabilities: Mapping[str, float]) -> Iterator[str]:
    """One line a label, the most probable first."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    shown, others = ranked[:MOST_LABELS], ranked[MOST_LABELS:]
    for label, probability in shown:
        yield f"{probability:7.2%}  {label}"
    if others:
        yield f"{sum(probability for _, probability in others):7.2%}  {len(others)} other labels together"

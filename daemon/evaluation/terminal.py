"""A report on the terminal; colours and bars only where the output is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from daemon.evaluation.comparison import Comparison
from daemon.evaluation.report import Report
from daemon.evaluation.tables import Grid, comparison_grids, mistakes, report_grids

SHOWN_MISTAKES = 10
_LONGEST_CELL = 80


def print_report(console: Console, report: Report) -> None:
    """Print all tables, and the first of the wrong answers."""
    wrong = mistakes(report, SHOWN_MISTAKES)
    for grid in [*report_grids(report), *([wrong] if wrong else [])]:
        _print(console, grid)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print both runs side by side."""
    for grid in comparison_grids(comparison):
        _print(console, grid)


def _print(console: Console, grid: Grid) -> None:
    table = Table(title=grid.title, title_justify="left", title_style="bold", show_header=any(grid.head))
    for place, name in enumerate(grid.head):
        table.add_column(name, justify="right" if place and grid.numeric else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(_cell(cell) for cell in row))
    if grid.rows:
        console.print(table)
    if grid.note:
        console.print(Text(grid.note))
    console.print()


def _cell(text: str) -> Text:
    """Plain text, whatever brackets it holds, on one line and not too long."""
    line = " ".join(text.split())
    return Text(line if len(line) <= _LONGEST_CELL else f"{line[: _LONGEST_CELL - 1]}…")


def say(message: str) -> None:
    """A line on stderr for the person who waits."""
    Console(stderr=True).print(Text(f"leveret eval: {message}"), soft_wrap=True)


class Tick(Protocol):
    """Called after every answer with the number of answers and of right ones so far, earlier runs included."""

    def __call__(self, done: int, right: int) -> None:
        """Show it."""


@contextmanager
def progress(total: int, done: int, right: int) -> Iterator[Tick]:
    """A live bar on stderr, off where that is no terminal; begins at what an earlier run has done."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[share]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total, completed=done, share=_share(right, done))

        def tick(done: int, right: int) -> None:
            bar.update(task, completed=done, share=_share(right, done))

        yield tick


def _share(right: int, done: int) -> str:
    return f"right {100 * right / done:.0f} %" if done else ""

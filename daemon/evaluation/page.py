"""A report as one HTML page that needs nothing else: styles and plots are in it, and it reads well on paper."""

from dataclasses import dataclass
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from daemon import __version__
from daemon.evaluation.comparison import Comparison
from daemon.evaluation.formatting import option
from daemon.evaluation.report import Report
from daemon.evaluation.svg import bars, histogram, rates, reliability_plot, threshold_plot
from daemon.evaluation.tables import Grid, comparison_grids, mistakes, report_grids

_TEMPLATES = Environment(
    loader=PackageLoader("daemon.evaluation", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


@dataclass(frozen=True)
class Figure:
    """A plot with the sentence below it."""

    drawing: Markup
    caption: str


def report_page(report: Report) -> str:
    """The page of one run: tables, plots, options, and every wrong answer."""
    wrong = mistakes(report, len(report.mistakes))
    title = f"{report.cases_file}: {', '.join(report.models) or 'no answers'}"
    return _page(title, report_grids(report), _figures(report), [*([wrong] if wrong else []), _options(report)])


def comparison_page(comparison: Comparison) -> str:
    """The page of two runs side by side."""
    a, b = comparison.a, comparison.b
    figures = [
        Figure(rates("Right", {"A": a.right, "B": b.right}), "Right answers of both runs, with 95 % intervals."),
    ]
    if a.labels is not None and b.labels is not None:
        scores = {
            f"{side} {row.label}": row.f1 for side, run in (("A", a.labels), ("B", b.labels)) for row in run.scores
        }
        figures.append(Figure(bars("F1", scores), "F1 of each label in both runs."))
    return _page(f"{a.cases_file}: two runs", comparison_grids(comparison), figures, [])


def _page(title: str, grids: list[Grid], figures: list[Figure], last: list[Grid]) -> str:
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC by leveret {__version__}"
    return _TEMPLATES.get_template("page.html.j2").render(
        title=title, grids=grids, figures=figures, last=last, made=made
    )


def _figures(report: Report) -> list[Figure]:
    figures = []
    if (labels := report.labels) is not None:
        scores = {row.label: row.f1 for row in labels.scores}
        figures.append(Figure(bars("F1 by label", scores), "F1 of each label."))
        if labels.thresholds:
            caption = "What the probabilities say against what is right; honest ones lie on the line."
            figures.append(Figure(reliability_plot(labels.reliability), caption))
            caption = "Answering only above a probability: how many are answered, and how many of those right."
            figures.append(Figure(threshold_plot(labels.thresholds), caption))
    if report.fields is not None:
        figures.append(
            Figure(rates("Fields", report.fields.fields), "Right values of each field, with 95 % intervals.")
        )
    if report.groups:
        figures.append(Figure(rates("Groups", report.groups), "Right answers of each group, with 95 % intervals."))
    if report.latencies:
        figures.append(Figure(histogram(report.latencies), "How long the requester waited, the queue included."))
    return figures


def _options(report: Report) -> Grid:
    """What the run was made with, so that it can be made again."""
    rows = tuple((name, option(value)) for name, value in report.options.items() if value not in (None, [], ()))
    return Grid("Options of the run", ("option", "value"), rows, f"Digest {report.settings}.", numeric=False)

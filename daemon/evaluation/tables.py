"""The tables of a report as rows of text: the terminal and the HTML page show the same ones."""

from dataclasses import dataclass

from daemon.evaluation.comparison import Comparison
from daemon.evaluation.formatting import number, option, percent, plain, points, seconds, with_interval
from daemon.evaluation.report import FieldReport, LabelReport, Report
from daemon.evaluation.stats import Spread


@dataclass(frozen=True)
class Grid:
    """A table: a title, the head, the rows, and a note below.

    `numeric`: all columns but the first hold numbers. `heat`: for each row the shares, 0 to 1, that shade its cells.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    numeric: bool = True
    heat: tuple[tuple[float, ...], ...] = ()


def overview(report: Report) -> Grid:
    """What was asked, and how often the answer was right."""
    rows = [
        ("cases", f"{report.right.total} of {report.cases_file}"),
        ("model", ", ".join(report.models) or "none answered"),
        ("right", with_interval(report.right)),
    ]
    if len(report.kinds) > 1:
        rows += [(f"right, {kind}", with_interval(value)) for kind, value in report.kinds.items()]
    rows += [(f"right, group {group}", with_interval(value)) for group, value in sorted(report.groups.items())]
    rows += [(f"ended with {code}", str(count)) for code, count in sorted(report.errors.items())]
    if report.cut_off:
        rows.append(("answers cut off at the token limit", str(report.cut_off)))
    return Grid("Overview", ("", ""), tuple(rows), "Intervals hold 95 % (Wilson).", numeric=False)


def speed(report: Report) -> Grid:
    """How long it took."""
    head = ("", "mean", "p50", "p90", "p95", "p99", "most")
    rows = (_spread("waited, queue included", report.latency), _spread("computed by the daemon", report.work))
    tokens = report.tokens
    note = (
        f"Tokens: {tokens.prompt} of prompts ({tokens.cached} from the cache), {tokens.completion} of answers, "
        f"{number(tokens.decoded_per_second, 1)} decoded a second."
    )
    return Grid("Speed", head, rows, note)


def _spread(name: str, value: Spread) -> tuple[str, ...]:
    return (name, *map(seconds, (value.mean, value.p50, value.p90, value.p95, value.p99, value.most)))


def label_grids(report: LabelReport) -> list[Grid]:
    """Per-label scores, confusion, calibration, thresholds."""
    grids = [_scores(report), _confusion(report)]
    if report.thresholds:
        grids += [_reliability(report), _thresholds(report)]
    return grids


def _scores(report: LabelReport) -> Grid:
    rows = tuple(
        (row.label, percent(row.precision), percent(row.recall), percent(row.f1), str(row.support), str(row.predicted))
        for row in report.scores
    )
    note = (
        f"Macro F1 {percent(report.macro_f1)}. Always answering the most frequent label would be right in "
        f"{percent(report.majority)}."
    )
    return Grid("Labels", ("label", "precision", "recall", "F1", "expected", "answered"), rows, note)


def _confusion(report: LabelReport) -> Grid:
    rows = tuple((label, *map(str, counts)) for label, counts in zip(report.labels, report.confusion, strict=True))
    heat = tuple(tuple(count / (sum(counts) or 1) for count in counts) for counts in report.confusion)
    return Grid("Confusion", ("expected ↓ answered →", *report.columns), rows, heat=heat)


def _reliability(report: LabelReport) -> Grid:
    rows = tuple(
        (f"{entry.low:.1f} to {entry.high:.1f}", str(entry.count), percent(entry.confidence), percent(entry.accuracy))
        for entry in report.reliability
        if entry.count
    )
    note = (
        f"Expected calibration error {percent(report.calibration_error)}: 0 % where probabilities can be taken as said."
    )
    return Grid("Calibration", ("probability", "cases", "said", "right"), rows, note)


def _thresholds(report: LabelReport) -> Grid:
    rows = tuple(
        (f"{row.threshold:.2f}", percent(row.coverage.rate), str(row.coverage.hits), with_interval(row.accuracy))
        for row in report.thresholds
    )
    note = "Send what lies below the threshold to a person."
    return Grid("Answer only above a probability", ("at least", "coverage", "cases", "right among these"), rows, note)


def field_grid(report: FieldReport) -> Grid:
    """Fields of JSON answers."""
    rows = [
        ("valid JSON object", with_interval(report.valid_json)),
        ("all fields of a case right", with_interval(report.exact)),
        ("fields right", with_interval(report.values)),
        *((f"field {name}", with_interval(value)) for name, value in report.fields.items()),
    ]
    return Grid("Fields", ("", "share"), tuple(rows))


def mistakes(report: Report, most: int) -> Grid | None:
    """The first `most` cases that went wrong, None where there are none."""
    if not report.mistakes:
        return None
    rows = tuple(
        (row.id, row.text, plain(row.expected), row.answer, number(row.probability)) for row in report.mistakes[:most]
    )
    hidden = len(report.mistakes) - len(rows)
    note = f"{hidden} more are in the HTML report and the results file." if hidden else ""
    head = ("case", "text", "expected", "answered", "p")
    return Grid(f"Wrong answers: {len(report.mistakes)}", head, rows, note, numeric=False)


def report_grids(report: Report) -> list[Grid]:
    """Everything but the wrong answers."""
    grids = [overview(report)]
    if report.labels is not None:
        grids += label_grids(report.labels)
    if report.fields is not None:
        grids.append(field_grid(report.fields))
    return [*grids, speed(report)]


# -- two runs ---------------------------------------------------------------------------------------------------------


def comparison_grids(comparison: Comparison) -> list[Grid]:
    """Both runs side by side, and the test of their difference."""
    a, b = comparison.a, comparison.b
    rows: list[tuple[str, ...]] = [
        ("model", ", ".join(a.models), ", ".join(b.models), ""),
        ("right", with_interval(a.right), with_interval(b.right), points(comparison.accuracy)),
    ]
    rows += [
        (f"right, group {group}", with_interval(a.groups[group]), with_interval(b.groups[group]), "")
        for group in sorted(a.groups.keys() & b.groups.keys())
    ]
    rows += _label_rows(a.labels, b.labels) + _field_rows(comparison)
    rows += [
        ("waited, median", seconds(a.latency.p50), seconds(b.latency.p50), ""),
        ("computed, median", seconds(a.work.p50), seconds(b.work.p50), ""),
        ("tokens of prompts", str(a.tokens.prompt), str(b.tokens.prompt), ""),
    ]
    note = "Differences are B minus A; their 95 % intervals come from resampling whole cases."
    return [
        _options(comparison),
        Grid("Side by side", ("", "A", "B", "difference"), tuple(rows), note, numeric=False),
        _paired(comparison),
    ]


def _options(comparison: Comparison) -> Grid:
    """The options in which the two runs differ."""
    a, b = comparison.a.options, comparison.b.options
    names = [name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)]
    rows = tuple((name, option(a.get(name)), option(b.get(name))) for name in names)
    note = "" if rows else "The two runs have the same options."
    return Grid("What differs", ("option", "A", "B"), rows, note, numeric=False)


def _label_rows(a: LabelReport | None, b: LabelReport | None) -> list[tuple[str, ...]]:
    if a is None or b is None:
        return []
    rows: list[tuple[str, ...]] = [
        ("macro F1", percent(a.macro_f1), percent(b.macro_f1), ""),
        ("calibration error", percent(a.calibration_error), percent(b.calibration_error), ""),
    ]
    others = {score.label: score for score in b.scores}
    rows += [
        (f"F1, {score.label}", percent(score.f1), percent(others[score.label].f1), "")
        for score in a.scores
        if score.label in others
    ]
    return rows


def _field_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    a, b = comparison.a.fields, comparison.b.fields
    if a is None or b is None:
        return []
    return [
        ("valid JSON", with_interval(a.valid_json), with_interval(b.valid_json), ""),
        ("fields right", with_interval(a.values), with_interval(b.values), points(comparison.field_values)),
    ]


def _paired(comparison: Comparison) -> Grid:
    rows = (
        ("A and B right", str(comparison.both_right)),
        ("only A right", str(comparison.only_a)),
        ("only B right", str(comparison.only_b)),
        ("both wrong", str(comparison.neither)),
        ("in one run only, not counted", str(comparison.unpaired)),
        ("p (McNemar, exact)", f"{comparison.p:.3g}"),
    )
    return Grid("Case by case", ("", "cases"), rows, comparison.verdict)

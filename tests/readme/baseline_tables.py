"""The tables of the page on prompts, made from the results in `deploy/examples/tickets/baseline`."""

from collections.abc import Sequence
from pathlib import Path

from daemon.evaluation.comparison import compare_runs
from daemon.evaluation.formatting import percent, points, with_interval
from daemon.evaluation.report import Report, make_report
from daemon.evaluation.results import read_results
from tests.readme.markdown import ROOT

BASELINE = ROOT / "deploy" / "examples" / "tickets" / "baseline"


def baseline_report(path: Path) -> Report:
    """The report of the last run in a results file."""
    results = read_results(path)
    assert results.last_run is not None
    return make_report(results.last_run, results.outcomes(results.last_run.settings))


def labels_table(names: Sequence[str]) -> str:
    """One row for each run over the labelled tickets."""
    rows = ["| run | right, all 75 | English | Spanish | Ukrainian | calibration error |", "|---|---|---|---|---|---|"]
    for name in names:
        report = baseline_report(BASELINE / f"{name}.jsonl")
        assert report.labels is not None
        groups = [percent(report.groups[group].rate) for group in ("en", "es", "uk")]
        cells = [f"`{name}`", with_interval(report.right), *groups, percent(report.labels.calibration_error)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def thresholds_table(name: str) -> str:
    """What answering only above a probability would bring."""
    report = baseline_report(BASELINE / f"{name}.jsonl")
    assert report.labels is not None
    rows = ["| only above | answered | right among these |", "|---|---|---|"]
    rows += [
        f"| {row.threshold:.2f} | {percent(row.coverage.rate)} | {with_interval(row.accuracy)} |"
        for row in report.labels.thresholds
    ]
    return "\n".join(rows)


def fields_table(names: Sequence[str]) -> str:
    """One row for each run over the tickets with fields."""
    fields = ("customer", "order", "product", "quantity", "city")
    rows = [f"| run | valid JSON | all five right | {' | '.join(fields)} |", "|---|---|---|---|---|---|---|---|"]
    for name in names:
        report = baseline_report(BASELINE / f"{name}.jsonl").fields
        assert report is not None
        shares = [percent(report.fields[field].rate) for field in fields]
        cells = [f"`{name}`", percent(report.valid_json.rate), with_interval(report.exact), *shares]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def comparisons_table(pairs: Sequence[tuple[str, str]]) -> str:
    """One row for each pair of runs over the same cases."""
    rows = ["| from | to | right | right fields | p (McNemar, exact) |", "|---|---|---|---|---|"]
    for a, b in pairs:
        found = compare_runs(*(read_results(BASELINE / f"{name}.jsonl") for name in (a, b)))
        cells = (f"`{a}`", f"`{b}`", points(found.accuracy), points(found.field_values), f"{found.p:.2g}")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)

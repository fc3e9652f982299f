"""Every figure about quality in the documentation is one that the committed results give."""

import re

import pytest

from daemon.evaluation.formatting import with_interval
from tests.readme.baseline_tables import (
    BASELINE,
    baseline_report,
    comparisons_table,
    fields_table,
    labels_table,
    thresholds_table,
)
from tests.readme.markdown import ROOT

PROMPTS = ROOT / "deploy" / "docs" / "prompts.md"
LABEL_RUNS = ("plain", "examples", "examples-3-languages", "wrapped")
FIELD_RUNS = ("fields-no-schema", "fields", "fields-examples")


PAIRS = (("plain", "examples"), ("plain", "wrapped"), ("fields-no-schema", "fields"), ("fields", "fields-examples"))


@pytest.mark.parametrize(
    "table",
    [labels_table(LABEL_RUNS), thresholds_table("wrapped"), fields_table(FIELD_RUNS), comparisons_table(PAIRS)],
    ids=["labels", "thresholds", "fields", "comparisons"],
)
def test_tables_are_what_the_results_say(table: str) -> None:
    """Guards against figures that nobody measured; paste the table on failure."""
    assert table in PROMPTS.read_text("utf-8"), f"a table of the page should be:\n{table}"


@pytest.mark.parametrize("name", [*LABEL_RUNS, *FIELD_RUNS])
def test_baseline_pages_show_the_results_beside_them(name: str) -> None:
    """Guards against a committed page that belongs to other results."""
    report = baseline_report(BASELINE / f"{name}.jsonl")
    page = (BASELINE / f"{name}.html").read_text("utf-8")
    assert with_interval(report.right) in page
    assert report.settings in page


def stands_in(figure: str, log: str) -> bool:
    """Whether the log has the figure, not only as a part of a longer number."""
    return re.search(rf"(?<![\d.]){re.escape(figure)}(?!\.?\d)", log) is not None


def test_speed_figures_are_in_the_log() -> None:
    """Guards against a figure in the page on design that the log of experiments does not have."""
    design = (ROOT / "deploy" / "docs" / "design.md").read_text("utf-8")
    log = (ROOT / "tests" / "bench" / "LOG.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in design.splitlines() if line.startswith("| ")]
    cells = [cell for row in rows if row[0] != "question" for cell in row[1:]]
    figures = [figure for cell in cells for figure in cell.split(", ")]
    assert len(figures) > 20
    assert [figure for figure in figures if not stands_in(figure, log)] == []

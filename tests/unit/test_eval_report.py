"""Reports and comparisons of `leveret eval`, counted by hand."""

from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from daemon.evaluation.cases import Case, CasesError
from daemon.evaluation.comparison import Comparison, compare_runs
from daemon.evaluation.page import comparison_page, report_page
from daemon.evaluation.report import NO_ANSWER, Report, make_report
from daemon.evaluation.requests import RunOptions
from daemon.evaluation.results import Answered, Failed, Outcome, Results, Run, Seconds, Tokens, outcome_of, run_of
from daemon.evaluation.tables import report_grids
from daemon.evaluation.terminal import print_comparison, print_report

OPTIONS = RunOptions(labels=("a", "b", "c"))
RUN = run_of(OPTIONS, Path("cases.jsonl"))
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")


def _outcome(name: str, expect: Mapping[str, Any], text: str | None, *, run: Run = RUN, **answer: Any) -> Outcome:
    """An answer with this text, an error without one."""
    case = Case.model_validate(
        {"id": name, "text": f"<text> & {name}", "group": answer.pop("group", ""), "expect": expect}
    )
    if text is None:
        return outcome_of(case, run.settings, error=Failed(code="deadline_exceeded", message="too late"))
    fields = {
        "model": "m",
        "finish_reason": "stop",
        "label_probs": None,
        "tokens": Tokens(prompt=10, completion=2, cached=4),
        "seconds": Seconds(total=2.0, prefill=0.5, decode=0.5),
    }
    return outcome_of(case, run.settings, answer=Answered(text=text, **fields | answer))


def _label(name: str, expected: str, answered: str | None, probability: float = 0.9, **more: Any) -> Outcome:
    probabilities = {answered: probability} if answered else None
    return _outcome(name, {"label": expected}, answered, label_probs=probabilities, **more)


LABELLED = [
    _label("1", "a", "a", 0.95, group="en"),
    _label("2", "a", "b", 0.55, group="en"),
    _label("3", "b", "b", 0.85, group="uk"),
    _label("4", "b", "b", 0.65, group="uk"),
    _label("5", "c", None),
]
FIELDS = [
    _outcome("6", {"fields": {"x": 1, "y": "z"}}, '{"x": 1, "y": "z"}'),
    _outcome("7", {"fields": {"x": 1, "y": "z"}}, '{"x": 2, "y": "z"}'),
    _outcome("8", {"fields": {"x": 1}}, '{"x": ', finish_reason="length"),
    _outcome("9", {"regex": "^z"}, "zz"),
]


def test_labels() -> None:
    """Guards accuracy, precision, recall, F1 and the confusion matrix; an error counts as wrong."""
    labels = make_report(RUN, LABELLED).labels
    assert labels is not None
    assert (labels.accuracy.hits, labels.accuracy.total, labels.majority) == (3, 5, 0.4)
    assert labels.columns == ("a", "b", "c", NO_ANSWER)
    assert labels.confusion == ((1, 1, 0, 0), (0, 2, 0, 0), (0, 0, 0, 1))
    a, b, c = labels.scores
    assert (a.precision, a.recall, a.f1) == (1.0, 0.5, pytest.approx(2 / 3))
    assert (b.precision, b.recall, b.f1) == (pytest.approx(2 / 3), 1.0, 0.8)
    assert (c.precision, c.recall, c.f1, c.support) == (None, 0.0, 0.0, 1)
    assert labels.macro_f1 == pytest.approx((2 / 3 + 0.8 + 0) / 3)


def test_calibration_and_thresholds() -> None:
    """Guards what counts for them: answers with a probability, which an error has not."""
    labels = make_report(RUN, LABELLED).labels
    assert labels is not None
    # bins 0.9-1: said 0.95, right; 0.5-0.6: 0.55, wrong; 0.8-0.9: 0.85, right; 0.6-0.7: 0.65, right
    assert labels.calibration_error == pytest.approx((0.05 + 0.55 + 0.15 + 0.35) / 4)
    at = {row.threshold: (row.coverage.hits, row.accuracy.hits) for row in labels.thresholds}
    assert (at[0.0], at[0.6], at[0.9], at[0.99]) == ((4, 3), (3, 3), (1, 1), (0, 0))


def test_fields_and_the_rest() -> None:
    """Guards valid JSON, whole objects, single fields, answers cut off, and the counts by kind and group."""
    report = make_report(RUN, [*LABELLED, *FIELDS])
    fields = report.fields
    assert fields is not None
    assert (fields.valid_json.hits, fields.exact.hits, fields.exact.total) == (2, 1, 3)
    assert {name: (value.hits, value.total) for name, value in fields.fields.items()} == {"x": (1, 3), "y": (2, 2)}
    assert (fields.values.hits, fields.values.total) == (3, 5)
    assert (report.right.hits, report.right.total, report.cut_off) == (5, 9, 1)
    assert {kind: value.hits for kind, value in report.kinds.items()} == {"label": 3, "fields": 1, "regex": 1}
    assert {group: (value.hits, value.total) for group, value in report.groups.items()} == {"en": (1, 2), "uk": (2, 2)}
    assert report.errors == {"deadline_exceeded": 1}


def test_speed_and_tokens() -> None:
    """Guards the sums; errors have neither time nor tokens."""
    report = make_report(RUN, LABELLED)
    assert (report.latency.count, report.latency.p50, report.work.p50) == (4, 2.0, 1.0)
    assert (report.tokens.prompt, report.tokens.completion, report.tokens.cached) == (40, 8, 16)
    assert report.tokens.decoded_per_second == 4.0


def test_mistakes_say_what_happened() -> None:
    """Guards the list of wrong answers: expected, answered, probability; an error with its code."""
    wrong = {mistake.id: mistake for mistake in make_report(RUN, [*LABELLED, *FIELDS]).mistakes}
    assert wrong.keys() == {"2", "5", "7", "8"}
    assert (wrong["2"].expected, wrong["2"].answer, wrong["2"].probability) == ("a", "b", 0.55)
    assert wrong["5"].answer == "deadline_exceeded: too late"


def test_only_errors() -> None:
    """Guards against a report that cannot be made when nothing was answered."""
    report = make_report(RUN, [LABELLED[-1], _outcome("x", {"fields": {"x": 1}}, None)])
    assert report.right.hits == 0
    assert report.labels is not None
    assert (report.labels.thresholds, report.labels.calibration_error, report.latency.p50) == ((), None, None)
    assert "deadline_exceeded" in report_page(report)
    _printed(report)


# -- two runs ---------------------------------------------------------------------------------------------------------


def _results(run: Run, *outcomes: Outcome) -> Results:
    return Results([run, *outcomes])


def _two_runs() -> Comparison:
    other = run_of(
        RunOptions(labels=("a", "b", "c"), before=({"role": "system", "content": "Sort."},)), Path("cases.jsonl")
    )
    answers = {"1": ("a", "a"), "2": ("a", "a"), "3": ("b", "b"), "4": ("b", "a"), "5": ("c", "c")}
    better = [_label(name, expected, answer, run=other) for name, (expected, answer) in answers.items()]
    return compare_runs(_results(RUN, *LABELLED), _results(other, *better, _label("alone", "a", "a", run=other)))


def test_cases_are_paired_by_id() -> None:
    """Guards the pairs: case by case, those that one run lacks left out and counted."""
    comparison = _two_runs()
    pairs = (comparison.both_right, comparison.only_a, comparison.only_b, comparison.neither)
    assert (pairs, comparison.unpaired, comparison.paired) == ((2, 1, 2, 0), 1, 5)
    assert comparison.p == 1.0
    assert comparison.accuracy is not None
    assert comparison.accuracy.value == pytest.approx(0.2)
    assert "may be chance" in comparison.verdict


def test_a_clear_difference() -> None:
    """Guards the verdict's direction, and the test that it rests on: 2 / 2^8 for eight to nothing."""
    other = run_of(RunOptions(seed=1), Path("cases.jsonl"))
    wrong = [_outcome(str(n), {"contains": "x"}, "y") for n in range(8)]
    right = [_outcome(str(n), {"contains": "x"}, "x", run=other) for n in range(8)]
    comparison = compare_runs(_results(RUN, *wrong), _results(other, *right))
    assert comparison.p == pytest.approx(2 / 256)
    assert comparison.verdict.startswith("B is better")
    swapped = compare_runs(_results(other, *right), _results(RUN, *wrong))
    assert swapped.verdict.startswith("A is better")


def test_fields_are_compared_by_their_shares() -> None:
    """Guards the mean share of right fields: from 1, 1/2 and 0 to 1, 1 and 0."""
    other = run_of(RunOptions(seed=1), Path("cases.jsonl"))
    texts = ['{"x": 1, "y": "z"}', '{"x": 1, "y": "z"}', "{"]
    better = [
        _outcome(one.id, one.expect.model_dump(exclude_none=True), text, run=other)
        for one, text in zip(FIELDS, texts, strict=False)
    ]
    comparison = compare_runs(_results(RUN, *FIELDS), _results(other, *better))
    assert comparison.fields_seen == 3
    assert comparison.field_values is not None
    assert comparison.field_values.value == pytest.approx(1 / 6)


def test_runs_that_cannot_be_compared() -> None:
    """Guards against numbers about nothing: no run, no common case, the same id with another expectation."""
    with pytest.raises(CasesError, match="holds no run"):
        compare_runs(Results([]), _results(RUN, *LABELLED))
    with pytest.raises(CasesError, match="no case in common"):
        compare_runs(_results(RUN, _label("1", "a", "a")), _results(RUN, _label("1", "b", "a")))


# -- what is shown ----------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Checks that tags close in order, and collects what the page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.words = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not dict(attrs).keys() & {"src", "href", "onload"}
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def _printed(shown: Report | Comparison) -> str:
    console = Console(width=150, force_terminal=False)
    with console.capture() as captured:
        if isinstance(shown, Report):
            print_report(console, shown)
        else:
            print_comparison(console, shown)
    return captured.get()


def test_the_page_of_a_run() -> None:
    """Guards the page: well formed, every part there, text from cases only ever text, nothing from elsewhere."""
    hostile = _label("</td><script>alert(1)</script>", "a", "b", 0.5)
    report = make_report(RUN, [*LABELLED, *FIELDS, hostile])
    html = report_page(report)
    page = _Page(html)
    assert (page.links, page.tags["script"], page.tags["img"], page.tags["link"]) == ([], 0, 0, 0)
    assert "</td><script>alert(1)</script>" in page.words
    assert page.tags["svg"] == 6
    for grid in report_grids(report):
        assert grid.title in page.words
    for words in (
        "F1 of each label",
        "honest ones lie on the line",
        "how many of those right",
        "each field",
        "each group",
        "waited",
    ):
        assert words in page.words
    assert "@media print" in html
    assert "http" not in html.replace("http-equiv", "")


def test_numbers_in_the_page_and_on_the_terminal_are_the_reports() -> None:
    """Guards against a table that shows something else than what was counted."""
    report = make_report(RUN, LABELLED)
    for shown in (_Page(report_page(report)).words, _printed(report)):
        for words in ("60.0 %", "3 of 5", "80.0 %", "48.9 %", "27.5 %", "deadline_exceeded"):
            assert words in shown


def test_the_page_of_two_runs() -> None:
    """Guards the comparison's page and tables: what differs, both sides, the verdict."""
    comparison = _two_runs()
    page = _Page(comparison_page(comparison))
    for shown in (page.words, _printed(comparison)):
        for words in ("What differs", "Sort.", "+20.0 points", "McNemar", comparison.verdict):
            assert words in shown
    assert page.tags["svg"] == 2


def test_markup_on_the_terminal_is_text() -> None:
    """Guards against an answer such as [red] that changes the table instead of standing in it."""
    report = make_report(RUN, [_outcome("1", {"contains": "x"}, "[bold]no[/bold] [/oops]")])
    assert "[bold]no[/bold] [/oops]" in _printed(report)

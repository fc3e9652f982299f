"""What the outcomes of a run say, as plain numbers; terminal, JSON and HTML show the same object."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daemon.evaluation.results import Answered, Outcome, Run
from daemon.evaluation.stats import (
    Bin,
    Rate,
    Spread,
    Threshold,
    expected_calibration_error,
    f1,
    rate,
    ratio,
    reliability,
    spread,
    threshold_row,
)

THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
NO_ANSWER = "(no answer)"
"""Column of the confusion matrix for requests that ended with an error."""


@dataclass(frozen=True)
class LabelScore:
    """How well one label is found. `support` is how often it was expected, `predicted` how often answered."""

    label: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    predicted: int


@dataclass(frozen=True)
class LabelReport:
    """The cases that expect a label.

    `majority` is what always answering the most frequent label would reach. `confusion[i][j]` counts cases of
    `labels[i]` answered with `columns[j]`. Calibration and thresholds use the probability of the label answered.
    """

    accuracy: Rate
    majority: float | None
    macro_f1: float | None
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    scores: tuple[LabelScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    reliability: tuple[Bin, ...]
    calibration_error: float | None
    thresholds: tuple[Threshold, ...]


@dataclass(frozen=True)
class FieldReport:
    """The cases that expect fields of a JSON object.

    `exact`: all expected fields right; `valid_json`: an object at all; `values`: right fields over all cases.
    """

    exact: Rate
    valid_json: Rate
    values: Rate
    fields: Mapping[str, Rate]


@dataclass(frozen=True)
class Usage:
    """Token counts of a run, and how many tokens a second the daemon decoded, over all answers."""

    prompt: int
    completion: int
    cached: int
    decoded_per_second: float | None


@dataclass(frozen=True)
class Mistake:
    """One case that went wrong. `probability` is that of the label answered."""

    id: str
    group: str
    text: str
    expected: Any
    answer: str
    probability: float | None


@dataclass(frozen=True)
class Report:
    """A run in numbers. `latency` is what the requester waited, `work` what the daemon computed, both in seconds."""

    settings: str
    cases_file: str
    options: Mapping[str, Any]
    models: tuple[str, ...]
    right: Rate
    kinds: Mapping[str, Rate]
    groups: Mapping[str, Rate]
    errors: Mapping[str, int]
    cut_off: int
    labels: LabelReport | None
    fields: FieldReport | None
    latency: Spread
    work: Spread
    latencies: tuple[float, ...]
    tokens: Usage
    mistakes: tuple[Mistake, ...]


def make_report(run: Run, outcomes: Sequence[Outcome]) -> Report:
    """Count everything. `cut_off` is the number of answers that ran into their token limit."""
    answers = [outcome.answer for outcome in outcomes if outcome.answer is not None]
    latencies = tuple(answer.seconds.total for answer in answers)
    return Report(
        settings=run.settings,
        cases_file=run.cases,
        options=run.options,
        models=tuple(dict.fromkeys(answer.model for answer in answers)),
        right=_right(outcomes),
        kinds=_by(outcomes, lambda outcome: outcome.expect.kind),
        groups=_by([outcome for outcome in outcomes if outcome.group], lambda outcome: outcome.group),
        errors=Counter(outcome.error.code for outcome in outcomes if outcome.error is not None),
        cut_off=sum(answer.finish_reason == "length" for answer in answers),
        labels=_labels(run, [outcome for outcome in outcomes if outcome.expect.label is not None]),
        fields=_fields([outcome for outcome in outcomes if outcome.expect.fields is not None]),
        latency=spread(latencies),
        work=spread([answer.seconds.prefill + answer.seconds.decode for answer in answers]),
        latencies=latencies,
        tokens=_usage(answers),
        mistakes=tuple(_mistake(outcome) for outcome in outcomes if not outcome.score.right),
    )


def _right(outcomes: Sequence[Outcome]) -> Rate:
    return rate(sum(outcome.score.right for outcome in outcomes), len(outcomes))


def _by(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, Rate]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {name: _right(members) for name, members in groups.items()}


def _usage(answers: Sequence[Answered]) -> Usage:
    completion = sum(answer.tokens.completion for answer in answers)
    return Usage(
        prompt=sum(answer.tokens.prompt for answer in answers),
        completion=completion,
        cached=sum(answer.tokens.cached for answer in answers),
        decoded_per_second=ratio(completion, sum(answer.seconds.decode for answer in answers)),
    )


def _mistake(outcome: Outcome) -> Mistake:
    expect = outcome.expect
    answer = outcome.answer.text if outcome.answer else ""
    if outcome.error is not None:
        answer = f"{outcome.error.code}: {outcome.error.message}"
    expected = getattr(expect, expect.kind)
    return Mistake(outcome.id, outcome.group, outcome.text, expected, answer, probability_of(outcome))


def probability_of(outcome: Outcome) -> float | None:
    """The probability of the label that was answered, None without one."""
    if outcome.answer is None or outcome.answer.label_probs is None:
        return None
    return outcome.answer.label_probs.get(outcome.answer.text)


# -- labels -----------------------------------------------------------------------------------------------------------


def _labels(run: Run, outcomes: Sequence[Outcome]) -> LabelReport | None:
    if not outcomes:
        return None
    pairs = [(str(outcome.expect.label), outcome.answer.text if outcome.answer else NO_ANSWER) for outcome in outcomes]
    counts = Counter(pairs)
    labels = _names(run, pairs)
    others = [answer for _, answer in pairs if answer not in labels]
    columns = (*labels, *dict.fromkeys(others))
    scores = tuple(_label_score(label, counts) for label in labels)
    sure = [(probability_of(outcome), outcome.score.right) for outcome in outcomes]
    confidences = [probability for probability, _ in sure if probability is not None]
    right = [hit for probability, hit in sure if probability is not None]
    bins = reliability(confidences, right)
    defined = [score.f1 for score in scores if score.f1 is not None]
    return LabelReport(
        accuracy=_right(outcomes),
        majority=ratio(max(Counter(expected for expected, _ in pairs).values()), len(pairs)),
        macro_f1=ratio(sum(defined), len(defined)),
        labels=labels,
        columns=columns,
        scores=scores,
        confusion=tuple(tuple(counts[row, column] for column in columns) for row in labels),
        reliability=bins,
        calibration_error=expected_calibration_error(bins),
        thresholds=tuple(threshold_row(threshold, confidences, right) for threshold in THRESHOLDS if confidences),
    )


def _names(run: Run, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The labels of the run's options, then expected ones that only single cases know."""
    given = run.options.get("labels") or ()
    return tuple(dict.fromkeys([*given, *(expected for expected, _ in pairs)]))


def _label_score(label: str, counts: Mapping[tuple[str, str], int]) -> LabelScore:
    hits = counts.get((label, label), 0)
    support = sum(count for (expected, _), count in counts.items() if expected == label)
    predicted = sum(count for (_, answer), count in counts.items() if answer == label)
    precision, recall = ratio(hits, predicted), ratio(hits, support)
    return LabelScore(label, precision, recall, f1(precision, recall), support, predicted)


# -- fields -----------------------------------------------------------------------------------------------------------


def _fields(outcomes: Sequence[Outcome]) -> FieldReport | None:
    if not outcomes:
        return None
    scores = [outcome.score for outcome in outcomes]
    verdicts = [(name, right) for score in scores for name, right in score.fields.items()]
    names = dict.fromkeys(name for name, _ in verdicts)
    return FieldReport(
        exact=_right(outcomes),
        valid_json=rate(sum(bool(score.valid_json) for score in scores), len(scores)),
        values=rate(sum(right for _, right in verdicts), len(verdicts)),
        fields={name: _field_rate(name, verdicts) for name in names},
    )


def _field_rate(name: str, verdicts: Sequence[tuple[str, bool]]) -> Rate:
    own = [right for other, right in verdicts if other == name]
    return rate(sum(own), len(own))

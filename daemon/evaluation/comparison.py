"""Two runs over the same cases, side by side, with paired tests of the difference."""

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.evaluation.cases import CasesError
from daemon.evaluation.report import Report, make_report
from daemon.evaluation.results import Outcome, Results
from daemon.evaluation.stats import Difference, mcnemar_exact, paired_difference

SIGNIFICANT = 0.05
"""Below this p, a difference is called shown."""


@dataclass(frozen=True)
class Comparison:
    """Runs A and B on the cases that both have answered; `unpaired` cases, which one of them lacks, do not count.

    `p` is McNemar's exact test on `only_a` and `only_b`, the cases where only one of the two is right. `accuracy` and
    `field_values` (mean share of right fields in a case) are B minus A with bootstrap intervals.
    """

    a: Report
    b: Report
    both_right: int
    only_a: int
    only_b: int
    neither: int
    unpaired: int
    p: float
    accuracy: Difference | None
    field_values: Difference | None
    fields_seen: int

    @property
    def paired(self) -> int:
        """Number of cases that both have."""
        return self.both_right + self.only_a + self.only_b + self.neither

    @property
    def verdict(self) -> str:
        """One plain sentence."""
        if self.only_a == self.only_b:
            return "Neither is more often right than the other."
        better = "B" if self.only_b > self.only_a else "A"
        if self.p < SIGNIFICANT:
            return f"{better} is better: the difference is more than chance (p = {self.p:.3g})."
        return (
            f"{better} is right more often, but with {self.paired} cases that may be chance (p = {self.p:.2g}); "
            "more cases would tell."
        )


def compare_runs(a: Results, b: Results) -> Comparison:
    """Compare the last run of each. Raises CasesError where a file has no run, or the two have no case in common."""
    runs = [results.last_run for results in (a, b)]
    outcomes = []
    for name, results, run in zip("AB", (a, b), runs, strict=True):
        if run is None:
            raise CasesError(f"file {name} of --compare holds no run")
        outcomes.append(results.outcomes(run.settings))
    pairs = _pairs(*outcomes)
    if not pairs:
        raise CasesError("the two runs have no case in common: cases are paired by id and expectation")
    reports = [make_report(run, [pair[side] for pair in pairs]) for side, run in enumerate(runs) if run is not None]
    return _compare(reports, pairs, len(outcomes[0]) + len(outcomes[1]) - 2 * len(pairs))


def _pairs(a: Sequence[Outcome], b: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    others = {outcome.id: outcome for outcome in b}
    return [(outcome, other) for outcome in a if (other := others.get(outcome.id)) and other.expect == outcome.expect]


def _compare(reports: Sequence[Report], pairs: Sequence[tuple[Outcome, Outcome]], unpaired: int) -> Comparison:
    right = [(one.score.right, other.score.right) for one, other in pairs]
    only_a, only_b = right.count((True, False)), right.count((False, True))
    with_fields = [(one, other) for one, other in pairs if one.expect.fields is not None]
    return Comparison(
        a=reports[0],
        b=reports[1],
        both_right=right.count((True, True)),
        only_a=only_a,
        only_b=only_b,
        neither=right.count((False, False)),
        unpaired=unpaired,
        p=mcnemar_exact(only_a, only_b),
        accuracy=paired_difference([float(one) for one, _ in right], [float(other) for _, other in right]),
        field_values=paired_difference(
            [_share(one) for one, _ in with_fields], [_share(other) for _, other in with_fields]
        ),
        fields_seen=len(with_fields),
    )


def _share(outcome: Outcome) -> float:
    verdicts = outcome.score.fields.values()
    return sum(verdicts) / len(verdicts)

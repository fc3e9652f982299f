"""One run: what is still to be asked is asked, and every answer goes to the results file at once."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from daemon.client import MARGIN_SECONDS, Client, Envelope
from daemon.evaluation.asking import Asking, Stopped
from daemon.evaluation.cases import Case, CasesError, read_cases
from daemon.evaluation.requests import RunOptions, body_of, with_labels
from daemon.evaluation.results import Outcome, ResultsFile, Run, run_of
from daemon.evaluation.terminal import Tick, progress, say
from schemas.refusals import first_refusal
from schemas.replies import ChatCompletion
from schemas.request import ChatRequest

REMIND_SECONDS = 15.0
"""Without an answer for so long, the user is told where to look."""


@dataclass(frozen=True)
class Plan:
    """What a run consists of, checked."""

    cases: tuple[Case, ...]
    options: RunOptions
    run: Run
    results: Path
    in_flight: int


def make_plan(path: Path, options: RunOptions, results: Path | None, in_flight: int) -> Plan:
    """Read the cases and check every request before the first is sent. Raises CasesError."""
    cases = read_cases(path)
    options = with_labels(options, cases)
    for case in cases:
        body = body_of(case, options)
        try:
            ChatRequest.model_validate(body)
        except ValidationError as error:
            raise CasesError(f"{path}, case {case.id!r}: {first_refusal(error, body)}") from error
    results = results or path.with_suffix(".results.jsonl")
    return Plan(tuple(cases), options, run_of(options, path), results, in_flight)


class Progress:
    """What is known of each case, in the order of the cases."""

    def __init__(self, plan: Plan, file: ResultsFile) -> None:
        self._plan, self._file = plan, file
        self._tick: Tick | None = None
        self._heard = False
        found = (file.content.outcome(plan.run.settings, case) for case in plan.cases)
        self._known = {outcome.case: outcome for outcome in found if outcome is not None and outcome.error is None}

    @property
    def waiting(self) -> list[Case]:
        """Cases without an answer; those that ended with an error are asked again."""
        return [case for case in self._plan.cases if case.digest not in self._known]

    @property
    def outcomes(self) -> list[Outcome]:
        """Everything known, in the order of the cases."""
        return [self._known[case.digest] for case in self._plan.cases if case.digest in self._known]

    @property
    def right(self) -> int:
        """Number of right answers so far."""
        return sum(outcome.score.right for outcome in self._known.values())

    def show_on(self, tick: Tick) -> None:
        """Show every further outcome on `tick`."""
        self._tick = tick

    def take(self, outcome: Outcome) -> None:
        """Keep an outcome. Raises Stopped where another model has answered than before."""
        self._heard = True
        if outcome.answer is not None:
            self._check_model(outcome.answer.model)
        self._file.write(outcome)
        self._known[outcome.case] = outcome
        if self._tick is not None:
            self._tick(len(self._known), self.right)

    def remind(self) -> None:
        """Say that nobody answers, unless somebody has."""
        if not self._heard:
            say(f"no answer in {REMIND_SECONDS:g} s; is a daemon running? `leveret doctor` tells")

    def _check_model(self, model: str) -> None:
        others = {known.answer.model for known in self._known.values() if known.answer is not None} - {model}
        if others:
            raise Stopped(
                f"the daemon answers as {model}, but the results are of {others.pop()}; "
                "give --results another file for another model"
            )


async def evaluate(plan: Plan, client: Client, default_timeout: float) -> list[Outcome]:
    """Ask what is still to be asked; all outcomes, in the order of the cases. Raises Stopped, CasesError.

    `default_timeout`: seconds that a request without `timeout` may take.
    """

    async def ask(body: Mapping[str, Any]) -> ChatCompletion:
        seconds = float(body.get("timeout", default_timeout)) + MARGIN_SECONDS
        return await client.complete(body, Envelope(wait_seconds=seconds))

    with _opened(plan) as file:
        state = Progress(plan, file)
        with progress(len(plan.cases), len(state.outcomes), state.right) as tick:
            state.show_on(tick)
            reminder = asyncio.get_running_loop().call_later(REMIND_SECONDS, state.remind)
            try:
                await Asking(ask, plan.options, state.take).run(state.waiting, plan.in_flight)
            finally:
                reminder.cancel()
        return state.outcomes


def answered_already(plan: Plan) -> Sequence[Outcome] | None:
    """The outcomes of a run that is complete, None where something is still to be asked. Raises CasesError."""
    if not plan.results.exists():
        return None
    with _opened(plan) as file:
        state = Progress(plan, file)
        return None if state.waiting else state.outcomes


@contextmanager
def _opened(plan: Plan) -> Iterator[ResultsFile]:
    """The results file, in which this run is the last one begun."""
    with ResultsFile(plan.results) as file:
        last = file.content.last_run
        if last is None or last.settings != plan.run.settings:
            file.write(plan.run)
        yield file

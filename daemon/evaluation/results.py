"""The results file: one JSON object a line, appended as answers come, so that a run can stop anywhere and go on.

A line is either a run (its options under their digest) or an outcome (what came of one case under these options).
Every line is written with one call and brought to the disk; a line that a crash cut short is passed over.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from daemon.evaluation.cases import Case, CasesError, Expectation
from daemon.evaluation.requests import RunOptions
from daemon.evaluation.scoring import Score, score


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Run(_Line):
    """The options that the outcomes with this digest were made with; `cases` is the name of the cases' file."""

    kind: Literal["run"] = "run"
    settings: str
    cases: str
    options: Mapping[str, Any]


class Tokens(_Line):
    """Counts as the daemon reports them; `cached` is the part of the prompt that came from its cache."""

    prompt: int
    completion: int
    cached: int


class Seconds(_Line):
    """`total` is what the requester waited, the queue included; `prefill` and `decode` are the daemon's own."""

    total: float
    prefill: float
    decode: float


class Answered(_Line):
    """The answer to a case."""

    text: str
    model: str
    finish_reason: str
    label_probs: Mapping[str, float] | None = None
    tokens: Tokens
    seconds: Seconds


class Failed(_Line):
    """The error that a request ended with."""

    code: str
    message: str


class Outcome(_Line):
    """What came of one case: an answer or an error. `text` is the case's last message, for the report."""

    kind: Literal["outcome"] = "outcome"
    settings: str
    case: str
    id: str
    group: str
    text: str
    expect: Expectation
    answer: Answered | None = None
    error: Failed | None = None

    @property
    def score(self) -> Score:
        """Is it right?"""
        return score(self.expect, self.answer.text if self.answer else None)


_LINES: TypeAdapter[Run | Outcome] = TypeAdapter(Annotated[Run | Outcome, Field(discriminator="kind")])


def outcome_of(case: Case, settings: str, *, answer: Answered | None = None, error: Failed | None = None) -> Outcome:
    """Put together what came of `case`."""
    return Outcome(
        settings=settings,
        case=case.digest,
        id=case.id,
        group=case.group,
        text=case.turns[-1].content,
        expect=case.expect,
        answer=answer,
        error=error,
    )


class Results:
    """Everything that a results file holds. The last outcome of a case counts."""

    def __init__(self, lines: Iterable[Run | Outcome]) -> None:
        self.runs: dict[str, Run] = {}
        self._outcomes: dict[tuple[str, str], Outcome] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Run | Outcome) -> None:
        """Take in a line; a run that is written again becomes the last one."""
        if isinstance(line, Run):
            self.runs.pop(line.settings, None)
            self.runs[line.settings] = line
        else:
            self._outcomes[line.settings, line.case] = line

    def outcome(self, settings: str, case: Case) -> Outcome | None:
        """What came of this very case under these options, None where it was not asked."""
        return self._outcomes.get((settings, case.digest))

    def outcomes(self, settings: str) -> list[Outcome]:
        """All outcomes under these options; of a case that was changed, the last one asked."""
        own = (outcome for (digest, _), outcome in self._outcomes.items() if digest == settings)
        return list({outcome.id: outcome for outcome in own}.values())

    @property
    def last_run(self) -> Run | None:
        """The run that was begun last."""
        return next(reversed(self.runs.values()), None)


def read_results(path: Path) -> Results:
    """Read a results file. Raises CasesError for a file that is none; a last line that was cut short is passed over."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise CasesError(f"{path}: cannot be read: {error.strerror or error}") from error
    whole, rest = lines[:-1], lines[-1]
    if rest and not whole:
        raise CasesError(f"{path}: is no results file of leveret eval")
    return Results(_line(line, path, number) for number, line in enumerate(whole, 1) if line.strip())


def _line(line: bytes, path: Path, number: int) -> Run | Outcome:
    try:
        return _LINES.validate_json(line)
    except ValidationError as error:
        raise CasesError(f"{path}, line {number}: is no line of a results file of leveret eval") from error


class ResultsFile:
    """A results file open for appending, with what it holds; only one process at a time may have it open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.content = Results(())

    def __enter__(self) -> Self:
        """Raises CasesError where the file is another kind of file, cannot be written, or is written by a process."""
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise CasesError(f"{self._path}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.content = read_results(self._path)
            self._cut_off_half_a_line()
        except BaseException as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise CasesError(f"{self._path}: another leveret eval writes this file; use --results") from error
            raise
        return self

    def _cut_off_half_a_line(self) -> None:
        """Remove what a crash left behind the last line end."""
        content = self._path.read_bytes()
        os.ftruncate(self._file, content.rfind(b"\n") + 1)

    def write(self, line: Run | Outcome) -> None:
        """Append one line, bring it to the disk, and take it into `content`."""
        os.write(self._file, line.model_dump_json(exclude_none=True).encode() + b"\n")
        os.fsync(self._file)
        self.content.add(line)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def run_of(options: RunOptions, cases: Path) -> Run:
    """The line that says what a run's outcomes were made with."""
    return Run(settings=options.digest, cases=cases.name, options=json.loads(json.dumps(asdict(options))))

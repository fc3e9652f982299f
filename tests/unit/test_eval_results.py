"""The results file of `leveret eval`: what is written is what is read, whatever happened in between."""

from pathlib import Path

import pytest

from daemon.evaluation.cases import Case, CasesError
from daemon.evaluation.requests import RunOptions
from daemon.evaluation.results import (
    Answered,
    Failed,
    Outcome,
    Results,
    ResultsFile,
    Seconds,
    Tokens,
    outcome_of,
    read_results,
    run_of,
)

CASE = Case.model_validate({"id": "c", "text": "hi", "expect": {"fields": {"a": None, "b": [1]}}})
OPTIONS = RunOptions(before=({"role": "system", "content": "Zażółć"},))
RUN = run_of(OPTIONS, Path("cases.jsonl"))


def _outcome(text: str, settings: str = RUN.settings) -> Outcome:
    answer = Answered(
        text=text,
        model="m",
        finish_reason="stop",
        label_probs={"a": 1.0},
        tokens=Tokens(prompt=1, completion=2, cached=0),
        seconds=Seconds(total=1.0, prefill=0.25, decode=0.5),
    )
    return outcome_of(CASE, settings, answer=answer)


def _written(path: Path, *texts: str) -> Path:
    with ResultsFile(path) as file:
        file.write(RUN)
        for text in texts:
            file.write(_outcome(text))
    return path


def test_there_and_back(tmp_path: Path) -> None:
    """Guards against a value that does not survive the file: null fields, other scripts, an error."""
    path = _written(tmp_path / "r.jsonl", "ü\n")
    with ResultsFile(path) as file:
        assert file.content.outcome(RUN.settings, CASE) == _outcome("ü\n")
        file.write(outcome_of(CASE, RUN.settings, error=Failed(code="expired", message="m")))
    again = read_results(path)
    found = again.outcome(RUN.settings, CASE)
    assert found is not None
    assert (found.error, found.answer) == (Failed(code="expired", message="m"), None)
    assert again.last_run == RUN


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    """Guards against a run that cannot go on, or a line glued to a torn one, after a kill in the middle of a write."""
    path = _written(tmp_path / "r.jsonl", "one")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(read_results(path).outcomes(RUN.settings)) == 1
    with ResultsFile(path) as file:
        file.write(_outcome("two", "other"))
    assert path.read_bytes().startswith(whole)
    assert len(read_results(path).outcomes("other")) == 1


@pytest.mark.parametrize(
    "content", ["text", "text\n", '{"kind": "run"}\n', '{"text": "x", "expect": {"label": "a"}}\n']
)
def test_another_kind_of_file_is_left_alone(tmp_path: Path, content: str) -> None:
    """Guards against a cases file, or a letter, that is overwritten because it was named as results."""
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(CasesError, match=r"r\.jsonl.* results file of leveret eval"), ResultsFile(path):
        pass
    assert path.read_text() == content


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """Guards against two runs that ask everything twice and mix their lines."""
    path = tmp_path / "r.jsonl"
    with ResultsFile(path), pytest.raises(CasesError, match="another leveret eval"), ResultsFile(path):
        pass
    with ResultsFile(path):
        assert path.exists()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """Guards against a traceback."""
    with pytest.raises(CasesError, match="cannot be written"), ResultsFile(tmp_path / "absent" / "r.jsonl"):
        pass


def test_the_last_word_counts() -> None:
    """Guards which line counts: the last outcome of a case, also of one whose content changed; the last run begun."""
    changed = CASE.model_copy(update={"text": "ho"})
    other = RunOptions(seed=1)
    results = Results([RUN, run_of(other, Path("c")), _outcome("one"), _outcome("two"), RUN])
    assert [outcome.answer and outcome.answer.text for outcome in results.outcomes(RUN.settings)] == ["two"]
    results.add(outcome_of(changed, RUN.settings, error=Failed(code="expired", message="m")))
    assert [outcome.case for outcome in results.outcomes(RUN.settings)] == [changed.digest]
    assert results.last_run == RUN
    assert results.outcome(other.digest, CASE) is None

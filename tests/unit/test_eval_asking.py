"""How `leveret eval` asks: what can pass is waited for, what cannot ends the run, nothing is asked too often."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from daemon.client_errors import AnswerTimeout, BrokerRefused, BrokerUnavailable, ClientError, QueueFull, RequestRefused
from daemon.evaluation import asking
from daemon.evaluation.asking import TRIES, Asking, Stopped
from daemon.evaluation.cases import Case
from daemon.evaluation.requests import RunOptions
from daemon.evaluation.results import Outcome, ResultsFile
from daemon.evaluation.running import Plan, Progress, make_plan
from schemas.replies import ChatCompletion, Head, Timings, chat_error, usage

TIMINGS = Timings(queue_seconds=0, prefill_seconds=0.5, decode_seconds=1, tokens_per_second=1)


def _completion(text: str, model: str = "m") -> ChatCompletion:
    return Head.new(model).completion(text, finish_reason="stop", usage=usage(3, 2, 1), timings=TIMINGS)


def _refused(code: str, *, retryable: bool) -> RequestRefused:
    return RequestRefused(chat_error(code, "no", param=None, retryable=retryable))


def _cases(count: int) -> list[Case]:
    return [Case.model_validate({"id": str(n), "text": str(n), "expect": {"contains": "x"}}) for n in range(count)]


class Bus:
    """Answers `x`, after raising what the test wants for a text, and counts what happens at the same time."""

    def __init__(self, faults: Mapping[str, Sequence[ClientError]] | None = None) -> None:
        self.faults = {text: list(errors) for text, errors in (faults or {}).items()}
        self.asked: Counter[str] = Counter()
        self.running = self.most = 0

    async def __call__(self, body: Mapping[str, Any]) -> ChatCompletion:
        """As the client does."""
        text = body["messages"][-1]["content"]
        self.asked[text] += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            if self.faults.get(text):
                raise self.faults[text].pop(0)
            return _completion("x")
        finally:
            self.running -= 1


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "RETRY_SECONDS", 0.0)


async def _run(bus: Bus, cases: Sequence[Case], in_flight: int = 3) -> list[Outcome]:
    outcomes: list[Outcome] = []
    await Asking(bus, RunOptions(), outcomes.append).run(cases, in_flight)
    return outcomes


async def test_several_are_in_flight() -> None:
    """Guards the number on the bus at a time, and that every case is asked once."""
    bus = Bus()
    outcomes = await _run(bus, _cases(10))
    assert bus.most == 3
    assert set(bus.asked.values()) == {1}
    assert sorted(outcome.id for outcome in outcomes) == sorted(map(str, range(10)))
    assert all(outcome.score.right for outcome in outcomes)


async def test_a_lost_broker_and_a_full_queue_are_waited_for() -> None:
    """Guards against a run that ends because the broker was restarted, and a case that is lost with it."""
    bus = Bus({"0": [BrokerUnavailable("gone"), QueueFull("full"), BrokerUnavailable("gone")]})
    (first, _) = sorted(await _run(bus, _cases(2)), key=lambda outcome: outcome.id)
    assert bus.asked["0"] == 4
    assert first.score.right


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a command that waits for ever for a broker that does not come back."""
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", -1.0)
    with pytest.raises(Stopped, match=r"nothing got through.*gone"):
        await _run(Bus({"0": [BrokerUnavailable("gone")]}), _cases(1))


async def test_errors_that_may_pass_are_asked_again() -> None:
    """Guards the tries: three in all for a retryable error, one for any other; then the error is the outcome."""
    late = [_refused("deadline_exceeded", retryable=True)]
    bus = Bus({"0": late, "1": late * TRIES, "2": [_refused("context_length_exceeded", retryable=False)]})
    first, second, third = sorted(await _run(bus, _cases(3)), key=lambda outcome: outcome.id)
    assert dict(bus.asked) == {"0": 2, "1": TRIES, "2": 1}
    assert first.score.right
    assert second.error is not None
    assert third.error is not None
    assert (second.error.code, third.error.code) == ("deadline_exceeded", "context_length_exceeded")


@pytest.mark.parametrize("error", [AnswerTimeout("nobody"), BrokerRefused("no right")])
async def test_what_cannot_pass_ends_the_run(error: ClientError) -> None:
    """Guards against a run that asks on although nobody answers; the requests in flight end with it."""
    bus = Bus({"3": [error]})
    with pytest.raises(Stopped, match=str(error)):
        await _run(bus, _cases(100))
    assert bus.running == 0
    assert sum(bus.asked.values()) < 20


# -- a run and its file -----------------------------------------------------------------------------------------------


def _plan(directory: Path) -> Plan:
    path = directory / "cases.jsonl"
    path.write_text("".join(f'{{"id": "{n}", "text": "{n}", "expect": {{"contains": "x"}}}}\n' for n in range(3)))
    return make_plan(path, RunOptions(), None, 2)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return _plan(tmp_path)


async def _outcomes(plan: Plan, bus: Bus) -> dict[str, Outcome]:
    found: list[Outcome] = []
    await Asking(bus, plan.options, found.append).run(plan.cases, 1)
    return {outcome.id: outcome for outcome in found}


async def test_a_run_goes_on_where_it_stopped(plan: Plan) -> None:
    """Guards against cases that are asked again, and errors that stay for ever."""
    outcomes = await _outcomes(plan, Bus({"1": [_refused("invalid_request", retryable=False)]}))
    with ResultsFile(plan.results) as file:
        state = Progress(plan, file)
        state.take(outcomes["0"])
        state.take(outcomes["1"])
        assert [case.id for case in state.waiting] == ["2"]
    with ResultsFile(plan.results) as file:
        again = Progress(plan, file)
        assert [case.id for case in again.waiting] == ["1", "2"]
        assert ([outcome.id for outcome in again.outcomes], again.right) == (["0"], 1)


async def test_two_models_do_not_mix(plan: Plan) -> None:
    """Guards against one report over the answers of two models, because the daemon was changed in between."""
    outcomes = await _outcomes(plan, Bus())
    with ResultsFile(plan.results) as file:
        state = Progress(plan, file)
        state.take(outcomes["0"])
        other = outcomes["1"].answer
        assert other is not None
        changed = outcomes["1"].model_copy(update={"answer": other.model_copy(update={"model": "other"})})
        with pytest.raises(Stopped, match="answers as other, but the results are of m"):
            state.take(changed)
        assert len(state.outcomes) == 1

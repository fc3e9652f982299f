"""`leveret eval` as a process, on a real broker: killed, interrupted, and with a daemon that is killed under it."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest
from aio_pika.abc import AbstractIncomingMessage
from private_broker import PrivateBroker

from daemon.evaluation.results import Outcome, read_results
from tests.broker.conftest import StartDaemon
from tests.support.responder import Responder, fields
from tests.support.wait import wait_until

REPORTED, BELOW, USAGE, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 130
ROOT = Path(__file__).parents[2]


class Evaluation:
    """Starts the command in a directory with a file of cases: the numbers 0 to 5, each expected in its answer."""

    def __init__(self, url: str, queue: str, directory: Path, count: int = 6) -> None:
        self.directory = directory
        self._environment = os.environ | {"LEVERET_AMQP_URL": url, "LEVERET_QUEUE": queue, "PYTHONPATH": str(ROOT)}
        cases = [{"id": f"c{n}", "text": f"say {n}", "expect": {"contains": str(n)}} for n in range(count)]
        (directory / "cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))

    async def start(self, *arguments: str) -> Process:
        """Run `leveret eval` with its streams in pipes."""
        program = (sys.executable, "-c", "from daemon.cli import main; main()", "eval", *arguments)
        return await asyncio.create_subprocess_exec(
            *program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environment, cwd=self.directory
        )

    async def end(self, process: Process) -> tuple[int | None, str, str]:
        """Wait for exit status, output and errors."""
        out, err = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode, out.decode(), err.decode()

    def outcomes(self, name: str = "cases.results.jsonl") -> list[Outcome]:
        """What the results file holds of its last run; nothing before there is a file."""
        path = self.directory / name
        results = read_results(path) if path.exists() else None
        return results.outcomes(results.last_run.settings) if results and results.last_run else []


@pytest.fixture
def evaluation(broker: PrivateBroker, queue: str, tmp_path: Path) -> Evaluation:
    return Evaluation(broker.url, queue, tmp_path)


def _text(request: AbstractIncomingMessage) -> str:
    text: str = fields(request)["messages"][-1]["content"]
    return text


async def _answer(responder: Responder, count: int) -> list[str]:
    """Answer so many requests, all but the first case rightly; the texts that came."""
    texts = []
    for _ in range(count):
        request = await responder.request()
        texts.append(_text(request))
        await responder.finish(request, "zero" if texts[-1] == "say 0" else texts[-1])
    return texts


async def test_killed_half_way_it_goes_on(evaluation: Evaluation, responder: Responder) -> None:
    """Guards against answers that are lost with the process, or asked for twice; the report is over all of them."""
    process = await evaluation.start("cases.jsonl", "--in-flight", "2")
    answered = await _answer(responder, 3)
    await wait_until(lambda: len(evaluation.outcomes()) == 3, description="three answers are kept")
    process.kill()
    await process.wait()
    while not responder.requests.empty():
        responder.requests.get_nowait()

    again = await evaluation.start("cases.jsonl", "--in-flight", "2", "--json", "--html", "report.html")
    rest = await _answer(responder, 3)
    status, out, err = await evaluation.end(again)
    assert (status, err) == (REPORTED, "")
    assert sorted(answered + rest) == [f"say {n}" for n in range(6)]
    report = json.loads(out)
    assert (report["right"]["hits"], report["right"]["total"], report["models"]) == (5, 6, ["scripted"])
    assert [mistake["id"] for mistake in report["mistakes"]] == ["c0"]
    assert "5 of 6" in (evaluation.directory / "report.html").read_text()

    third = await evaluation.end(await evaluation.start("cases.jsonl", "--fail-under", "0.9"))
    assert third[0] == BELOW
    assert "5 of 6" in third[1]
    assert "wanted 0.9" in third[2]
    assert responder.requests.empty()


async def test_interrupted(evaluation: Evaluation, responder: Responder) -> None:
    """Guards Ctrl-C: the requests in flight are cancelled on the bus, and the user is told how to go on."""
    process = await evaluation.start("cases.jsonl", "--in-flight", "2")
    await _answer(responder, 1)
    waiting = {(await responder.request()).correlation_id for _ in range(2)}
    process.send_signal(signal.SIGINT)
    assert {await responder.cancelled_id() for _ in range(2)} == waiting
    status, _, err = await evaluation.end(process)
    assert status == INTERRUPTED
    assert "cases.results.jsonl" in err
    assert "Traceback" not in err
    assert len(evaluation.outcomes()) == 1


async def test_a_killed_daemon_changes_no_result(
    broker: PrivateBroker, queue: str, tmp_path: Path, start_daemon: StartDaemon
) -> None:
    """Guards the run over a daemon that is killed in the middle of an answer and started again: the same answers."""
    evaluation = Evaluation(broker.url, queue, tmp_path, count=4)
    options = ("cases.jsonl", "--max-new-tokens", "12", "--in-flight", "3", "--choice", "zebra,alpha")
    label = {"id": "label", "text": "sort this", "expect": {"label": "alpha"}}
    with (tmp_path / "cases.jsonl").open("a") as cases:
        cases.write(f"{json.dumps(label)}\n")
    daemon = await start_daemon()
    undisturbed = await evaluation.start(*options, "--results", "calm.jsonl")
    assert (await evaluation.end(undisturbed))[0] == REPORTED

    disturbed = await evaluation.start(*options, "--results", "storm.jsonl")
    await wait_until(lambda: len(evaluation.outcomes("storm.jsonl")) == 2, description="two answers")
    await daemon.busy()
    daemon.kill()
    daemon.start_again()
    await daemon.ready()
    status, _, err = await evaluation.end(disturbed)
    assert (status, err) == (REPORTED, "")
    calm, storm = ({o.id: _lasting(o) for o in evaluation.outcomes(f"{name}.jsonl")} for name in ("calm", "storm"))
    assert len(calm) == 5
    assert calm == storm


def _lasting(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its times and without what the prompt cache, empty after a restart, has spared."""
    left_out = {"answer": {"seconds": True, "tokens": {"cached"}}}
    return outcome.model_dump(exclude=left_out)


async def test_two_runs_compared(evaluation: Evaluation, responder: Responder) -> None:
    """Guards the way from two results files to the comparison; it needs no broker."""
    for name in ("a", "b"):
        (evaluation.directory / f"{name}.txt").write_text(f"Prompt {name}")
        process = await evaluation.start("cases.jsonl", "--system", f"{name}.txt", "--results", f"{name}.jsonl")
        await _answer(responder, 6)
        assert (await evaluation.end(process))[0] == REPORTED
    compared = await evaluation.start("--compare", "a.jsonl", "b.jsonl", "--html", "both.html")
    status, out, err = await evaluation.end(compared)
    assert (status, err) == (REPORTED, "")
    assert "Neither is more often right" in out
    assert "Prompt b" in (evaluation.directory / "both.html").read_text()


async def test_nobody_there(evaluation: Evaluation, tmp_path: Path) -> None:
    """Guards the two ways of nobody being there: no queue, no broker; one line each and nothing half done."""
    status, _, err = await evaluation.end(await evaluation.start("cases.jsonl"))
    assert status == NO_ANSWER
    assert "does not exist" in err
    away = Evaluation("amqp://guest:guest@127.0.0.1:1/", "q", tmp_path)
    status, _, err = await away.end(await away.start("cases.jsonl"))
    assert (status, len(err.splitlines())) == (NO_ANSWER, 1)


@pytest.mark.parametrize(
    "arguments", [(), ("absent.jsonl",), ("cases.jsonl", "--in-flight", "0"), ("--compare", "x", "y")]
)
async def test_usage(evaluation: Evaluation, arguments: tuple[str, ...]) -> None:
    """Guards against a traceback, or a request, where the command itself is wrong."""
    status, out, err = await evaluation.end(await evaluation.start(*arguments))
    assert (status, out) == (USAGE, "")
    assert "Traceback" not in err

"""`leveret eval CASES.jsonl`: labelled cases over the bus, and how good the answers are."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from daemon.cli.bus import connect
from daemon.cli.command import command_app
from daemon.client import ClientError
from daemon.evaluation.asking import Stopped
from daemon.evaluation.cases import CasesError
from daemon.evaluation.comparison import Comparison, compare_runs
from daemon.evaluation.inputs import read_before, read_json, read_template
from daemon.evaluation.page import comparison_page, report_page
from daemon.evaluation.report import Report, make_report
from daemon.evaluation.requests import RunOptions
from daemon.evaluation.results import Outcome, read_results
from daemon.evaluation.running import Plan, answered_already, evaluate, make_plan
from daemon.evaluation.terminal import print_comparison, print_report
from daemon.settings import load_settings

BELOW, USAGE, NO_ANSWER, INTERRUPTED = 1, 2, 3, 130

app = command_app()


@app.command("eval")
def evaluation(  # noqa: PLR0913 - one parameter an option
    cases: Annotated[Path | None, typer.Argument(help="Cases: one JSON object a line, with text and expect.")] = None,
    *,
    system: Annotated[Path | None, typer.Option(help="File with a system message put before each case.")] = None,
    before: Annotated[Path | None, typer.Option(help="File with a JSON list of messages put before each case.")] = None,
    template: Annotated[Path | None, typer.Option(help="File with {text} in it, put around user messages.")] = None,
    choice: Annotated[str | None, typer.Option(help="Labels, commas between; default: those of the cases.")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="File with the JSON schema of answers with fields.")] = None,
    model: Annotated[str | None, typer.Option(help="Refuse to be answered by another model.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answers.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for each request.")] = None,
    in_flight: Annotated[int, typer.Option(min=1, max=256, help="Requests on the bus at a time.")] = 4,
    results: Annotated[Path | None, typer.Option(help="Results file; default: CASES.results.jsonl.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report as an HTML page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    fail_under: Annotated[float | None, typer.Option(min=0, max=1, help="Status 1 below this share.")] = None,
    compare: Annotated[tuple[Path, Path] | None, typer.Option(metavar="A B", help="Compare two results files.")] = None,
) -> None:
    """Send labelled cases to the daemons on the queue and report how good and how fast the answers are.

    A case is a line such as {"text": "I was charged twice", "expect": {"label": "billing"}}; instead of a label it may
    expect fields (values in a JSON object), regex, or contains. Answers are kept in the results file: a run that was
    interrupted goes on there, a complete one is only reported again. Nothing leaves the machine but the requests.

    Exit status 0 reported, 1 below --fail-under, 2 usage, 3 no broker or no answer, 130 interrupted.
    """
    with _told():
        if compare is not None:
            _show_comparison(compare_runs(*map(read_results, compare)), html, as_json=as_json)
            return
        if cases is None:
            raise typer.BadParameter("missing; or give --compare A B", param_hint="CASES")
        options = RunOptions(
            before=read_before(system, before),
            template=read_template(template),
            labels=tuple(label.strip() for label in choice.split(",")) if choice else (),
            json_schema=None if json_schema is None else read_json(json_schema),
            model=model,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            timeout=timeout,
        )
        plan = make_plan(cases, options, results, in_flight)
        report = make_report(plan.run, answered_already(plan) or _ask(plan))
        _show_report(report, html, as_json=as_json)
    if fail_under is not None and (report.right.rate or 0.0) < fail_under:
        raise _end(f"right in {report.right.rate or 0.0:.3f} of the cases, wanted {fail_under:g}", BELOW)


@contextmanager
def _told() -> Iterator[None]:
    """End with one line and a status for everything that a user can put right."""
    try:
        yield
    except CasesError as error:
        raise _end(str(error), USAGE) from error
    except OSError as error:
        raise _end(f"{error.filename}: {error.strerror or error}", USAGE) from error


def _ask(plan: Plan) -> Sequence[Outcome]:
    """Ask what is still to be asked. Ends with status 3 or 130 where that cannot be finished."""
    settings = load_settings()

    async def ask() -> Sequence[Outcome]:
        async with await connect(settings) as client:
            return await evaluate(plan, client, settings.max_seconds)

    try:
        return asyncio.run(ask())
    except (Stopped, ClientError) as error:
        raise _end(f"{error}; the answers so far are in {plan.results}", NO_ANSWER) from error
    except KeyboardInterrupt as error:
        raise _end(f"interrupted; the same command goes on from {plan.results}", INTERRUPTED) from error


def _show_report(report: Report, html: Path | None, *, as_json: bool) -> None:
    if html is not None:
        html.write_text(report_page(report), "utf-8")
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2, ensure_ascii=False).encode())
    else:
        print_report(Console(), report)


def _show_comparison(comparison: Comparison, html: Path | None, *, as_json: bool) -> None:
    if html is not None:
        html.write_text(comparison_page(comparison), "utf-8")
    if as_json:
        typer.echo(json.dumps(asdict(comparison), indent=2, ensure_ascii=False).encode())
    else:
        print_comparison(Console(), comparison)


def _end(message: str, status: int) -> typer.Exit:
    typer.echo(f"leveret eval: {message}", err=True)
    return typer.Exit(status)

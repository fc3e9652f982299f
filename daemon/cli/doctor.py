"""`leveret doctor`: is everything there that a daemon needs?"""

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from daemon.cli.command import command_app
from daemon.doctor.examination import examine
from daemon.doctor.findings import Finding, Verdict

app = command_app()

_COLOURS = {Verdict.OK: typer.colors.GREEN, Verdict.WARN: typer.colors.YELLOW, Verdict.FAIL: typer.colors.RED}


@app.command()
def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of lines.")] = False) -> None:
    """Check settings, broker, rights, topology, model, processor, threads, memory and clock.

    One line for each, with what to do where something is wrong. Nothing is changed. Exit status 1 where a daemon would
    not work; a warning alone does not count.
    """
    logging.getLogger("aiormq").addHandler(logging.NullHandler())  # what it complains about is a finding here
    findings = asyncio.run(examine())
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        _print(findings)
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(1)


def _print(findings: Sequence[Finding]) -> None:
    """Colours are left out where the output is no terminal."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        verdict = typer.style(f"{finding.verdict:4}", fg=_COLOURS[finding.verdict])
        advice = f" → {finding.advice}" if finding.advice else ""
        typer.echo(f"{verdict}  {finding.check:{width}}  {finding.seen}{advice}")

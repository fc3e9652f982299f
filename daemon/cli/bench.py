"""`leveret bench`: measure the model on this machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from daemon.bench.figures import BASELINE, Figures, report, table
from daemon.bench.plot import draw
from daemon.cli.command import command_app
from daemon.engine.threads import effective_threads
from daemon.errors import ConfigurationError
from daemon.models import find_model
from daemon.settings import load_settings

app = command_app()


@app.command()
def bench(
    model: Annotated[str | None, typer.Option(help="Model name or directory; default: LEVERET_MODEL.")] = None,
    weights: Annotated[list[str] | None, typer.Option(help="Kind of weights; may be repeated. Default: int8.")] = None,
    *,
    baseline: Annotated[bool, typer.Option("--baseline", help="Also plain transformers in float32.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures into this PNG file.")] = None,
) -> None:
    """Measure prefill, decode, time to the first token, start-up and memory of each kind of weights.

    Each kind is measured in a process of its own. Nothing else should run on the machine meanwhile.
    """
    settings = load_settings()
    location = find_model(model or settings.model, settings.models_dir)
    threads = effective_threads(settings.threads)
    kinds = [*(weights or ["int8"]), *([BASELINE] if baseline else [])]
    figures = [_measure(location.path, kind, threads) for kind in kinds]
    if as_json:
        typer.echo(json.dumps(report(location.model_id, figures), indent=2))
    else:
        typer.echo(f"{location.model_id}, {threads} threads")
        typer.echo("\n".join(table(figures)))
    if plot is not None:
        draw(location.model_id, figures, plot)


def _measure(model_dir: Path, kind: str, threads: int) -> Figures:
    """Measure in a new process, whose errors go to the terminal. Raises ConfigurationError where it fails."""
    typer.echo(f"measuring {kind} …", err=True)
    command = [sys.executable, "-m", "daemon.bench.measure", str(model_dir), kind, str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode != 0:
        raise ConfigurationError(f"{kind} weights could not be measured; the lines above say why")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))

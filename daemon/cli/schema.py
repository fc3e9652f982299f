"""`leveret schema`: the published contract of the messages."""

import json

import typer

from daemon import __version__
from schemas.asyncapi import document

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def schema() -> None:
    """Print the AsyncAPI 3 document of requests, replies and cancels, with examples and JSON schemas."""
    typer.echo(json.dumps(document(__version__), indent=2, ensure_ascii=False).encode())

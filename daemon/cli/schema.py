"""`leveret schema`: the published contract of the messages."""

import json

import typer

from daemon import __version__
from daemon.cli.command import command_app
from schemas.asyncapi import document

app = command_app()


@app.command()
def schema() -> None:
    """Print the AsyncAPI 3 document of requests, replies and cancels, with examples and JSON schemas."""
    typer.echo(json.dumps(document(__version__), indent=2, ensure_ascii=False).encode())

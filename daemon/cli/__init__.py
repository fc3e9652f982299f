"""The command `leveret`. One file a command, loaded only when that command runs, so that help stays quick."""

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from daemon import __version__
from daemon.errors import ConfigurationError

EX_CONFIG = 78
"""Exit status of an unusable configuration (sysexits.h)."""

COMMANDS = {
    "run": "Serve requests until SIGTERM or SIGINT.",
    "chat": "Send one request over the bus and stream the answer to the terminal.",
    "eval": "Measure the answers on labelled cases of your own.",
    "bench": "Measure speed and memory of the model on this machine.",
    "dead": "List the parked requests; send one back to the queue, or drop it.",
    "doctor": "Check broker, rights, topology, model and machine; one line each with what to do.",
    "config": "Print the effective settings, secrets masked.",
    "fetch": "Bring a model into the models directory.",
    "schema": "Print the AsyncAPI 3 document of the messages.",
}
"""Every command with its line in the help; `daemon.cli.<command>` holds it, as a Typer named `app`."""


class _Commands(TyperGroup):
    """Knows the commands by name and line; the module of a command is loaded when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's own context class is private
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        loaded = get_command(import_module(f"daemon.cli.{name}").app)
        loaded.name = name
        return name, loaded, rest


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"leveret {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *, version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version.")
) -> None:
    """Run a small language model behind a RabbitMQ queue, on a plain CPU."""


def main() -> None:
    """Run the command line. Exits with 78 and one line for an unusable configuration."""
    try:
        app()
    except ConfigurationError as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(EX_CONFIG)

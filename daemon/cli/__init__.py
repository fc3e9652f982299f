"""The command `leveret`. One file a command, loaded only when that command runs, so that help stays quick."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from daemon import __version__
from daemon.cli import completion
from daemon.cli.help import COMMANDS, SETTINGS_AND_STATUSES, TEACHING, examples
from daemon.errors import ConfigurationError

EX_CONFIG = 78
"""Exit status of an unusable configuration (sysexits.h)."""


class _Commands(TyperGroup):
    """Knows the commands by name and line; the module of a command is loaded when it is called or completed."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - whatever typer gives
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, line in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own context class is private
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        loaded = get_command(import_module(f"daemon.cli.{name}").app)
        loaded.name, loaded.epilog = name, examples(name)
        return name, loaded, rest


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"leveret {__version__}")
        raise typer.Exit


def _show_completion(shell: completion.Shell | None) -> None:
    if shell is not None:
        typer.echo(completion.script(shell))
        raise typer.Exit


@app.callback(help=TEACHING, epilog=SETTINGS_AND_STATUSES)
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    show_completion: Annotated[
        completion.Shell | None,
        typer.Option(
            callback=_show_completion,
            is_eager=True,
            metavar="SHELL",
            help="Print completion for bash, zsh or fish; nothing is written into your shell's files. "
            'For .bashrc: eval "$(leveret --show-completion bash)"',
        ),
    ] = None,
) -> None:
    """Everything is done by the options' callbacks and the commands."""


def main() -> None:
    """Run the command line. Exits with 78 and one line for an unusable configuration."""
    if completion.VARIABLE in os.environ:
        completion.prepare()
    try:
        app(prog_name="leveret")
    except ConfigurationError as error:
        sys.stderr.write(f"leveret: {error}\n")
        sys.exit(EX_CONFIG)

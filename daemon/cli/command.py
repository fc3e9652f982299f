"""What the apps of all commands have in common."""

import typer


def command_app() -> typer.Typer:
    """An app for one command: plain help, and no options of its own that change the user's shell files."""
    return typer.Typer(add_completion=False, rich_markup_mode=None)

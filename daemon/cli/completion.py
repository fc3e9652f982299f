"""Completion in the shell: typer's scripts and protocol, which it offers only together with a change of shell files.

A script asks by running `leveret` with the line so far in variables; only the command's own module is loaded then.
"""

from enum import StrEnum

VARIABLE = "_LEVERET_COMPLETE"
"""Set by the scripts, to `complete_<shell>`."""


class Shell(StrEnum):
    """Shells whose completion is known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def script(shell: Shell) -> str:
    """The lines that a shell has to read once."""
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - not public: not for other commands

    return get_completion_script(prog_name="leveret", complete_var=VARIABLE, shell=shell)


def prepare() -> None:
    """Let typer answer the scripts."""
    from typer._completion_classes import completion_init  # noqa: PLC0415 - not public: not for other commands

    completion_init()

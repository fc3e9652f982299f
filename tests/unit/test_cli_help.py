"""The help teaches: every example in it parses, every command has one, and it fits a screen."""

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from daemon.cli import app
from daemon.cli.help import COMMANDS, EXAMPLES

LONGEST_HELP, WIDTH = 45, 80


def _context(words: list[str]) -> Any:
    """Parse a command line after `leveret`, without running anything. Raises typer's usage errors."""
    context: Any = get_command(app).make_context("leveret", words, resilient_parsing=words[-1] == "--help")
    while hasattr(context.command, "resolve_command") and (rest := [*context._protected_args, *context.args]):
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context, resilient_parsing=context.resilient_parsing)
    return context


def _help(*command: str) -> str:
    text: str = _context([*command, "--help"]).get_help()
    return text


def _examples(text: str) -> list[list[str]]:
    """The lines that show a command, as words after `leveret`, without variables before it."""
    lines = [shlex.split(line) for line in re.findall(r"^ {4}\S.*", text, re.MULTILINE) if "leveret " in line]
    shown = [[word for word in line if not word.startswith("LEVERET_")] for line in lines]
    return [line[1:] for line in shown if line and line[0] == "leveret"]


def test_the_parser_of_examples_refuses_what_is_wrong() -> None:
    """A check that accepts everything would guard nothing."""
    with pytest.raises(Exception, match="No such option"):
        _context(["chat", "--no-such-option"])
    with pytest.raises(Exception, match=r"No such command 'chta'.* 'chat'"):
        _context(["chta", "text"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_ends_with_examples_that_parse(command: str) -> None:
    """Guards against an example that names an option or argument which the command no longer has."""
    text = _help(command)
    shown = _examples(text)
    assert len(shown) == len(EXAMPLES[command])
    assert text.splitlines()[-1].strip() == EXAMPLES[command][-1]
    for words in shown:
        assert words[0] == command
        _context(words)


def test_the_first_steps_parse() -> None:
    """Guards the commands that a newcomer types first."""
    steps = _examples(_help())
    assert [words[0] for words in steps] == ["fetch", "run", "chat"]
    for words in steps:
        _context(words)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_fits_a_screen(command: tuple[str, ...]) -> None:
    """Guards against help that scrolls away, and lines that are cut."""
    lines = _help(*command).splitlines()
    assert len(lines) <= LONGEST_HELP
    assert max(map(len, lines)) <= WIDTH
    if not command:
        assert [line for line in lines[1:] if line.endswith("...")] == []


def test_help_offers_no_change_of_shell_files() -> None:
    """Guards against typer's --install-completion, which edits .bashrc, coming back with a new command."""
    assert [name for name in COMMANDS if "completion" in _help(name)] == []
    assert "--install-completion" not in _help()

"""Completion in the shell, through the protocol of the scripts, and in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli.help import COMMANDS
from tests.support.pseudo_terminal import RETURN, PseudoTerminal

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "numba", "llvmlite"}


def _program(directory: Path) -> dict[str, str]:
    """Write an executable `leveret`; an environment that finds it, and tells on stderr what heavy things it loaded."""
    program = directory / "leveret"
    loaded = (
        f"import atexit, sys; atexit.register(lambda: print(*{HEAVY!r} & set(sys.modules), end='', file=sys.stderr))"
    )
    program.write_text(f"#!{sys.executable}\n{loaded}\nfrom daemon.cli import main\nmain()\n")
    program.chmod(0o755)
    return os.environ | {"PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def _complete(directory: Path, shell: str, *words: str) -> list[str]:
    """What the script of `shell` is given for the last of these words, the one that is being typed."""
    line = {
        "bash": {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": " ".join(words)},
        "fish": {"_TYPER_COMPLETE_ARGS": " ".join(words), "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = _program(directory) | line | {"_LEVERET_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([str(directory / "leveret")], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "", "completion must be quick and quiet"
    return done.stdout.splitlines()


def test_commands_are_completed(tmp_path: Path) -> None:
    """Guards the names of all commands, and those that begin alike."""
    assert _complete(tmp_path, "bash", "leveret", "") == list(COMMANDS)
    assert _complete(tmp_path, "bash", "leveret", "d") == ["dead", "doctor"]


@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_each_command_are_completed(tmp_path: Path, command: str) -> None:
    """Guards against a command whose module is not loaded, or loads the model's libraries, when it is completed."""
    assert "--help" in _complete(tmp_path, "bash", "leveret", command, "--")


def test_an_option_is_completed_to_its_end(tmp_path: Path) -> None:
    """Guards options, commands of a command, and values of which there are only a few."""
    assert _complete(tmp_path, "bash", "leveret", "chat", "hello", "--js") == ["--json-schema"]
    assert _complete(tmp_path, "bash", "leveret", "dead", "") == ["requeue", "drop"]
    assert _complete(tmp_path, "bash", "leveret", "--show-completion", "") == ["bash", "zsh", "fish"]


def test_files_are_left_to_the_shell(tmp_path: Path) -> None:
    """No answer makes bash complete file names; zsh is told to."""
    assert _complete(tmp_path, "bash", "leveret", "chat", "--file", "") in ([], [""])
    assert _complete(tmp_path, "zsh", "leveret", "chat", "--file", "x") == ["_files"]


def test_zsh_and_fish_are_told_what_an_option_does(tmp_path: Path) -> None:
    """Guards the forms in which these two take a value with its description."""
    assert _complete(tmp_path, "fish", "leveret", "chat", "--se") == ["--seed\tSame seed, same text."]
    assert _complete(tmp_path, "zsh", "leveret", "chat", "--se") == [
        """_arguments '*: :(("--seed":"Same seed, same text."))'"""
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_asks_as_the_tests_do(tmp_path: Path, shell: str) -> None:
    """Guards the variables by which a script asks."""
    command = [str(tmp_path / "leveret"), "--show-completion", shell]
    done = subprocess.run(command, env=_program(tmp_path), capture_output=True, text=True, check=True)
    assert f"_LEVERET_COMPLETE=complete_{shell}" in done.stdout


def test_another_shell_is_refused(tmp_path: Path) -> None:
    """Exit status 2, and the shells that there are."""
    command = [str(tmp_path / "leveret"), "--show-completion", "tcsh"]
    done = subprocess.run(command, env=_program(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


async def test_in_a_real_bash(tmp_path: Path) -> None:
    """The line of the help, then Tab: a command, an option, a file name."""
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "a-letter.txt").touch()
    async with PseudoTerminal((bash, "--norc", "-i"), _program(tmp_path) | {"PS1": "$ "}, tmp_path) as terminal:
        await terminal.shows("$ ")
        terminal.type('eval "$(leveret --show-completion bash)"' + RETURN)
        await terminal.shows("\n$ ")
        terminal.type("leveret cha\t")
        await terminal.shows("leveret chat ")
        terminal.type("--fi\t")
        await terminal.shows("--file ")
        terminal.type("a-l\t")
        await terminal.shows("a-letter.txt ")

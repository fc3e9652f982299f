"""The house rules that no linter checks: short functions, short files, public things explained."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LONGEST_FUNCTION = 50
LONGEST_FILE = 300

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _sources() -> list[Path]:
    """Every Python file of the project, tests and scripts included."""
    return [path for room in ("daemon", "schemas", "deploy", "tests") for path in sorted((ROOT / room).rglob("*.py"))]


def _definitions(path: Path) -> Iterator[Definition]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Definition):
            yield node


def _lines(node: Definition) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_the_rules_are_measured_on_something() -> None:
    """A search that finds no file would make every other test here pass."""
    assert {"daemon", "schemas", "deploy", "tests"} == {path.relative_to(ROOT).parts[0] for path in _sources()}


def test_no_file_is_long() -> None:
    """A file is read in one sitting."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in _sources()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_long() -> None:
    """A function is seen at one glance."""
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": _lines(node)
        for path in _sources()
        for node in _definitions(path)
        if not isinstance(node, ast.ClassDef)
    }
    assert {name: lines for name, lines in found.items() if lines > LONGEST_FUNCTION} == {}


def test_every_test_says_what_it_guards() -> None:
    """A test without a reason cannot be judged when it fails."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in _sources()
        if path.name.startswith("test_")
        for node in _definitions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_client_and_command_line_load_no_model_library() -> None:
    """`leveret --help` and other services that import the client must not pay seconds and 300 MB for torch."""
    program = "import sys, daemon.client, daemon.cli; print(*({'torch', 'transformers', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

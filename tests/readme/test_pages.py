"""The other pages: links lead somewhere, and the commands about evaluation run on the committed results."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme.markdown import ROOT, read_blocks

DOCS, TICKETS = ROOT / "deploy" / "docs", ROOT / "deploy" / "examples" / "tickets"
PAGES = [ROOT / "README.md", TICKETS / "README.md", *sorted(DOCS.glob("*.md"))]
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Guards against a link to a page or file that was moved or never written."""
    links = _LINK.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_index_has_every_page() -> None:
    """Guards against a page that nobody finds."""
    listed = set(_LINK.findall((DOCS / "index.md").read_text("utf-8")))
    assert {path.name for path in DOCS.iterdir()} - {"index.md"} <= listed


@pytest.mark.parametrize(
    ("page", "answered"),
    [
        (TICKETS / "README.md", {"plain.results": "plain", "examples.results": "examples", "fields.results": "fields"}),
        (DOCS / "prompts.md", {"a": "plain", "b": "examples"}),
    ],
    ids=["tickets", "prompts"],
)
def test_eval_commands(page: Path, answered: dict[str, str], tmp_path: Path) -> None:
    """Guards against commands that do not do what the page says.

    Everything is answered already by the committed results, and there is no broker: so a command whose options differ
    from those of the results would have to ask, and fail.
    """
    for path in TICKETS.glob("*.*"):
        shutil.copy(path, tmp_path)
    shutil.copy(TICKETS / "labels.jsonl", tmp_path / "mine.jsonl")
    for name, baseline in answered.items():
        shutil.copy(TICKETS / "baseline" / f"{baseline}.jsonl", tmp_path / f"{name}.jsonl")
    commands = [block.text for block in read_blocks(page) if block.language == "sh"]
    environment = os.environ | {"LEVERET_AMQP_URL": "amqp://127.0.0.1:1/", "PATH": _path_with_leveret()}
    script = ["sh", "-euxc", "\n".join(commands)]
    done = subprocess.run(
        script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("75 of ") >= 2
    assert "+10.7 points" in done.stdout


def _path_with_leveret() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

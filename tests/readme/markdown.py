"""What the tests read from the documentation: fenced blocks with the comment that stands before them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the comment on the line before it (empty without one)."""

    language: str
    text: str
    note: str


def read_blocks(path: Path) -> list[Block]:
    """All fenced blocks of a Markdown file, in order."""
    found = _BLOCK.finditer(path.read_text("utf-8"))
    return [Block(block["language"], block["text"], block["note"] or "") for block in found]

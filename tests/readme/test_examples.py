"""What the README shows is what the code accepts, sends and reads."""

import json
from collections.abc import Iterator

import pytest

from daemon.cli import COMMANDS
from daemon.engine.fast_config import FAMILIES
from schemas.replies import parse_reply, to_json
from schemas.request import parse_request
from tests.readme.markdown import ROOT, Block, read_blocks
from tests.readme.settings_table import settings_table

README = ROOT / "README.md"


def _json_blocks(kind: str) -> Iterator[Block]:
    return (block for block in read_blocks(README) if block.language == "json" and block.note.split()[:1] == [kind])


def test_every_json_block_says_what_it_is() -> None:
    """Guards against an example that no test looks at."""
    notes = [block.note.split()[:1] for block in read_blocks(README) if block.language == "json"]
    assert notes
    assert all(note in (["request"], ["reply"]) for note in notes)


@pytest.mark.parametrize("block", list(_json_blocks("request")))
def test_requests_are_accepted(block: Block) -> None:
    """Guards against a request in the README that the daemon refuses."""
    assert parse_request(block.text.encode(), max_seconds=300).messages


@pytest.mark.parametrize("block", list(_json_blocks("reply")), ids=lambda block: block.note)
def test_replies_have_exactly_the_fields_that_the_daemon_sends(block: Block) -> None:
    """Guards against a reply in the README with a field too many, too few, or of another type."""
    reply = parse_reply(block.note.split()[1], block.text.encode())
    assert json.loads(to_json(reply)) == json.loads(block.text)


def test_settings_table_is_the_settings() -> None:
    """Guards against a setting, default or description that the README does not have; paste the table on failure."""
    assert settings_table() in README.read_text("utf-8"), f"the README's table should be:\n{settings_table()}"


def test_the_table_of_commands_is_the_help() -> None:
    """Guards against a command that the README does not have, or has otherwise."""
    rows = "\n".join(f"| `leveret {name}` | {line} |" for name, line in COMMANDS.items())
    assert rows in README.read_text("utf-8"), f"the README's rows should be:\n{rows}"


def test_the_quick_families_are_named() -> None:
    """Guards the list of model families that the int8 engine takes."""
    section = README.read_text("utf-8").partition("## Models")[2].partition("##")[0]
    assert [family for family in FAMILIES if f"`{family}`" not in section] == []

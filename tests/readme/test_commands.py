"""Every command of the README, in order, in a clean copy of the repository, as a newcomer would type them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from private_broker import PrivateBroker

from tests.readme.markdown import ROOT, Block, read_blocks
from tests.support.wait import block_until

BLOCKS = read_blocks(ROOT / "README.md")
COMMANDS = [block for block in BLOCKS if block.language in {"sh", "python"} and not block.note.startswith("not run")]
RUN = "make run\n"
NOT_RUN = {
    "make demo\nmake test\n": "they are the tests, and a demo of minutes that has a test of its own",
    "leveret fetch Qwen/Qwen2.5-0.5B-Instruct\nLEVERET_MODEL=Qwen/Qwen2.5-0.5B-Instruct leveret run\n": (
        "about 1 GB from the Hub"
    ),
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository that git knows or would take, and nothing else: no caches, no results."""
    target = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").symlink_to(ROOT / ".venv")
    return target


@pytest.fixture(scope="module")
def environment(broker: PrivateBroker, smollm2_dir: Path) -> dict[str, str]:
    """What a newcomer's shell has, and the session's broker and model instead of new ones."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LEVERET_")}
    return inherited | {
        "LEVERET_AMQP_URL": broker.url,
        "LEVERET_MODELS_DIR": str(smollm2_dir.parent),
        "LEVERET_HEALTH_PORT": "0",
    }


@pytest.fixture(scope="module")
def running(clone: Path, environment: dict[str, str]) -> Iterator[Path]:
    """What `make run` starts, after `make install`; ends as at Ctrl-C."""
    script = [sys.executable, "deploy/demo/demo.py", "--stay"]
    log = clone / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(script, cwd=clone, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            block_until(
                lambda: process.poll() is not None or _ready(log), description="make run is ready", timeout_seconds=240
            )
            assert process.poll() is None, log.read_text()
            yield log
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _ready(log: Path) -> bool:
    """Does the daemon say so itself, on the port that its log names?"""
    found = re.search(r'"port": (\d+)', log.read_text())
    if found is None:
        return False
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _script(blocks: Sequence[Block]) -> str:
    """One shell session out of all blocks; Python ones are run as files."""
    parts = ["set -eux"]
    for block in blocks:
        if block.language == "python":
            parts.append(f"python - <<'END_OF_PYTHON'\n{block.text}END_OF_PYTHON")
        elif block.text != RUN:
            parts.append(block.text)
    return "\n".join(parts)


def test_what_is_left_out_has_a_reason() -> None:
    """Guards against commands that drop out of the tests unnoticed: each is known here, with the reason it gives."""
    left_out = {block.text: block.note for block in BLOCKS if block.note.startswith("not run")}
    assert left_out == {text: f"not run by tests: {reason}" for text, reason in NOT_RUN.items()}
    assert [block.text for block in COMMANDS if block.note == "kept running by tests"] == [RUN]


def test_targets_exist() -> None:
    """Guards against a `make` target in the README that the Makefile does not have."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    lines = [line for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    assert targets >= {"demo", "test", "run"}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def test_every_command_in_order(clone: Path, running: Path, environment: dict[str, str]) -> None:
    """Guards against a README that drifted: one shell, from the clone to the report, every command with status 0."""
    known = {path.name for path in clone.iterdir()}
    done = subprocess.run(
        ["sh", "-c", _script(COMMANDS)],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    story = f"{done.stdout}\n{done.stderr}\n{running.read_text()}"
    assert done.returncode == 0, story
    assert done.stdout.count("Paris") >= 3, story
    assert '"label_probs"' in done.stdout
    assert '{"name":"Anna Miller","order":"48213"}' in done.stdout
    assert "4 of mine.jsonl" in done.stdout
    assert "<svg" in (clone / "mine.html").read_text()
    made = {path.name for path in clone.iterdir()} - known
    assert made == {"schema.json", "mine.jsonl", "mine.html", "mine.results.jsonl", "schema-of-messages.json"}

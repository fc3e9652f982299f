"""`leveret fetch` against a local stand-in for the Hub: what it downloads, and what it says when it cannot."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_broker import free_port

from daemon.errors import ConfigurationError
from daemon.models import find_model
from tests.support.fake_hub import COMMIT, MODEL, FakeHub
from tests.support.wait import block_until

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "merges.txt": b"a b",
    "model.safetensors": b"weights",
    "consolidated.safetensors": b"the same weights again",
    "pytorch_model.bin": b"pickled",
    "README.md": b"about",
    "onnx/model.json": b"{}",
}
WANTED = {"config.json", "tokenizer.json", "merges.txt", "model.safetensors", "leveret.json"}
CHUNK = 10 * 1024 * 1024  # the Hub's client writes to disk in pieces of this size
WEIGHTS = f"/{MODEL}/resolve/{COMMIT}/model.safetensors"

Fetch = tuple[list[str], dict[str, str]]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A Hub that has the model `acme/tiny`."""
    with FakeHub(dict(FILES)) as running:
        yield running


def _fetch(endpoint: str, models_dir: Path, *arguments: str) -> Fetch:
    """The command and its environment, cut off from the user's own settings, caches and tokens."""
    names = ("PATH", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(models_dir / ".hf"), "HOME": str(models_dir)}
    environment |= {"LEVERET_MODELS_DIR": str(models_dir)}
    command = [sys.executable, "-c", "from daemon.cli import main; main()", "fetch", *(arguments or (MODEL,))]
    return command, environment


def _run(fetch: Fetch) -> subprocess.CompletedProcess[str]:
    return subprocess.run(fetch[0], env=fetch[1], capture_output=True, text=True, timeout=120, check=False)


def _refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a fetch that failed, as it must: exit 1, nothing on stdout, no traceback."""
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_only_what_inference_needs_and_the_revision_recorded(hub: FakeHub, tmp_path: Path) -> None:
    """Pickles, copies and other formats stay away; the record pins the commit; a second fetch asks nobody."""
    done = _run(_fetch(hub.url, tmp_path))
    assert done.returncode == 0, done.stderr
    directory = tmp_path / "acme--tiny"
    assert done.stdout == f"{directory}\n"
    assert {path.name for path in directory.iterdir()} == WANTED
    assert (directory / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    record = json.loads((directory / "leveret.json").read_text())
    assert record == {"model_id": MODEL, "revision": COMMIT, "source": f"{hub.url}/{MODEL}"}
    assert find_model(MODEL, tmp_path).model_id == MODEL
    hub.requests.clear()
    again = _run(_fetch(hub.url, tmp_path))
    assert (again.returncode, again.stdout, hub.requests) == (0, f"{directory}\n", [])
    assert "already there" in again.stderr


def test_a_broken_line_goes_on_within_the_file(hub: FakeHub, tmp_path: Path) -> None:
    """Weights are large: a line that breaks in the middle must not cost the bytes that came before."""
    hub.files["model.safetensors"] = bytes(2 * CHUNK + 5)
    hub.break_after["model.safetensors"] = CHUNK + 5
    done = _run(_fetch(hub.url, tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"GET {WEIGHTS} bytes={CHUNK}-" in hub.requests
    assert (tmp_path / "acme--tiny" / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_killed_fetch_leaves_no_half_model_and_keeps_whole_files(hub: FakeHub, tmp_path: Path) -> None:
    """A directory that looks like a model must be one; the next run asks only for what is missing."""
    hub.stalled = "model.safetensors"
    command, environment = _fetch(hub.url, tmp_path)
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        small = WANTED - {"model.safetensors", "leveret.json"}
        block_until(
            lambda: _whole_files(tmp_path) == small, description="the small files are there", timeout_seconds=60
        )
        process.kill()
    assert not (tmp_path / "acme--tiny").exists()
    hub.release()
    hub.requests.clear()
    done = _run((command, environment))
    assert done.returncode == 0, done.stderr
    assert [line for line in hub.requests if line.startswith(f"GET /{MODEL}/")] == [f"GET {WEIGHTS}"]
    assert {path.name for path in (tmp_path / "acme--tiny").iterdir()} == WANTED
    assert [path.name for path in tmp_path.glob(".acme--tiny.partial*")] == []


def _whole_files(models_dir: Path) -> set[str]:
    return {path.name for path in models_dir.glob(".acme--tiny.partial-*/*") if path.is_file()}


def test_another_revision_replaces_the_model(hub: FakeHub, tmp_path: Path) -> None:
    """Asking for a revision that is not there must not be answered with the one that is."""
    old = tmp_path / "acme--tiny"
    old.mkdir()
    (old / "config.json").write_text("{}")
    (old / "leveret.json").write_text(json.dumps({"model_id": MODEL, "revision": "f" * 40, "source": "x"}))
    with pytest.raises(ConfigurationError, match=f"wanted {COMMIT}"):
        find_model(MODEL, tmp_path, COMMIT)
    assert _run(_fetch(hub.url, tmp_path, MODEL, "--revision", COMMIT)).returncode == 0
    assert find_model(MODEL, tmp_path, COMMIT).revision == COMMIT
    assert [path.name for path in tmp_path.glob(".acme--tiny.replaced")] == []


def test_no_such_model(hub: FakeHub, tmp_path: Path) -> None:
    """A misspelt name is told plainly, and leaves nothing behind."""
    assert "no model 'acme/tinny' on the Hub" in _refused(_run(_fetch(hub.url, tmp_path, "acme/tinny")))
    assert not (tmp_path / "acme--tinny").exists()


def test_a_gated_model(hub: FakeHub, tmp_path: Path) -> None:
    """A model behind terms says so, instead of looking like a missing one."""
    hub.refusal = (403, {"X-Error-Code": "GatedRepo"})
    assert "is gated" in _refused(_run(_fetch(hub.url, tmp_path)))


def test_no_such_revision(hub: FakeHub, tmp_path: Path) -> None:
    """A revision that the model does not have is not blamed on the model."""
    hub.refusal = (404, {"X-Error-Code": "RevisionNotFound"})
    line = _refused(_run(_fetch(hub.url, tmp_path, MODEL, "--revision", "v9")))
    assert f"model '{MODEL}' has no revision 'v9'" in line


def test_a_hub_that_is_ill(hub: FakeHub, tmp_path: Path) -> None:
    """A server error is the Hub's, not the name's."""
    hub.refusal = (500, {})
    assert "the Hub answered 500" in _refused(_run(_fetch(hub.url, tmp_path)))


def test_no_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    """Pickled weights are never downloaded; a model that has only these is refused at once."""
    del hub.files["model.safetensors"]
    assert "has no safetensors weights" in _refused(_run(_fetch(hub.url, tmp_path)))


def test_the_hub_is_out_of_reach(tmp_path: Path) -> None:
    """Without a network the user learns which address failed and what works without it."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    line = _refused(_run(_fetch(endpoint, tmp_path)))
    assert f"the Hub ({endpoint}) is out of reach" in line
    assert "smollm2-135m" in line


def test_offline_mode_is_named(hub: FakeHub, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE is obeyed, and named as the reason."""
    command, environment = _fetch(hub.url, tmp_path)
    assert "HF_HUB_OFFLINE is set" in _refused(_run((command, environment | {"HF_HUB_OFFLINE": "1"})))
    assert hub.requests == []


@pytest.mark.parametrize("name", ["a/b/c", "../up", "a b", "/abs/path"])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    """A path or nonsense is no Hub id, and is refused before anything is asked or written."""
    assert "is no model id" in _refused(_run(_fetch("http://127.0.0.1:9", tmp_path, name)))

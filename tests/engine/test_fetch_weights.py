"""`leveret fetch` makes the weights that the daemon will map."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.cli.fetch import app
from daemon.models import ModelLocation
from tests.support.tiny_models import edit_config, make_network, save


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model that is as good as fetched."""
    directory = save(make_network("qwen2"), tmp_path)
    location = ModelLocation(directory, "tiny", None)
    monkeypatch.setattr("daemon.cli.fetch.fetch_model", lambda *_: location)
    return directory


@pytest.mark.parametrize(
    ("wanted", "written"),
    [(None, ["leveret-int8.safetensors"]), ("int4", ["leveret-int4.safetensors"]), ("float32", [])],
)
def test_the_kind_that_the_settings_name_is_written(
    wanted: str | None, written: list[str], model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first start quantises anew, for minutes, or a disk keeps a file that nobody reads."""
    if wanted is not None:
        monkeypatch.setenv("LEVERET_WEIGHTS", wanted)
    result = CliRunner().invoke(app, ["tiny"])
    assert (result.exit_code, result.stdout.strip()) == (0, str(model_dir))
    assert sorted(path.name for path in model_dir.glob("leveret-*")) == written


def test_a_model_that_cannot_be_quantised_is_fetched_all_the_same(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference model runs it, and the reason is told."""
    monkeypatch.setenv("LEVERET_WEIGHTS", "int4")
    edit_config(model_dir, model_type="gpt2")
    result = CliRunner().invoke(app, ["tiny"])
    assert result.exit_code == 0
    assert "the fast engine does not run this model: model_type is 'gpt2'" in result.stderr

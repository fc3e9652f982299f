"""How a model's name becomes a directory, without any network."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.engine.load import EngineOptions, load_engine
from daemon.errors import ConfigurationError
from daemon.models import ModelRecord, default_models_dir, find_model, read_record, write_record

NOBODY = 65_534
RECORD = ModelRecord("org/model", "0" * 40, "somewhere")


def _model(directory: Path, record: ModelRecord | None = None) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    if record is not None:
        write_record(directory, record)
    return directory


@contextmanager
def forbidden(directory: Path) -> Iterator[None]:
    """For the time of the block nobody may look into the directory, not even root."""
    user = os.geteuid()
    directory.chmod(0)
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        directory.chmod(0o700)


def test_the_public_id_survives_the_path(tmp_path: Path) -> None:
    """A fetched model is known by its Hub id wherever its directory is, and however it is named."""
    moved = _model(tmp_path / "elsewhere" / "renamed", RECORD)
    location = find_model(str(moved), tmp_path / "models")
    assert (location.path, location.model_id, location.revision) == (moved, "org/model", RECORD.revision)


def test_the_models_directory_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that happens to be called like the model must not shadow the fetched one."""
    monkeypatch.chdir(tmp_path)
    _model(tmp_path / "org" / "model")
    fetched = _model(tmp_path / "models" / "org--model", RECORD)
    assert find_model("org/model", tmp_path / "models").path == fetched


def test_a_directory_without_a_record_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public id is never a path, not even for `.`-like ones."""
    own = _model(tmp_path / "my-model")
    assert find_model(str(own), tmp_path).model_id == "my-model"
    monkeypatch.chdir(own)
    assert find_model("./", tmp_path).model_id == "my-model"


def test_a_missing_model_says_what_to_do(tmp_path: Path) -> None:
    """The operator's line names the model, where it was looked for, and the command that brings it."""
    with pytest.raises(ConfigurationError, match=r"'org/none' is neither .* run `leveret fetch org/none`"):
        find_model("org/none", tmp_path)


def test_a_model_that_this_user_may_not_read_is_named(tmp_path: Path) -> None:
    """A daemon under its own user, and a model fetched by root: one line for the operator, not a traceback."""
    model = _model(tmp_path / "models" / "org--model", RECORD)
    with forbidden(model.parent), pytest.raises(ConfigurationError, match="models"):
        find_model("org/model", model.parent)
    options = EngineOptions(model, None, 1, None, 0)
    with forbidden(model.parent), pytest.raises(ConfigurationError, match="org--model"):
        load_engine(options)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_never_leaves_the_models_directory(name: str, tmp_path: Path) -> None:
    """The models directory itself or its parent is no model, even where it holds a config.json."""
    _model(tmp_path / "models")
    with pytest.raises(ConfigurationError, match="is no model name"):
        find_model(name, tmp_path / "models")


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    """A half-copied directory is refused at once, not when the weights are loaded."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match=r"holds no config\.json"):
        find_model("empty", tmp_path)


def test_another_revision_than_wanted(tmp_path: Path) -> None:
    """A pinned revision is checked against the record; no record is no proof."""
    _model(tmp_path / "org--model", RECORD)
    _model(tmp_path / "plain")
    assert find_model("org/model", tmp_path, RECORD.revision).revision == RECORD.revision
    with pytest.raises(ConfigurationError, match=f"in revision {RECORD.revision}, wanted v2"):
        find_model("org/model", tmp_path, "v2")
    with pytest.raises(ConfigurationError, match="in revision unknown, wanted v2"):
        find_model("plain", tmp_path, "v2")


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"model_id": 1, "revision": "r", "source": "s"})])
def test_a_damaged_record_is_an_error(content: str, tmp_path: Path) -> None:
    """A record that cannot be read must not make the model pass under its directory's name."""
    _model(tmp_path / "m")
    (tmp_path / "m" / "leveret.json").write_text(content)
    with pytest.raises(ConfigurationError, match="is unreadable"):
        read_record(tmp_path / "m")


def test_where_models_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting, then `.models` here, then the user's data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEVERET_MODELS_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_models_dir() == Path("/data/leveret/models")
    (tmp_path / ".models").mkdir()
    assert default_models_dir() == Path(".models")
    monkeypatch.setenv("LEVERET_MODELS_DIR", "/chosen")
    assert default_models_dir() == Path("/chosen")

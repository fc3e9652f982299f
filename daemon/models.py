"""Where models live on this machine, and how a name in the settings becomes a directory. Never touches the network.

A fetched model is a directory in transformers' layout (config.json, tokenizer.json, *.safetensors) plus a record file,
`leveret.json`, that says which Hub model and which revision it is and where it came from. So the public model id
survives the path that the model was loaded from.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from daemon.errors import ConfigurationError

RECORD = "leveret.json"
"""Name of the record file in a fetched model's directory."""

_NOT_A_DIRECTORY_NAME = {"", ".", ".."}


@dataclass(frozen=True)
class ModelRecord:
    """What the record file holds: the Hub id, the resolved revision, and where the files came from."""

    model_id: str
    revision: str
    source: str


@dataclass(frozen=True)
class ModelLocation:
    """A model on disk: its directory, its public id, and its revision where a record tells."""

    path: Path
    model_id: str
    revision: str | None


def default_models_dir() -> Path:
    """`LEVERET_MODELS_DIR`, else `.models` here if there is one, else `leveret/models` in the user's data directory."""
    if chosen := os.environ.get("LEVERET_MODELS_DIR"):
        return Path(chosen)
    here = Path(".models")
    if here.is_dir():
        return here
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "leveret" / "models"


def directory_of(name: str, models_dir: Path) -> Path:
    """The directory under `models_dir` that holds the model `name`: `org/model` is `org--model` there."""
    return models_dir / name.replace("/", "--")


def find_model(name: str, models_dir: Path, revision: str | None = None) -> ModelLocation:
    """Find a model on this machine: under `models_dir` first, then `name` as a directory.

    `name` is a Hub id, `smollm2-135m` or a directory; `revision`, where given, must be the recorded one. Raises
    ConfigurationError that says what to do where there is no such model or its directory cannot be one.
    """
    if name in _NOT_A_DIRECTORY_NAME:
        raise ConfigurationError(f"model {name!r} is no model name; give a Hub id, smollm2-135m or a directory")
    candidates = [directory_of(name, models_dir), Path(name).expanduser()]
    try:
        found = next((path for path in candidates if path.is_dir()), None)
        if found is not None:
            return _location(found, name, revision)
    except PermissionError as error:
        raise ConfigurationError(f"model {name!r}: this user may not read {str(error.filename)!r}") from error
    raise ConfigurationError(
        f"model {name!r} is neither in the models directory {str(models_dir)!r} nor a directory itself; "
        f"run `leveret fetch {name}`, or set LEVERET_MODELS_DIR to where it is"
    )


def _location(path: Path, name: str, revision: str | None) -> ModelLocation:
    if not (path / "config.json").is_file():
        raise ConfigurationError(f"{str(path)!r} holds no config.json, so it is no model; fetch the model anew")
    record = read_record(path)
    actual = record.revision if record else None
    if revision is not None and revision != actual:
        raise ConfigurationError(
            f"model {name!r} is there in revision {actual or 'unknown'}, wanted {revision}; "
            f"run `leveret fetch {name} --revision {revision}`"
        )
    return ModelLocation(path, record.model_id if record else path.resolve().name, actual)


def read_record(directory: Path) -> ModelRecord | None:
    """Read a model's record, None where it has none. Raises ConfigurationError for a damaged one."""
    path = directory / RECORD
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return ModelRecord(*(_text(fields, key) for key in ("model_id", "revision", "source")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"the model's record {str(path)!r} is unreadable ({error!r}); fetch it anew"
        ) from error


def _text(fields: dict[str, object], key: str) -> str:
    value = fields[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is {value!r}, expected text")
    return value


def write_record(directory: Path, record: ModelRecord) -> None:
    """Write a model's record file into its directory."""
    (directory / RECORD).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")

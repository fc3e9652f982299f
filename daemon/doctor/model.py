"""The model's files: are they there, whole, and readable?"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.doctor.findings import Finding, fail, ok, warn
from daemon.engine.fast_config import LANES, supports
from daemon.engine.fast_records import GROUP_BYTES, GROUP_TERMS
from daemon.engine.load import DEFAULT_CONTEXT_TOKENS
from daemon.engine.quantize import KINDS, weights_path
from daemon.engine.tokenizer import load_tokenizer, read_json
from daemon.engine.types import Message
from daemon.errors import ConfigurationError, InvalidRequest
from daemon.models import ModelLocation, find_model
from daemon.settings import Settings

_HEADER_BYTES = 100_000_000
"""Longest header that the safetensors format allows."""


@dataclass(frozen=True)
class Weights:
    """The tensors of a model directory: how many files and parameters."""

    files: int
    parameters: int


@dataclass(frozen=True)
class Load:
    """What a daemon would load: so many parameters in weights of this kind."""

    parameters: int
    kind: str


def check_model(settings: Settings) -> tuple[list[Finding], Load | None]:
    """Find the model and look at its files. There is no load where they are unusable, or not there yet."""
    try:
        location = find_model(settings.model, settings.models_dir, settings.model_revision)
    except ConfigurationError as error:
        if settings.fetch:
            return [ok("model", f"{settings.model} is not here; the daemon fetches it at its start")], None
        return [fail("model", f"{settings.model} is unusable", str(error))], None
    again = f"fetch it anew: remove {location.path} and run `leveret fetch {settings.model}`"
    try:
        weights = read_weights(location.path)
    except ValueError as error:
        return [fail("model", str(error), again)], None
    revision = f", revision {location.revision}" if location.revision else ""
    seen = f"{location.model_id}{revision}: {weights.parameters:,} parameters in {weights.files} whole file(s)"
    kind, finding = _check_kind(settings, location)
    return [ok("model", seen), _check_tokenizer(location, again), finding], Load(weights.parameters, kind)


def _check_kind(settings: Settings, location: ModelLocation) -> tuple[str, Finding]:
    """The kind of weights that the daemon will choose, and whether it is the quick one."""
    context_tokens = settings.context_tokens or DEFAULT_CONTEXT_TOKENS
    reason = supports(read_json(location.path / "config.json"), context_tokens)
    kind = settings.weights or ("float32" if reason else "int8")
    if kind.startswith("int") and reason:
        return kind, fail(
            "weights", f"{kind} do not fit this model: {reason}", "set LEVERET_WEIGHTS=float32 or unset it"
        )
    if reason:
        return kind, warn("weights", f"{kind}: {reason}", "expect a fraction of the speed; README names quick families")
    return kind, ok("weights", kind)


def _check_tokenizer(location: ModelLocation, again: str) -> Finding:
    try:
        tokens = len(load_tokenizer(location.path).encode_chat([Message("user", "Hello")]))
    except (ConfigurationError, InvalidRequest) as error:
        return fail("tokenizer", str(error), again)
    return ok("tokenizer", f"tokenizer and chat template work; 'Hello' makes a prompt of {tokens} tokens")


def read_weights(directory: Path) -> Weights:
    """Read the headers of the checkpoint, or of the quantised weights where only these are there, as in an image.

    Raises ValueError naming the file that is missing or cut short.
    """
    quantised = [path for kind in KINDS if (path := weights_path(directory, kind)).exists()]
    files = sorted(set(directory.glob("*.safetensors")) - set(quantised))
    missing = sorted(_indexed(directory) - {path.name for path in files})
    if not files and quantised:
        files, missing = quantised[:1], []
    if missing or not files:
        raise ValueError(f"{directory / (missing[0] if missing else 'model.safetensors')} is missing")
    return Weights(len(files), sum(map(_parameters, files)))


def _indexed(directory: Path) -> set[str]:
    """Names of the files that the index of a model in several parts lists."""
    path = directory / "model.safetensors.index.json"
    if not path.exists():
        return set()
    try:
        return set(json.loads(path.read_text("utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no index of a model: {error!r}") from error


def _size(entry: Mapping[str, Any]) -> int:
    """Parameters in a tensor; of int4 weights, which alone are in bytes, a group has more of them than bytes."""
    size = int(math.prod(entry["shape"]))
    return size * GROUP_TERMS * LANES // GROUP_BYTES if entry["dtype"] == "U8" else size


def _parameters(path: Path) -> int:
    """Number of parameters in a file. Source of the format: safetensors, README (a length, a JSON header, the data)."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _HEADER_BYTES + 1
        header = file.read(length) if length <= _HEADER_BYTES else b""
    try:
        tensors = [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
        end = 8 + length + max((entry["data_offsets"][1] for entry in tensors), default=0)
        parameters = sum(map(_size, tensors))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} has no safetensors header; it is damaged") from error
    size = path.stat().st_size
    if size != end:
        raise ValueError(f"{path} has {size} bytes, its header says {end}; it is cut short or damaged")
    return parameters

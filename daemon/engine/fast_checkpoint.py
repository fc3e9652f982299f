"""Reads floating-point tensors from a directory of safetensors files, a few rows at a time, without torch.

The format (https://github.com/huggingface/safetensors): eight bytes of header length, a JSON header with each
tensor's type, shape and byte range, then the bytes. Plain reads rather than a memory map: what was read does not
stay in the process's resident memory.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.errors import ConfigurationError

Floats = npt.NDArray[np.float32]

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_INDEX = "model.safetensors.index.json"
_HEADER_LIMIT = 100_000_000
"""The largest header that safetensors itself accepts, in bytes."""


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies: its file, byte offset, type on disk and shape."""

    path: Path
    offset: int
    kind: str
    shape: tuple[int, ...]


class Checkpoint:
    """The float tensors of a model directory."""

    def __init__(self, model_dir: Path) -> None:
        """Read the headers. Raises ConfigurationError where there are no safetensors files or one is damaged."""
        self.files = checkpoint_files(model_dir)
        self._places: dict[str, TensorPlace] = {}
        for path in self.files:
            self._places |= _read_header(path)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises ConfigurationError where there is none of that name, or it is no float."""
        return self._place(name).shape

    def rows(self, name: str, begin: int, end: int) -> Floats:
        """Rows `begin` to `end` of a tensor as float32, shape `[end - begin, *shape[1:]]`; exact."""
        place = self._place(name)
        row_items = int(np.prod(place.shape[1:], dtype=np.int64))
        size = _ITEM_BYTES[place.kind]
        data = bytearray((end - begin) * row_items * size)
        with place.path.open("rb") as file:
            file.seek(place.offset + begin * row_items * size)
            if file.readinto(data) != len(data):
                raise ConfigurationError(f"{place.path} ends inside the tensor {name!r}; fetch the model anew")
        return _as_float32(data, place.kind).reshape(end - begin, *place.shape[1:])

    def whole(self, name: str) -> Floats:
        """A whole tensor as float32; meant for the small ones."""
        return self.rows(name, 0, self.shape(name)[0])

    def _place(self, name: str) -> TensorPlace:
        place = self._places.get(name)
        if place is None:
            raise ConfigurationError(f"the checkpoint has no tensor {name!r}")
        if place.kind not in _ITEM_BYTES:
            raise ConfigurationError(f"the tensor {name!r} has the type {place.kind}, expected F32, F16 or BF16")
        return place


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The safetensors files that hold the model, in a stable order. Raises ConfigurationError where there are none."""
    single = model_dir / "model.safetensors"
    if single.is_file():
        return [single]
    index = model_dir / _INDEX
    if not index.is_file():
        raise ConfigurationError(f"{model_dir} holds neither model.safetensors nor {_INDEX}")
    names = sorted(set(_read_json(index.read_bytes(), index)["weight_map"].values()))
    missing = [name for name in names if not (model_dir / name).is_file()]
    if missing:
        raise ConfigurationError(f"{model_dir} lacks the file {missing[0]!r} that {_INDEX} names; fetch the model anew")
    return [model_dir / name for name in names]


def _read_header(path: Path) -> dict[str, TensorPlace]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_LIMIT:
            raise ConfigurationError(f"{path} is no safetensors file: its header would have {length} bytes")
        header = _read_json(file.read(length), path)
    return dict(_places(path, header, 8 + length))


def _places(path: Path, header: dict[str, Any], data_begin: int) -> Iterator[tuple[str, TensorPlace]]:
    for name, entry in header.items():
        if name != "__metadata__":
            begin = data_begin + int(entry["data_offsets"][0])
            yield name, TensorPlace(path, begin, str(entry["dtype"]), tuple(entry["shape"]))


def _read_json(data: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ConfigurationError(f"{path} is damaged ({error}); fetch the model anew") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} is damaged (its header is no JSON object); fetch the model anew")
    return value


def _as_float32(data: bytearray, kind: str) -> Floats:
    """A bfloat16 is the upper half of a float32."""
    if kind == "F32":
        return np.frombuffer(data, np.float32)
    if kind == "F16":
        return np.frombuffer(data, np.float16).astype(np.float32)
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)

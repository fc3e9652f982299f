"""The file that quantised weights are kept in: written once, front to back, then memory-mapped.

It is a safetensors file (https://github.com/huggingface/safetensors), so other tools can look into it: eight bytes of
header length, a JSON header, the tensors one after the other. The data begin at a multiple of 64 bytes. The header's
`__metadata__` holds `format: leveret`, `layout` (the version below), `kind` (`int8` or `int4`) and `source`
(`quantize.fingerprint` of the checkpoint). The tensors are described in `quantize`.
"""

import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

LAYOUT = "1"
"""Changes whenever the tensors' meaning or arrangement does; a file of another layout is written anew."""

_ALIGNMENT = 64
_TYPES: dict[str, type[np.generic]] = {"I8": np.int8, "U8": np.uint8, "F32": np.float32}

Array = npt.NDArray[Any]


class DamagedFile(Exception):
    """The file is no whole safetensors file; the message says what is wrong."""


class Sink(Protocol):
    """What can be written to: a binary file, or an anonymous memory map."""

    def write(self, data: bytes, /) -> int:
        """Append the bytes."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to come: its name, its safetensors type (`I8`, `U8`, `F32`) and its shape."""

    name: str
    kind: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(_TYPES[self.kind]).itemsize


def header_bytes(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """The beginning of the file, up to the first tensor's data."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for spec in specs:
        offsets = [offset, offset + spec.nbytes]
        header[spec.name] = {"dtype": spec.kind, "shape": list(spec.shape), "data_offsets": offsets}
        offset = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


class TensorWriter:
    """Writes the promised tensors, in the promised order and in any number of parts each."""

    def __init__(self, sink: Sink, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> None:
        self._sink = sink
        self._parts = [(spec.name, spec.nbytes) for spec in specs]
        sink.write(header_bytes(specs, metadata))

    def put(self, name: str, array: Array) -> None:
        """Append to the tensor that is due. Raises ValueError for another one, or for more than was promised."""
        due, missing = self._parts[0]
        if name != due or array.nbytes > missing:
            raise ValueError(f"{array.nbytes} bytes of {name} were written where {missing} of {due} are due")
        self._sink.write(np.ascontiguousarray(array).tobytes())
        self._parts[0] = (due, missing - array.nbytes)
        if missing == array.nbytes:
            del self._parts[0]

    def finish(self) -> None:
        """Raises ValueError where a promised tensor is missing."""
        if self._parts:
            raise ValueError(f"{self._parts[0][1]} bytes of {self._parts[0][0]} were never written")


def map_file(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Map a file: its tensors as read-only arrays, and its metadata. Raises DamagedFile, OSError.

    The pages are brought in at once, so that the first token does not wait for them.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < 8:
            raise DamagedFile(f"it has only {size} bytes")
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return parse(mmap.mmap(file.fileno(), size, flags=flags, prot=mmap.PROT_READ))


def parse(buffer: mmap.mmap) -> tuple[dict[str, Array], dict[str, str]]:
    """Tensors and metadata of a whole file in memory; the arrays keep the buffer alive. Raises DamagedFile."""
    begin = 8 + int.from_bytes(buffer[:8], "little")
    try:
        header = json.loads(buffer[8:begin])
        metadata = header.pop("__metadata__")
        tensors = {name: _tensor(buffer, begin, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(f"its header or size is wrong ({error})") from error
    return tensors, metadata


def _tensor(buffer: mmap.mmap, begin: int, entry: Mapping[str, Any]) -> Array:
    shape = tuple(entry["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    array: Array = np.frombuffer(buffer, _TYPES[entry["dtype"]], count, begin + entry["data_offsets"][0])
    return array.reshape(shape)

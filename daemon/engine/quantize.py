"""Turns a float checkpoint into quantised weights, once: a few rows at a time, never the whole model in memory.

`leveret fetch` calls `quantize_directory`; `open_weights`, which the engine calls, maps what that wrote, and writes it
first where it is missing. Layout: `fast_layout` (tensors), `fast_pack` and `fast_int4` (numbers), `fast_file`
(the file).
"""

import hashlib
import json
import logging
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.engine.fast_checkpoint import Checkpoint, checkpoint_files
from daemon.engine.fast_config import FastConfig, read_fast_config
from daemon.engine.fast_file import (
    LAYOUT,
    Array,
    DamagedFile,
    Sink,
    TensorSpec,
    TensorWriter,
    header_bytes,
    map_file,
    parse,
)
from daemon.engine.fast_layout import Matrix, Vector, matrices_and_vectors
from daemon.engine.fast_pack import pack, specs_of
from daemon.errors import ConfigurationError

log = logging.getLogger(__name__)

KINDS = ("int8", "int4")
"""The kinds of quantised weights that there are."""


@dataclass(frozen=True)
class QuantizedWeights:
    """The tensors of one quantised model, by name; they keep the memory behind them alive."""

    kind: str
    config: FastConfig
    tensors: Mapping[str, Array]


def weights_path(model_dir: Path, kind: str) -> Path:
    """Where the quantised weights of a model directory are kept."""
    return model_dir / f"leveret-{kind}.safetensors"


def quantize_directory(model_dir: Path, kind: str = "int8") -> Path:
    """Write the quantised weights of a model beside its checkpoint, in one step, and return the file's path.

    A file that is up to date stays. Raises ConfigurationError for an unusable checkpoint, OSError where the directory
    cannot be written to.
    """
    job = _Quantization(model_dir, kind)
    if job.load() is None:
        job.save()
    return job.path


def open_weights(model_dir: Path, kind: str) -> QuantizedWeights:
    """The quantised weights of a model, mapped from their file, which is written first where it is missing.

    Where the directory cannot be written to, they are made in memory, at every start. Raises ConfigurationError.
    """
    job = _Quantization(model_dir, kind)
    tensors = job.load()
    if tensors is None:
        log.info("quantising %s to %s, once; this takes a while", model_dir.name, kind)
        try:
            job.save()
            tensors = job.load()
        except OSError as error:
            log.warning("%s cannot be written (%s): quantising in memory", job.path, error)
    if tensors is None:
        tensors = job.in_memory()
    return QuantizedWeights(kind, job.config, tensors)


class _Quantization:
    """One model directory and one kind: what its file should hold, and the making of it."""

    def __init__(self, model_dir: Path, kind: str) -> None:
        if kind not in KINDS:
            raise ConfigurationError(f"weights {kind!r} are no quantised kind; there are {', '.join(KINDS)}")
        self.path = weights_path(model_dir, kind)
        self.config = read_fast_config(_read_config(model_dir))
        self._kind = kind
        self._checkpoint = _open_checkpoint(model_dir, self.path)
        self._parts: Sequence[Matrix | Vector] = ()
        if self._checkpoint is not None:
            self._parts = matrices_and_vectors(self.config, self._checkpoint, kind)

    def load(self) -> dict[str, Array] | None:
        """Map the file; None where there is none, or it is damaged or of another checkpoint or layout."""
        if not self.path.is_file():
            return None
        try:
            tensors, metadata = map_file(self.path)
        except DamagedFile as error:
            log.warning("%s is damaged: %s", self.path, error)
            return None
        expected = {"format": "leveret", "layout": LAYOUT, "kind": self._kind}
        if self._checkpoint is not None:
            expected = self._metadata(self._checkpoint)
        stale = [key for key, value in expected.items() if metadata.get(key) != value]
        if stale:
            log.warning("%s is out of date: its %s is another", self.path, " and its ".join(stale))
            return None
        return tensors

    def save(self) -> None:
        """Write the file in one step: it is there whole, or as it was before. Raises OSError."""
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                self._write(file)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            Path(name).replace(self.path)
        except BaseException:
            with suppress(FileNotFoundError):
                Path(name).unlink()
            raise

    def _write(self, sink: Sink) -> None:
        checkpoint = self._source()
        writer = TensorWriter(sink, self._specs(checkpoint), self._metadata(checkpoint))
        for part in self._parts:
            for name, array in pack(part, checkpoint):
                writer.put(name, array)
        writer.finish()

    def in_memory(self) -> dict[str, Array]:
        """Quantise into anonymous memory."""
        checkpoint = self._source()
        specs = self._specs(checkpoint)
        size = len(header_bytes(specs, self._metadata(checkpoint))) + sum(spec.nbytes for spec in specs)
        buffer = mmap.mmap(-1, size)
        self._write(buffer)
        return parse(buffer)[0]

    def _source(self) -> Checkpoint:
        if self._checkpoint is None:
            raise ConfigurationError(f"{self.path} is unusable and the checkpoint it was made from is not there")
        return self._checkpoint

    def _specs(self, checkpoint: Checkpoint) -> list[TensorSpec]:
        return [spec for part in self._parts for spec in specs_of(part, checkpoint)]

    def _metadata(self, checkpoint: Checkpoint) -> dict[str, str]:
        source = fingerprint(checkpoint, self._parts)
        return {"format": "leveret", "layout": LAYOUT, "kind": self._kind, "source": source}


def fingerprint(checkpoint: Checkpoint, parts: Sequence[Matrix | Vector]) -> str:
    """Tells checkpoints apart without reading them whole: files' sizes, and the middle row of every tensor."""
    digest = hashlib.sha256()
    for path in checkpoint.files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    for part in parts:
        for name in [part.source] if isinstance(part, Vector) else [f"{source}.weight" for source in part.sources]:
            middle = checkpoint.shape(name)[0] // 2
            digest.update(name.encode() + checkpoint.rows(name, middle, middle + 1).tobytes())
    return digest.hexdigest()


def _open_checkpoint(model_dir: Path, quantized: Path) -> Checkpoint | None:
    """The checkpoint; an image may carry the quantised file alone."""
    try:
        checkpoint_files(model_dir)
    except ConfigurationError:
        if quantized.is_file():
            return None
        raise
    return Checkpoint(model_dir)


def _read_config(model_dir: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((model_dir / "config.json").read_text("utf-8"))
    return config

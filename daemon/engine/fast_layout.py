"""Which tensors quantised weights consist of, and which tensors of the checkpoint each is made of.

Every matrix has N rows (outputs) and K columns (inputs). Names, for each layer L:

    layers.L.qkv, layers.L.out, layers.L.gate_up, layers.L.down: each `.weight`, `.scale` if int8 and, where the
    checkpoint has one, `.bias` (float32, `[N]`). qkv holds the rows of query, key and value; gate_up alternates 16
    rows of the gate with the same 16 rows of the up projection
    layers.L.attention_norm, layers.L.mlp_norm and, with head norms, layers.L.query_norm, layers.L.key_norm: float32
    embedding, and head where it is not tied to the embedding: `.weight`, `.scale`
    norm: float32

Of int4 weights, out and gate_up are int4, two thirds of the layers' weights; the rest is int8: down and the values lose
most at four bits (tests/bench/LOG.md), and so is a matrix whose columns are no multiple of 32.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from daemon.engine.fast_checkpoint import Checkpoint
from daemon.engine.fast_config import LANES, FastConfig
from daemon.engine.fast_records import GROUP_TERMS
from daemon.errors import ConfigurationError

_ROBUST = (".out", ".gate_up")
"""The matrices that may be int4."""


@dataclass(frozen=True)
class Matrix:
    """A quantised matrix, made of one or more of the checkpoint's.

    `sources` are their names without `.weight`, `rows` the rows of each. The parts follow each other, or
    `interleaved` alternates blocks of 16 rows of each; either way every part is padded to whole blocks. `kind` is
    `int8` or `int4`.
    """

    name: str
    sources: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    interleaved: bool = False
    kind: str = "int8"

    @property
    def blocks(self) -> int:
        """Blocks of 16 rows, those of all parts together."""
        return sum(blocks_of(rows) for rows in self.rows)


@dataclass(frozen=True)
class Vector:
    """Float values taken over as they are: a norm's factors."""

    name: str
    source: str
    size: int


def blocks_of(rows: int) -> int:
    """How many blocks of 16 hold so many rows."""
    return -(-rows // LANES)


def matrices_and_vectors(config: FastConfig, checkpoint: Checkpoint, kind: str) -> list[Matrix | Vector]:
    """All parts of a model in weights of a kind, in the order they are written in.

    Raises ConfigurationError where the checkpoint's shapes are not those of its `config.json`.
    """
    parts: list[Matrix | Vector] = [Matrix("embedding", ("model.embed_tokens",), (config.vocab_size,), config.hidden)]
    for layer in range(config.layers):
        parts += [_in_kind(part, kind) for part in _layer(config, layer)]
    parts.append(Vector("norm", "model.norm.weight", config.hidden))
    if has_own_head(config, checkpoint):
        parts.append(Matrix("head", ("lm_head",), (config.vocab_size,), config.hidden))
    for name, shape in (pair for part in parts for pair in _source_shapes(part)):
        if checkpoint.shape(name) != shape:
            found = list(checkpoint.shape(name))
            raise ConfigurationError(f"{name} has the shape {found}, config.json makes it {list(shape)}")
    return parts


def has_own_head(config: FastConfig, checkpoint: Checkpoint) -> bool:
    """Whether the logits come from a matrix other than the embedding; one that is not there is tied."""
    return not config.tied and "lm_head.weight" in checkpoint


def _in_kind(part: Matrix | Vector, kind: str) -> Matrix | Vector:
    """A part of a layer, in the kind of weights that is wanted if it is a matrix that bears it."""
    if isinstance(part, Matrix) and part.name.endswith(_ROBUST) and part.columns % GROUP_TERMS == 0:
        return replace(part, kind=kind)
    return part


def _layer(config: FastConfig, layer: int) -> Iterator[Matrix | Vector]:
    here, there = f"layers.{layer}.", f"model.layers.{layer}."
    attention, mlp = there + "self_attn.", there + "mlp."
    qkv = tuple(f"{attention}{letter}_proj" for letter in "qkv")
    yield Matrix(here + "qkv", qkv, (config.query_size, config.kv_size, config.kv_size), config.hidden)
    yield Matrix(here + "out", (attention + "o_proj",), (config.hidden,), config.query_size)
    gate_up = (mlp + "gate_proj", mlp + "up_proj")
    yield Matrix(here + "gate_up", gate_up, (config.inner, config.inner), config.hidden, interleaved=True)
    yield Matrix(here + "down", (mlp + "down_proj",), (config.hidden,), config.inner)
    yield Vector(here + "attention_norm", there + "input_layernorm.weight", config.hidden)
    yield Vector(here + "mlp_norm", there + "post_attention_layernorm.weight", config.hidden)
    if config.head_norms:
        yield Vector(here + "query_norm", attention + "q_norm.weight", config.head_dim)
        yield Vector(here + "key_norm", attention + "k_norm.weight", config.head_dim)


def _source_shapes(part: Matrix | Vector) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(part, Vector):
        yield part.source, (part.size,)
    else:
        for source, rows in zip(part.sources, part.rows, strict=True):
            yield f"{source}.weight", (rows, part.columns)

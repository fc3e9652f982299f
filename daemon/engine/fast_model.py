"""The fast model: quantised weights, float32 activations, compiled code; needs neither torch nor transformers."""

import itertools
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from daemon.engine.fast_arrays import (
    MATRIX,
    PAGE_TOKENS,
    PANEL_TERMS,
    SEGMENT,
    Engine,
    Job,
    Scratch,
    Shape,
    Weights,
)
from daemon.engine.fast_checkpoint import Floats
from daemon.engine.fast_config import LANES, FastConfig, rope_tables
from daemon.engine.fast_file import Array
from daemon.engine.fast_jit import compile_entry
from daemon.engine.fast_state import FastState
from daemon.engine.fast_step import run
from daemon.engine.fast_team import MAX_THREADS, dissolve, new_control, start_helpers
from daemon.engine.fast_vector import TILE_ROWS
from daemon.engine.quantize import QuantizedWeights, open_weights
from daemon.engine.types import Logits

log = logging.getLogger(__name__)

_PIECE_FLOPS = 50e9
"""Multiply-adds count twice; about half a second's worth on two cores of a small CPU."""
_PIECE_RANGE = (16, 128)

_Run = Callable[[Engine, int], None]


class FastModel:
    """Quantised weights behind the model port (`daemon.engine.types.BranchingModel`).

    The logits after a token depend on the tokens before it alone, to the bit: not on how they were divided among
    calls, nor on the number of threads. One thread at a time may call.
    """

    def __init__(self, quantized: QuantizedWeights, context_tokens: int, threads: int) -> None:
        config = quantized.config
        self.vocab_size = config.vocab_size
        self.context_tokens = context_tokens
        self.piece_tokens = _piece_tokens(config)
        self.bytes_per_token = 4 * 2 * config.layers * config.kv_size
        self._page_floats = self.bytes_per_token // 4 * PAGE_TOKENS
        self._quantized = quantized  # keeps the weights' memory alive
        self._engine = _engine(quantized, context_tokens, self.piece_tokens, min(threads, MAX_THREADS))
        self._run: _Run = compile_entry(run, self._engine, 0)
        start_helpers(self._engine.control, _helper(self._run, self._engine))
        weakref.finalize(self, dissolve, self._engine.control)

    def new_state(self) -> FastState:
        """An empty state."""
        return FastState(self._page_floats)

    def extend(
        self, state: FastState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """See the port. Any number of tokens; more than `piece_tokens` are computed a piece at a time."""
        self._check(state.length, token_ids)
        rows = [
            self._compute([(state, piece)], _wanted(logits, piece, last=end >= len(token_ids)))
            for piece, end in _pieces(token_ids, self.piece_tokens)
        ]
        return np.concatenate(rows) if len(rows) != 1 else rows[0]

    def branches(self, state: FastState, continuations: Sequence[Sequence[int]]) -> Sequence[Logits]:
        """See the port."""
        for continuation in continuations:
            self._check(state.length, continuation)
        forks = [(state.fork(), continuation) for continuation in continuations]
        counts = [len(continuation) for continuation in continuations]
        rows = self._compute(forks, sum(counts))
        return np.split(rows, np.cumsum(counts)[:-1])

    def truncate(self, state: FastState, length: int) -> None:
        """See the port."""
        state.truncate(length)

    def fork(self, state: FastState) -> FastState:
        """See the port. Shares all pages; costs a copy of the last one when either state goes on."""
        return state.fork()

    def _check(self, length: int, token_ids: Sequence[int]) -> None:
        if length + len(token_ids) > self.context_tokens:
            raise ValueError(f"{length} + {len(token_ids)} tokens exceed the context of {self.context_tokens}")
        if not token_ids:
            raise ValueError("there are no tokens to extend the state by")
        for token in (min(token_ids), max(token_ids)):
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"token {token} is not in the vocabulary of {self.vocab_size}")

    def _compute(self, segments: Sequence[tuple[FastState, Sequence[int]]], wanted: int) -> Logits:
        """Extend each state by its tokens; the logits of the last `wanted` of all rows."""
        job, rows = self._engine.job, sum(len(tokens) for _, tokens in segments)
        if rows > self.piece_tokens:
            raise ValueError(f"{rows} tokens at once are more than {self.piece_tokens}")
        logits = np.empty((wanted, self.vocab_size), np.float32)
        first_row = table = 0
        for number, (state, tokens) in enumerate(segments):
            state.reserve(len(tokens))
            job.segments[number] = (first_row, len(tokens), state.length, table)
            first_row, table = self._prepare(state, tokens, first_row, table)
        job.counts[:] = (rows, len(segments), rows - wanted, wanted, logits.ctypes.data)
        self._run(self._engine, 0)
        for state, tokens in segments:
            state.length += len(tokens)
        return logits

    def _prepare(self, state: FastState, tokens: Sequence[int], first_row: int, table: int) -> tuple[int, int]:
        """Enter one segment's tokens and pages into the job; where the next segment's begin."""
        job, here = self._engine.job, slice(first_row, first_row + len(tokens))
        addresses = np.fromiter(state.addresses(), np.int64, len(state.pages))
        job.tokens[here] = tokens
        job.positions[here] = np.arange(state.length, state.length + len(tokens))
        job.pages[here] = addresses[job.positions[here] // PAGE_TOKENS]
        job.table[table : table + len(addresses)] = addresses
        return here.stop, table + len(addresses)


def load_fast_model(model_dir: Path, kind: str, context_tokens: int, threads: int) -> FastModel:
    """Map (or make) the quantised weights of a model that `fast_config.supports` and compile the code for it.

    Raises ConfigurationError.
    """
    quantized = open_weights(model_dir, kind)
    return FastModel(quantized, context_tokens, threads)


def _helper(run_entry: _Run, engine: Engine) -> Callable[[int], None]:
    """What a helper thread runs; it must not keep the model alive, whose end ends the helpers."""
    return lambda member: run_entry(engine, member)


def _wanted(logits: Literal["none", "last", "all"], piece: Sequence[int], *, last: bool) -> int:
    if logits == "all":
        return len(piece)
    return 1 if logits == "last" and last else 0


def _pieces(token_ids: Sequence[int], size: int) -> list[tuple[Sequence[int], int]]:
    """Pieces of at most `size` tokens, each with where it ends."""
    return [(token_ids[begin : begin + size], begin + size) for begin in range(0, len(token_ids), size)]


def _piece_tokens(config: FastConfig) -> int:
    """A power of two of tokens that one forward pass gets through in about half a second."""
    fitting = int(_PIECE_FLOPS / (2 * config.linear_parameters))
    smallest, largest = _PIECE_RANGE
    return max(smallest, min(largest, 1 << max(fitting.bit_length() - 1, 0)))


def _engine(quantized: QuantizedWeights, context_tokens: int, rows: int, threads: int) -> Engine:
    config = quantized.config
    return Engine(
        control=new_control(threads),
        shape=_shape(config),
        weights=_weights(quantized.tensors, config, context_tokens),
        job=_job(rows, context_tokens),
        scratch=_scratch(config, rows, context_tokens, threads),
    )


def _shape(config: FastConfig) -> Shape:
    return Shape(
        hidden=config.hidden,
        inner=config.inner,
        layers=config.layers,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        epsilon=np.float32(config.norm_epsilon),
        query_scale=np.float32(config.head_dim**-0.5),
        head_norms=config.head_norms,
    )


def _weights(tensors: Mapping[str, Array], config: FastConfig, context_tokens: int) -> Weights:
    layers = [f"layers.{layer}." for layer in range(config.layers)]
    names = [layer + name for layer in layers for name in ("qkv", "out", "gate_up", "down")]
    names += ["embedding", "head" if "head.weight" in tensors else "embedding"]
    norms = [tensors[layer + name] for layer in layers for name in ("attention_norm", "mlp_norm")]
    ones = np.ones(config.head_dim, np.float32)
    head_norms = [tensors.get(layer + name, ones) for layer in layers for name in ("query_norm", "key_norm")]
    cosines, sines = rope_tables(config, context_tokens)
    scales = [tensors[f"{name}.scale"].ravel() for name in names]
    biases = [
        tensors[f"{name}.bias"].ravel() if f"{name}.bias" in tensors else np.zeros_like(scale)
        for name, scale in zip(names, scales, strict=True)
    ]
    return Weights(
        matrices=_matrices([tensors[f"{name}.weight"] for name in names]),
        scales=np.concatenate(scales),
        biases=np.concatenate(biases),
        norms=np.stack([*norms, tensors["norm"]]),
        head_norms=np.stack(head_norms),
        cosines=cosines,
        sines=sines,
    )


def _matrices(weights: Sequence[Array]) -> np.ndarray[Any, Any]:
    first_rows = itertools.accumulate((len(weight) * LANES for weight in weights), initial=0)
    entries = [
        (weight.ctypes.data, len(weight), weight.shape[1], first)
        for weight, first in zip(weights, first_rows, strict=False)
    ]
    return np.array(entries, MATRIX)


def _job(rows: int, context_tokens: int) -> Job:
    pages = -(-context_tokens // PAGE_TOKENS)
    return Job(
        counts=np.zeros(5, np.int64),
        tokens=np.zeros(rows, np.int64),
        positions=np.zeros(rows, np.int64),
        pages=np.zeros(rows, np.int64),
        segments=np.zeros(rows, SEGMENT),
        table=np.zeros(rows * pages, np.int64),
    )


def _scratch(config: FastConfig, rows: int, context_tokens: int, threads: int) -> Scratch:
    def floats(*shape: int) -> Floats:
        return np.zeros(shape, np.float32)

    seen = -(-context_tokens // LANES) * LANES
    return Scratch(
        hidden=floats(rows, config.hidden),
        normed=floats(rows, config.hidden),
        qkv=floats(rows, config.query_size + 2 * config.kv_size),
        query=floats(config.kv_heads, rows, config.heads // config.kv_heads, config.head_dim),
        mixed=floats(rows, config.query_size),
        gated=floats(rows, config.inner),
        products=floats(threads, 2 * rows * LANES),
        panel=floats(threads, PANEL_TERMS * LANES),
        scores=floats(threads, TILE_ROWS, seen),
        values=floats(threads, 2 * TILE_ROWS, config.head_dim),
    )

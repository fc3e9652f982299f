"""Lays out everything that the compiled code works on, and enters each call's job."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from daemon.engine.fast_checkpoint import Floats
from daemon.engine.fast_config import LANES, FastConfig, rope_tables
from daemon.engine.fast_file import Array
from daemon.engine.fast_records import (
    ENGINE,
    GROUP_TERMS,
    INT4,
    INT8,
    MATRIX,
    PAGE_TOKENS,
    PANEL_TERMS,
    ROUNDED_BYTES,
    SEGMENT,
    Records,
)
from daemon.engine.fast_state import FastState
from daemon.engine.fast_team import new_control
from daemon.engine.fast_vector import TILE_ROWS
from daemon.engine.quantize import QuantizedWeights

_LAYER_MATRICES = ("qkv", "out", "gate_up", "down")
_LAYER_NORMS = ("attention_norm", "mlp_norm")
_LAYER_HEAD_NORMS = ("query_norm", "key_norm")


class Plan:
    """One model's memory: the weights, room for `rows` new tokens at a time, and the record that says where all is.

    Compiled code may use it as long as this object lives.
    """

    def __init__(self, quantized: QuantizedWeights, context_tokens: int, rows: int, members: int) -> None:
        config = quantized.config
        self._quantized = quantized  # keeps the mapped weights alive
        self._arrays = {
            "control": new_control(members),
            **_weights(quantized.tensors, config, context_tokens),
            **_job_arrays(rows, context_tokens),
            **_scratch(config, rows, context_tokens, members),
        }
        self._record = np.zeros(1, ENGINE)
        self._enter(**{name: array.ctypes.data for name, array in self._arrays.items()})
        self._enter(members=members, row_limit=rows, seen_limit=_seen_limit(context_tokens, rows))
        self._enter(**_shape(config))

    @property
    def address(self) -> int:
        """Where the ENGINE record lies."""
        return int(self._record.ctypes.data)

    @property
    def control(self) -> int:
        """Where the team's control block lies."""
        return int(self._arrays["control"].ctypes.data)

    def prepare(
        self, state: FastState, token_ids: Sequence[int], branches: Sequence[Sequence[int]], logits: Floats
    ) -> None:
        """Enter a job: tokens that extend a state, what may follow them, and where the last rows' logits go.

        The state has room for all of them, and must live until the job is done.
        """
        behind = state.length + len(token_ids)
        segments = [(state.length, token_ids), *((behind, branch) for branch in branches)]
        segments = [(start, tokens) for start, tokens in segments if tokens]
        first_row = 0
        for number, (start, tokens) in enumerate(segments):
            self._arrays["segments"][number] = (first_row, len(tokens), start)
            rows = slice(first_row, first_row + len(tokens))
            self._arrays["tokens"][rows] = tokens
            self._arrays["positions"][rows] = np.arange(start, start + len(tokens))
            first_row = rows.stop
        self._arrays["pages"][: len(state.pages)] = [page.ctypes.data for page in state.pages]
        longest = max(len(tokens) for _, tokens in segments)
        self._enter(rows=first_row, segment_count=len(segments), longest_segment=longest, first_slot=state.length)
        self._enter(first_wanted=first_row - len(logits), wanted=len(logits), logits=logits.ctypes.data)

    def _enter(self, **fields: float) -> None:
        for name, value in fields.items():
            self._record[name] = value


def _shape(config: FastConfig) -> dict[str, float]:
    return {
        "hidden": config.hidden,
        "inner": config.inner,
        "layers": config.layers,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "has_head_norms": int(config.head_norms),
        "epsilon": config.norm_epsilon,
        "query_scale": config.head_dim**-0.5,
    }


def _weights(tensors: Mapping[str, Array], config: FastConfig, context_tokens: int) -> dict[str, Array]:
    layers = [f"layers.{layer}." for layer in range(config.layers)]
    names = [layer + name for layer in layers for name in _LAYER_MATRICES]
    names += ["embedding", "head" if "head.weight" in tensors else "embedding"]
    weights = [tensors[f"{name}.weight"] for name in names]
    scales = [_row_scales(tensors.get(f"{name}.scale"), weight) for name, weight in zip(names, weights, strict=True)]
    biases = [tensors.get(f"{name}.bias", np.zeros_like(scale)) for name, scale in zip(names, scales, strict=True)]
    ones = np.ones(config.head_dim, np.float32)
    cosines, sines = rope_tables(config, context_tokens)
    return {
        "matrices": _matrices(weights),
        "scales": np.concatenate(scales),
        "biases": np.concatenate([bias.ravel() for bias in biases]),
        "norms": np.stack([*(tensors[layer + name] for layer in layers for name in _LAYER_NORMS), tensors["norm"]]),
        "head_norms": np.stack([tensors.get(layer + name, ones) for layer in layers for name in _LAYER_HEAD_NORMS]),
        "cosines": cosines,
        "sines": sines,
    }


def _row_scales(scales: Array | None, weight: Array) -> Array:
    """A scale for each row; int4 weights hold their own."""
    return np.ones(len(weight) * LANES, np.float32) if scales is None else scales.ravel()


def _matrices(weights: Sequence[Array]) -> Records:
    first_rows = itertools.accumulate((len(weight) * LANES for weight in weights), initial=0)
    entries = [
        (weight.ctypes.data, len(weight), *_columns_and_kind(weight), first)
        for weight, first in zip(weights, first_rows, strict=False)
    ]
    return np.array(entries, MATRIX)


def _columns_and_kind(weight: Array) -> tuple[int, int]:
    is_int4 = weight.dtype == np.uint8
    return (weight.shape[1] * GROUP_TERMS, INT4) if is_int4 else (weight.shape[1], INT8)


def _job_arrays(rows: int, context_tokens: int) -> dict[str, Array]:
    return {
        "tokens": np.zeros(rows, np.int64),
        "positions": np.zeros(rows, np.int64),
        "pages": np.zeros(-(-(context_tokens + rows) // PAGE_TOKENS), np.int64),
        "segments": np.zeros(rows, SEGMENT),
    }


def _seen_limit(context_tokens: int, rows: int) -> int:
    """A whole number of vectors; branches take slots behind the context's end."""
    return -(-(context_tokens + rows) // LANES) * LANES


def _scratch(config: FastConfig, rows: int, context_tokens: int, members: int) -> dict[str, Array]:
    shapes = {
        "states": (rows, config.hidden),
        "normed": (rows, config.hidden),
        "qkv": (rows, config.query_size + 2 * config.kv_size),
        "query": (config.kv_heads, rows, config.heads // config.kv_heads, config.head_dim),
        "mixed": (rows, config.query_size),
        "gated": (rows, config.inner),
        "rounded": (rows, max(config.hidden, config.query_size) // GROUP_TERMS, ROUNDED_BYTES // 4),
        "products": (members, 2, rows, LANES),
        "panels": (members, PANEL_TERMS, LANES),
        "scores": (members, TILE_ROWS, _seen_limit(context_tokens, rows)),
        "totals": (members, TILE_ROWS),
        "mixes": (members, TILE_ROWS, config.head_dim),
    }
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}

"""What the fast engine must know of a model, read from its `config.json`, and which models it can run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type` that the fast engine knows: decoders with RMS norm, rotary positions and a gated SiLU MLP."""

LANES = 16
"""Rows of a weight matrix that stand side by side in the vector lanes (`fast_vector`); sizes are multiples of it."""

_DEFAULT_THETA = 10000.0
_MISTRAL_WINDOW = 4096


@dataclass(frozen=True)
class Llama3Scaling:
    """The stretched rotary frequencies of Llama 3.1 and later, as in transformers' `rope_type: llama3`."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_tokens: int


@dataclass(frozen=True)
class FastConfig:
    """Sizes and switches of one model; all sizes count elements."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    norm_epsilon: float
    rope_theta: float
    rope_scaling: Llama3Scaling | None
    head_norms: bool
    tied: bool

    @property
    def query_size(self) -> int:
        """Elements of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Elements of all key heads together, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights of all layers' matrices: those that every prompt token is multiplied with."""
        attention = self.hidden * (2 * self.query_size + 2 * self.kv_size)
        return self.layers * (attention + 3 * self.hidden * self.inner)


def supports(config: Mapping[str, Any], context_tokens: int) -> str | None:
    """Why the fast engine cannot run the model of this `config.json` over so much context; None where it can."""
    for check in (_family_reason, _quantized_reason, _shape_reason, _rope_reason):
        if reason := check(config):
            return reason
    return _window_reason(config, context_tokens)


def read_fast_config(config: Mapping[str, Any]) -> FastConfig:
    """Read the sizes from a `config.json` that `supports` has let through."""
    heads = int(config["num_attention_heads"])
    rope = _rope(config)
    return FastConfig(
        hidden=int(config["hidden_size"]),
        inner=int(config["intermediate_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=_head_dim(config),
        vocab_size=int(config["vocab_size"]),
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=float(rope.get("rope_theta", _DEFAULT_THETA)),
        rope_scaling=_llama3(rope, config) if _rope_type(rope) == "llama3" else None,
        head_norms=config["model_type"] == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def rope_tables(config: FastConfig, positions: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Cosines and sines of the rotary angles, float32, shape `[positions, head_dim // 2]` each.

    Computed in float32 throughout as transformers does, so that far positions agree with it.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = (1.0 / np.power(config.rope_theta, exponents, dtype=np.float32)).astype(np.float32)
    if config.rope_scaling is not None:
        frequencies = _scale(frequencies, config.rope_scaling)
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    return np.cos(angles), np.sin(angles)


def _scale(frequencies: npt.NDArray[np.float32], scaling: Llama3Scaling) -> npt.NDArray[np.float32]:
    """Slow rotations are slowed down further by `factor`, fast ones stay, those between are blended."""
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    blend = np.clip((scaling.original_context_tokens / wavelengths - low) / (high - low), 0.0, 1.0)
    return ((1 - blend) * frequencies / scaling.factor + blend * frequencies).astype(np.float32)


def _head_dim(config: Mapping[str, Any]) -> int:
    default = 128 if config["model_type"] == "qwen3" else config["hidden_size"] // config["num_attention_heads"]
    return int(config.get("head_dim") or default)


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary parameters of both spellings: `rope_parameters`, or `rope_theta` beside `rope_scaling`."""
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    flat = {key: config[key] for key in ("rope_theta", "partial_rotary_factor") if key in config}
    return {**flat, **nested}


def _rope_type(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def _llama3(rope: Mapping[str, Any], config: Mapping[str, Any]) -> Llama3Scaling:
    return Llama3Scaling(
        factor=float(rope["factor"]),
        low_frequency_factor=float(rope["low_freq_factor"]),
        high_frequency_factor=float(rope["high_freq_factor"]),
        original_context_tokens=int(rope.get("original_max_position_embeddings") or config["max_position_embeddings"]),
    )


def _family_reason(config: Mapping[str, Any]) -> str | None:
    family = config.get("model_type")
    if family not in FAMILIES:
        return f"model_type is {family!r}, not one of {', '.join(FAMILIES)}"
    activation = config.get("hidden_act", "silu")
    return None if activation == "silu" else f"hidden_act is {activation!r}, not 'silu'"


def _quantized_reason(config: Mapping[str, Any]) -> str | None:
    return "the checkpoint is quantised already (quantization_config)" if config.get("quantization_config") else None


def _shape_reason(config: Mapping[str, Any]) -> str | None:
    missing = [
        key
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        if not isinstance(config.get(key), int) or config[key] < 1
    ]
    if missing:
        return f"{missing[0]} is {config.get(missing[0])!r}, expected a positive integer"
    heads, head_dim = config["num_attention_heads"], _head_dim(config)
    if head_dim % LANES:
        return f"head_dim is {head_dim}, not a multiple of {LANES}"
    kv_heads = config.get("num_key_value_heads") or heads
    return f"{heads} heads cannot share {kv_heads} key-value heads evenly" if heads % kv_heads else None


def _rope_reason(config: Mapping[str, Any]) -> str | None:
    rope = _rope(config)
    if _rope_type(rope) not in {"default", "llama3"}:
        return f"rope_type is {_rope_type(rope)!r}, not 'default' or 'llama3'"
    part = rope.get("partial_rotary_factor", 1.0)
    return None if part == 1.0 else f"partial_rotary_factor is {part}, not 1.0"


def _window_reason(config: Mapping[str, Any], context_tokens: int) -> str | None:
    """A sliding window is harmless where no context can outgrow it."""
    window = _window(config)
    if window is None or window >= context_tokens:
        return None
    return f"its sliding window of {window} tokens is shorter than the context of {context_tokens}"


def _window(config: Mapping[str, Any]) -> int | None:
    if config["model_type"] == "mistral":
        window = config.get("sliding_window", _MISTRAL_WINDOW)
    elif config["model_type"] in {"qwen2", "qwen3"} and config.get("use_sliding_window", False):
        window = config.get("sliding_window", _MISTRAL_WINDOW)
        layer_types = config.get("layer_types")
        slides = "sliding_attention" in layer_types if layer_types else _window_layers(config) < _layers(config)
        window = window if slides else None
    else:
        window = None
    return None if window is None else int(window)


def _window_layers(config: Mapping[str, Any]) -> int:
    return int(config.get("max_window_layers", 28))


def _layers(config: Mapping[str, Any]) -> int:
    return int(config["num_hidden_layers"])

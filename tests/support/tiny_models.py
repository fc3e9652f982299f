"""Tiny random models of every family that the fast engine knows, as transformers makes and saves them."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from daemon.engine.fast_int4 import dequantize_int4, quantize_int4
from daemon.engine.fast_pack import dequantize_int8, quantize_int8

VOCABULARY = 203
"""No multiple of 16: the last block of rows is padded."""

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 72,
    "intermediate_size": 88,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "head_dim": 16,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("LlamaConfig", {"rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": True, "hidden_size": 96}),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
}
"""Name of the test case: transformers' class of the configuration, and what is special."""


def make_network(family: str) -> transformers.PreTrainedModel:
    """A random network; norms and biases are random too, so that a forgotten one shows."""
    kind, special = FAMILIES[family]
    config = getattr(transformers, kind)(**{**_SIZES, **special})
    torch.manual_seed(7)
    make: Any = transformers.AutoModelForCausalLM.from_config  # transformers leaves methods without types
    network: transformers.PreTrainedModel = make(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
            else:
                parameter.normal_(0.0, 0.15)
    network.train(False)
    return network


def save(network: transformers.PreTrainedModel, directory: Path, dtype: str = "float32") -> Path:
    """Write a network as a model directory and return it; `dtype` is the type on disk."""
    copy.deepcopy(network).to(getattr(torch, dtype)).save_pretrained(directory)
    return directory


def quantize_network(network: transformers.PreTrainedModel, kind: str) -> transformers.PreTrainedModel:
    """Replace every matrix of the network by what is left of it in weights of a kind, in place."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(_quantized(parameter.numpy(), in_int4(name, parameter, kind))))
    return network


def in_int4(name: str, parameter: torch.Tensor, kind: str) -> bool:
    """Whether a matrix of the checkpoint becomes int4: of the layers, all but query, key, value and down that fit."""
    fits = parameter.shape[1] % 32 == 0
    return kind == "int4" and fits and any(part in name for part in ("o_proj", "gate_proj", "up_proj"))


def _quantized(rows: npt.NDArray[np.float32], is_int4: bool) -> npt.NDArray[np.float32]:  # noqa: FBT001
    padded = np.pad(rows, ((0, -len(rows) % 16), (0, 0)))
    restored = dequantize_int4(quantize_int4(padded)) if is_int4 else dequantize_int8(*quantize_int8(padded))
    return restored[: len(rows)].copy()


def reference_logits(network: transformers.PreTrainedModel, token_ids: list[int]) -> npt.NDArray[np.float32]:
    """Logits of transformers' own forward pass, shape `[tokens, vocabulary]`."""
    with torch.inference_mode():
        rows: npt.NDArray[np.float32] = network(torch.tensor([token_ids])).logits[0].float().numpy()
    return rows


def edit_config(directory: Path, **changes: object) -> Path:
    """Change fields of a model directory's `config.json`."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")
    return directory

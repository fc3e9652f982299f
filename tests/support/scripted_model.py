"""A real model directory whose greedy answer is chosen by the test.

One-hot embeddings pass unchanged through one layer whose attention and MLP outputs are zero; an untied head then maps
each token to its successor. It runs through the whole real engine, on torch and on the fast path alike.

A script is a chain of pieces; the answer to every prompt is the chain, then the end token. A token has one successor,
so the pieces of a chain must differ from each other (`default` can make the last one repeat for ever).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from daemon.engine.token_bytes import byte_alphabet

Piece = str | bytes | int
"""A token of the script: its text, its bytes (which may be part of a character), or its id."""

END, SYSTEM, USER, ASSISTANT = "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
SPECIAL = (END, SYSTEM, USER, ASSISTANT)
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTEXT_TOKENS = 512

_LOGIT = 20.0
"""Logit of the successor; all other logits are 0."""


def write_scripted_model(
    directory: Path,
    chain: Sequence[Piece],
    *,
    default: Piece = END,
    context_tokens: int = CONTEXT_TOKENS,
    template: str = TEMPLATE,
) -> Path:
    """Write a model directory that answers `chain` and return it.

    `default` follows every token that is not in the chain, and the chain's last one. Raises ValueError on a chain
    that repeats a piece.
    """
    vocabulary = _Vocabulary((*chain, default))
    ids = [vocabulary.id_of(piece) for piece in chain]
    if len(set(ids)) < len(ids):
        raise ValueError(f"the chain repeats a piece: {chain!r}")
    successors = np.full(vocabulary.size, vocabulary.id_of(default))
    for token, successor in zip([vocabulary.id_of(ASSISTANT), *ids], ids, strict=False):
        successors[token] = successor
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "tokenizer.json", vocabulary.description())
    _write_json(directory / "tokenizer_config.json", {"eos_token": END, "tokenizer_class": "PreTrainedTokenizerFast"})
    _write_json(directory / "generation_config.json", {"eos_token_id": vocabulary.id_of(END)})
    _write_json(directory / "config.json", _config(vocabulary, context_tokens))
    (directory / "chat_template.jinja").write_text(template, "utf-8")
    save_file(_weights(successors), directory / "model.safetensors", metadata={"format": "pt"})
    return directory


class _Vocabulary:
    """The special tokens, the 256 bytes, then the longer pieces of the script."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._letters = {byte: letter for letter, byte in byte_alphabet().items()}
        names = [*SPECIAL, *(self._letters[byte] for byte in range(256))]
        names += [self._name(piece) for piece in pieces if not isinstance(piece, int)]
        self._ids = {name: index for index, name in enumerate(dict.fromkeys(names))}

    @property
    def size(self) -> int:
        """Rows of the logits: a multiple of 32, so some ids are in no vocabulary."""
        return -(-len(self._ids) // 32) * 32

    def id_of(self, piece: Piece) -> int:
        return piece if isinstance(piece, int) else self._ids[self._name(piece)]

    def _name(self, piece: str | bytes) -> str:
        if piece in SPECIAL:
            return str(piece)
        data = piece.encode() if isinstance(piece, str) else piece
        return "".join(self._letters[byte] for byte in data)

    def description(self) -> dict[str, object]:
        """The contents of `tokenizer.json`: byte-level BPE without merges."""
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "added_tokens": [{"id": self._ids[name], "content": name, **flags} for name in SPECIAL],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": self._ids, "merges": []},
        }


def _config(vocabulary: _Vocabulary, context_tokens: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary.size,
        "hidden_size": vocabulary.size,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
        "eos_token_id": vocabulary.id_of(END),
        "dtype": "float32",
    }


def _weights(successors: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.float32]]:
    size = len(successors)
    head = np.zeros((size, size), np.float32)
    head[successors, np.arange(size)] = _LOGIT / np.sqrt(size)  # the norm scales a one-hot vector by sqrt(size)
    layer, ones = "model.layers.0", np.ones(size, np.float32)
    zeros = {
        "self_attn.q_proj": (32, size),
        "self_attn.k_proj": (16, size),
        "self_attn.v_proj": (16, size),
        "self_attn.o_proj": (size, 32),
        "mlp.gate_proj": (32, size),
        "mlp.up_proj": (32, size),
        "mlp.down_proj": (size, 32),
    }
    return {
        "model.embed_tokens.weight": np.eye(size, dtype=np.float32),
        "lm_head.weight": head,
        "model.norm.weight": ones,
        f"{layer}.input_layernorm.weight": ones.copy(),
        f"{layer}.post_attention_layernorm.weight": ones.copy(),
        **{f"{layer}.{name}.weight": np.zeros(shape, np.float32) for name, shape in zeros.items()},
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")

"""From a GGUF file of the Llama family with a byte-level BPE to the directory layout that transformers reads.

Sources: the GGUF specification (ggml), llama.cpp `convert_hf_to_gguf.py` (tensor names; rows of q and k are permuted
there, which is undone here), transformers `convert_slow_tokenizer.py` (the tokenizer's parts).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize
from rich.console import Console
from rich.progress import track
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3

Weights = dict[str, npt.NDArray[np.float32]]


def convert(gguf: Path, directory: Path) -> None:
    """Write model.safetensors (float32), config.json and the tokenizer's files of `gguf` into `directory`.

    Raises ValueError for a file of another architecture or with another kind of tokenizer.
    """
    reader = GGUFReader(gguf)
    keys = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    facts = {name: field.contents() for name, field in keys.items()}
    kinds = tuple(facts.get(key) for key in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"))
    if kinds != ("llama", "gpt2", "smollm"):
        raise ValueError(f"{gguf.name} is {kinds}, expected architecture llama with tokenizer gpt2, smollm")
    weights = _weights(reader, facts)
    _write_json(directory / "config.json", _config(facts, tied="lm_head.weight" not in weights))
    target = directory / "model.safetensors"
    save_file(weights, target, metadata={"format": "pt"})
    target.chmod((directory / "config.json").stat().st_mode)  # safetensors lets nobody else read it
    _write_json(directory / "generation_config.json", _special_ids(facts))
    _write_tokenizer(facts, directory)


def _weights(reader: GGUFReader, facts: dict[str, Any]) -> Weights:
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    weights: Weights = {}
    console = Console(stderr=True)
    for tensor in track(reader.tensors, "dequantising", console=console):
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        *block, kind, suffix = tensor.name.split(".")
        if kind in heads:
            values = _in_halves(values, heads[kind])
        layer = f"model.layers.{block[1]}." if block else ""
        weights[f"{layer}{_NAMES[kind]}.{suffix}"] = np.ascontiguousarray(values)
    return weights


def _in_halves(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's order: it rotates neighbouring rows of a head, transformers row i with row i + size / 2."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _config(facts: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "max_position_embeddings": facts["llama.context_length"],
        # GGUF stores this one as float32: 1e-05 would read 9.999999747378752e-06.
        "rms_norm_eps": float(f"{facts['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        "tie_word_embeddings": tied,
        **_special_ids(facts),
    }


def _special_ids(facts: dict[str, Any]) -> dict[str, int]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {ours: facts[f"tokenizer.ggml.{theirs}_token_id"] for ours, theirs in names.items()}


def _write_tokenizer(facts: dict[str, Any], directory: Path) -> None:
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    _tokenizer(tokens, facts).save(str(directory / "tokenizer.json"))
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    config: dict[str, Any] = {ours: tokens[facts[f"tokenizer.ggml.{key}_token_id"]] for ours, key in named.items()}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    config |= {"model_max_length": facts["llama.context_length"]}
    _write_json(directory / "tokenizer_config.json", config)
    (directory / "chat_template.jinja").write_text(facts["tokenizer.chat_template"], encoding="utf-8")


def _tokenizer(tokens: list[str], facts: dict[str, Any]) -> Tokenizer:
    """Byte-level BPE; the pre-tokenizer `smollm` takes digits one by one before GPT-2's own split."""
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

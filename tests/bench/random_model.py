"""Writes a model directory of a Qwen2.5 shape with random weights: speed and memory do not depend on their values.

    python -m tests.bench.random_model 0.5B DIRECTORY

There is no tokenizer: it is for `leveret bench --model DIRECTORY`. Sizes from the models' own config.json
(https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct and -1.5B-Instruct).
"""

import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

HEAD_DIM, LAYERS, VOCABULARY = {"0.5B": 64, "1.5B": 128}, {"0.5B": 24, "1.5B": 28}, 151_936
SIZES = {"0.5B": (896, 4864, 14, 2), "1.5B": (1536, 8960, 12, 2)}
"""Hidden size, inner size of the MLP, query heads, key-value heads."""


def config(shape: str) -> dict[str, object]:
    """The contents of config.json."""
    hidden, inner, heads, kv_heads = SIZES[shape]
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": LAYERS[shape],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
        "dtype": "float16",
    }


def weights(shape: str) -> dict[str, npt.NDArray[np.float16]]:
    """All tensors; norms are 1, biases 0."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float16]:
        return (random.standard_normal((rows, columns), np.float32) * np.float32(0.02)).astype(np.float16)

    hidden, inner, heads, kv_heads = SIZES[shape]
    outputs = {"q": heads * HEAD_DIM[shape], "k": kv_heads * HEAD_DIM[shape], "v": kv_heads * HEAD_DIM[shape]}
    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, hidden),
        "model.norm.weight": np.ones(hidden, np.float16),
    }
    for layer in range(LAYERS[shape]):
        here = f"model.layers.{layer}."
        for name, rows in outputs.items():
            tensors[f"{here}self_attn.{name}_proj.weight"] = matrix(rows, hidden)
            tensors[f"{here}self_attn.{name}_proj.bias"] = np.zeros(rows, np.float16)
        tensors[f"{here}self_attn.o_proj.weight"] = matrix(hidden, outputs["q"])
        for name in ("gate", "up"):
            tensors[f"{here}mlp.{name}_proj.weight"] = matrix(inner, hidden)
        tensors[f"{here}mlp.down_proj.weight"] = matrix(hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{here}{name}.weight"] = np.ones(hidden, np.float16)
    return tensors


def main() -> None:
    """Write the directory that the command line names."""
    shape, directory = sys.argv[1], Path(sys.argv[2])
    if shape not in SIZES:
        raise SystemExit(f"no shape {shape!r}; there are {', '.join(SIZES)}")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(shape)), "utf-8")
    save_file(weights(shape), directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()

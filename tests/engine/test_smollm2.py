"""The small model as `leveret fetch smollm2-135m` makes it from its GGUF file."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

from daemon.gguf_model import convert
from daemon.models import find_model


def test_its_public_id_is_the_hub_id(smollm2_dir: Path) -> None:
    """Replies name the model, not the package or the directory that it came from."""
    assert find_model(str(smollm2_dir), smollm2_dir.parent).model_id == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_weights_are_finite_float32_of_the_configured_shapes(smollm2_dir: Path) -> None:
    """A tensor under a wrong name or in a wrong shape would be left out, or filled at random, by a loader."""
    config = json.loads((smollm2_dir / "config.json").read_text())
    with safe_open(smollm2_dir / "model.safetensors", "numpy") as weights:
        names = set(weights.keys())
        assert len(names) == 2 + 9 * config["num_hidden_layers"]
        embedding = weights.get_tensor("model.embed_tokens.weight")
        key = weights.get_tensor("model.layers.29.self_attn.k_proj.weight")
    assert embedding.shape == (config["vocab_size"], config["hidden_size"])
    assert key.shape == (config["num_key_value_heads"] * config["head_dim"], config["hidden_size"])
    assert embedding.dtype == key.dtype == np.float32
    assert np.isfinite(embedding).all()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("it is  12", ["it", "Ġis", "ĠĠ", "1", "2"]), ("<|im_end|>", ["<|im_end|>"]), ("a\n\n9", ["a", "ĊĊ", "9"])],
)
def test_the_tokenizer_splits_as_the_model_was_trained(text: str, tokens: list[str], smollm2_dir: Path) -> None:
    """Digits stand alone, so that white space before a number is one token: the pre-tokenizer `smollm`."""
    tokenizer = Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))
    encoding = tokenizer.encode(text)
    assert encoding.tokens == tokens
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    """A file that is no GGUF must not end as a model directory."""
    (tmp_path / "bad.gguf").write_bytes(b"not a model" * 10)
    with pytest.raises(ValueError, match="GGUF"):
        convert(tmp_path / "bad.gguf", tmp_path)
    assert not (tmp_path / "model.safetensors").exists()

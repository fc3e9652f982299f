"""Which models the fast engine takes, from their config.json alone, and what it reads there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.engine.fast_config import read_fast_config, rope_tables, supports
from daemon.engine.load import EngineOptions, load_model
from daemon.engine.quantize import KINDS
from daemon.errors import ConfigurationError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
CONTEXT = 4096


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model_type": "qwen3", "head_dim": 128},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": CONTEXT},
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 1024},
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 1024, "max_window_layers": 2},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_scaling": None},
    ],
)
def test_these_are_taken(changes: dict[str, Any]) -> None:
    """A family that the README names must not fall back to the slow path by a mistaken check."""
    assert supports({**LLAMA, **changes}, CONTEXT) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gemma3"}, "model_type is 'gemma3'"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"head_dim": 20}, "head_dim is 20"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, "rope_type is 'linear'"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type is 'dynamic'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"model_type": "mistral", "sliding_window": 1024}, "sliding window of 1024"),
        ({"model_type": "mistral"} | {"max_position_embeddings": 32768}, None),
        (
            {
                "model_type": "qwen3",
                "head_dim": 64,
                "use_sliding_window": True,
                "sliding_window": 512,
                "layer_types": ["full_attention", "sliding_attention"],
            },
            "sliding window of 512",
        ),
    ],
)
def test_these_are_refused_with_a_reason(changes: dict[str, Any], reason: str | None) -> None:
    """What the kernels do not compute must go to the reference model, never give wrong answers."""
    found = supports({**LLAMA, **changes}, CONTEXT)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_the_family_does_not_have_ends_the_start(kind: str, tmp_path: Path) -> None:
    """Asked for by name, it must not be replaced in silence; the sentence says what to set instead."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "gemma3"}), "utf-8")
    with pytest.raises(ConfigurationError, match=f"weights '{kind}' do not fit .*'gemma3'.*; use float32"):
        load_model(EngineOptions(tmp_path, kind, 1, 64, 0))


def test_a_mistral_without_a_window_field_has_the_familys_own() -> None:
    """The window is 4,096 tokens where config.json says nothing."""
    assert supports({**LLAMA, "model_type": "mistral"}, 4096) is None
    assert "window of 4096" in str(supports({**LLAMA, "model_type": "mistral"}, 4097))


def test_both_spellings_of_the_rotary_base_are_read() -> None:
    """Older configs have `rope_theta` at the top, newer ones in `rope_parameters`."""
    assert read_fast_config({**LLAMA, "rope_theta": 5e5}).rope_theta == 5e5
    nested = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    assert read_fast_config({**LLAMA, **nested}).rope_theta == 1e6
    assert read_fast_config(LLAMA).rope_theta == 1e4


def test_position_zero_is_not_rotated() -> None:
    """The tables begin at position 0 and have a column for each pair of elements."""
    cosines, sines = rope_tables(read_fast_config(LLAMA), 3)
    assert cosines.shape == sines.shape == (3, 8)
    assert (cosines[0] == 1).all()
    assert (sines[0] == 0).all()
    assert cosines[1, 0] == np.cos(np.float32(1))

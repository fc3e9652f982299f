"""What the engine's tests share: transformers' own model, to compare with."""

from pathlib import Path

import pytest
import torch
import transformers


@pytest.fixture(scope="module")
def reference(smollm2_dir: Path) -> transformers.PreTrainedModel:
    """The real small model as transformers runs it, in float32."""
    model: transformers.PreTrainedModel = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_dir, dtype=torch.float32
    )
    return model

"""What the image's build does with the model: `bake.py fetch MODEL [REVISION]`, `quantise MODEL`, `compile MODEL`.

Three steps, because each is a layer of its own: a change of the daemon's code must not download the model again.
"""

import json
import sys
from pathlib import Path

from daemon.models import default_models_dir, find_model


def fetch(model: str, revision: str = "") -> None:
    """Bring the model into the models directory, and leave no lock file of the fetching there."""
    from daemon.fetching import fetch_model  # noqa: PLC0415 - the code of the other steps is not there yet

    models_dir = default_models_dir()
    fetch_model(model, models_dir, revision or None, print)
    for lock in models_dir.glob(".*.lock"):
        lock.unlink()


def quantise(model: str) -> None:
    """Write the int8 weights, where the family has them, and drop the checkpoint that they were made from."""
    from daemon.engine.fast_config import supports  # noqa: PLC0415 - not there yet while fetching
    from daemon.engine.load import DEFAULT_CONTEXT_TOKENS  # noqa: PLC0415
    from daemon.engine.quantize import quantize_directory  # noqa: PLC0415

    directory = find_model(model, default_models_dir()).path
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    held = config.get("max_position_embeddings", DEFAULT_CONTEXT_TOKENS)
    if reason := supports(config, min(DEFAULT_CONTEXT_TOKENS, held)):
        print(f"the checkpoint stays as it is: {reason}")
        return
    written = quantize_directory(directory)
    for path in _checkpoint(directory, written):
        path.unlink()
    print(f"{written.name}: {written.stat().st_size / 1e6:.0f} MB")


def _checkpoint(directory: Path, written: Path) -> list[Path]:
    """The files of the float weights; the quantised ones hold all that the fast engine needs."""
    patterns = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
    return [path for pattern in patterns for path in directory.glob(pattern) if path != written]


def compile_engine(model: str) -> None:
    """Load the model once and let it speak: this leaves the machine code, and shows that the image's model works."""
    from daemon.engine.load import EngineOptions, load_engine  # noqa: PLC0415 - not there yet while fetching
    from daemon.engine.types import Message, Task  # noqa: PLC0415

    directory = find_model(model, default_models_dir()).path
    engine = load_engine(EngineOptions(directory, None, None, None, 0))
    task = Task((Message("user", "What is the capital of France?"),), max_new_tokens=16, temperature=0)
    result = engine.generate(task, lambda: False, lambda _: None)
    print(f"{model} says: {result.text!r}")


STEPS = {"fetch": fetch, "quantise": quantise, "compile": compile_engine}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*sys.argv[2:])

"""The fast engine's machine code: kept on disk, and the same bits from whichever process compiled it."""

import subprocess
import sys
from pathlib import Path

from tests.support.tiny_models import make_network, save

LOGITS = """
import hashlib, logging, sys
from pathlib import Path
from daemon.engine.fast_model import load_fast_model

logging.basicConfig(level="INFO", format="%(message)s")
model = load_fast_model(Path(sys.argv[1]), "int8", 256, 2)
logits = model.extend(model.new_state(), list(range(100)), "all")
print(hashlib.sha256(logits.tobytes()).hexdigest())
"""


def digest(model_dir: Path, cache_dir: Path) -> tuple[str, str]:
    """What another process says of its code, and the digest of its logits."""
    process = subprocess.run(
        [sys.executable, "-c", LOGITS, str(model_dir)],
        env={"NUMBA_CACHE_DIR": str(cache_dir)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = next(line for line in process.stderr.splitlines() if line.startswith("fast engine"))
    return said, process.stdout.strip()


def test_the_process_that_compiles_gets_the_same_bits_as_those_that_load(tmp_path: Path) -> None:
    """Where LLVM may order a sum, it does so anew wherever the code stands; a restart would change answers."""
    model_dir = save(make_network("qwen3"), tmp_path / "qwen3")
    compiling, first = digest(model_dir, tmp_path)
    loading, second = digest(model_dir, tmp_path)
    assert compiling.startswith("fast engine compiled in")
    assert loading.startswith("fast engine loaded in")
    assert first == second

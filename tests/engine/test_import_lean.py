"""What the engine imports: the fast path starts without torch and transformers."""

import subprocess
import sys
from pathlib import Path

from tests.support.scripted_model import write_scripted_model

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
import daemon.engine.engine, daemon.engine.thread, daemon.engine.load
from daemon.engine.tokenizer import load_tokenizer
from daemon.engine.types import Message
print(len(load_tokenizer(Path(sys.argv[1])).encode_chat([Message("user", "hello")])))
print(*(name for name in ("torch", "transformers", "numba", "aio_pika") if name in sys.modules))
"""


def test_a_tokenizer_is_loaded_without_torch_and_transformers(tmp_path: Path) -> None:
    """Guards the start-up time and the memory of the fast path: together those two hold 300 MB."""
    model = write_scripted_model(tmp_path, ["x"])
    command = [sys.executable, "-c", SCRIPT, str(model)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.split("\n") == ["8", "", ""]

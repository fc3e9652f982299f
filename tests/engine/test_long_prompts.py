"""Very long prompts: the engine's thread may be busy with them, the rest of the process may not."""

import threading
from pathlib import Path

import pytest

from daemon.engine.tokenizer import load_tokenizer
from daemon.engine.types import Message


@pytest.mark.parametrize("begin", ["", "<|im_end|>"])
def test_other_threads_run_while_a_long_prompt_is_encoded(begin: str, smollm2_dir: Path) -> None:
    """Guards the event loop: a megabyte of text, hostile or not, must not hold the interpreter for its second."""
    tokenizer = load_tokenizer(smollm2_dir)
    encoded, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not encoded.wait(0.001):
            ticks += 1

    ticking = threading.Thread(target=tick)
    ticking.start()
    ids = tokenizer.encode_chat([Message("user", begin + "ab" * 500_000)])
    encoded.set()
    ticking.join()
    assert len(ids) > 100_000
    assert ticks > 100

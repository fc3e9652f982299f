"""The model of a scripted directory (`scripted_model`) computed with numpy alone, slowly on purpose.

It starts in a blink, costs next to no CPU, and its answers take as long as a test needs them to.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors.numpy import load_file

from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions
from daemon.engine.tokenizer import load_tokenizer, read_json
from daemon.engine.types import Logits

PIECE_TOKENS = 16


@dataclass
class Tokens:
    """A state: the tokens themselves."""

    ids: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens held."""
        return len(self.ids)


class SuccessorModel:
    """Each token is followed by the one that the script says. Each `extend` call takes `seconds`."""

    piece_tokens = PIECE_TOKENS
    exact = False

    def __init__(self, directory: Path, context_tokens: int, seconds: float) -> None:
        self._rows = np.ascontiguousarray(load_file(directory / "model.safetensors")["lm_head.weight"].T)
        self._seconds = seconds
        self.vocab_size = len(self._rows)
        self.context_tokens = context_tokens

    def new_state(self) -> Tokens:
        """As the port says."""
        return Tokens()

    def extend(
        self, state: Tokens, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        threading.Event().wait(self._seconds)
        if state.length + len(token_ids) > self.context_tokens:
            raise ValueError("beyond the context")
        state.ids += token_ids
        wanted = {"none": [], "last": token_ids[-1:], "all": token_ids}[logits]
        return self._rows[list(wanted)].reshape(len(wanted), self.vocab_size)

    def truncate(self, state: Tokens, length: int) -> None:
        """As the port says."""
        del state.ids[length:]

    def fork(self, state: Tokens) -> Tokens:
        """As the port says."""
        return Tokens(list(state.ids))


def load_successor_engine(options: EngineOptions, seconds_per_extend: float) -> Engine:
    """The engine of a scripted model directory. Raises ConfigurationError as the real loader does."""
    tokenizer = load_tokenizer(options.model_dir)
    held = int(read_json(options.model_dir / "config.json")["max_position_embeddings"])
    context_tokens = options.context_tokens or held
    return Engine(SuccessorModel(options.model_dir, context_tokens, seconds_per_extend), tokenizer)

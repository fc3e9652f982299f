"""The fast model: quantised weights, float32 activations, compiled code; needs neither torch nor transformers."""

import logging
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from daemon.engine.fast_config import FastConfig
from daemon.engine.fast_jit import compile_entry
from daemon.engine.fast_plan import Plan
from daemon.engine.fast_records import PAGE_TOKENS
from daemon.engine.fast_state import FastState
from daemon.engine.fast_step import run
from daemon.engine.fast_team import MAX_THREADS, dissolve, start_helpers
from daemon.engine.quantize import QuantizedWeights, open_weights
from daemon.engine.types import Logits

log = logging.getLogger(__name__)

_PIECE_FLOPS = 50e9
"""Multiply-adds count twice; about half a second's worth on two cores of a small CPU."""
_PIECE_RANGE = (16, 128)


class FastModel:
    """Quantised weights behind the model port (`daemon.engine.types.BranchingModel`).

    The logits after a token depend on the tokens before it alone, to the bit: not on how they were divided among
    calls, nor on the number of threads. One thread at a time may call.
    """

    exact = True

    def __init__(self, quantized: QuantizedWeights, context_tokens: int, threads: int) -> None:
        config = quantized.config
        self.vocab_size = config.vocab_size
        self.context_tokens = context_tokens
        self.piece_tokens = _piece_tokens(config)
        self._page_floats = 2 * config.layers * config.kv_size * PAGE_TOKENS
        members = min(threads, MAX_THREADS)
        self._plan = plan = Plan(quantized, context_tokens, self.piece_tokens, members)
        self._run = compile_entry(run, plan.address, 0)
        start_helpers(members, _helper(self._run, plan.address))
        weakref.finalize(self, dissolve, plan.control, members)

    def new_state(self) -> FastState:
        """An empty state."""
        return FastState(self._page_floats)

    def extend(
        self, state: FastState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """See the port. Any number of tokens; more than `piece_tokens` are computed a piece at a time."""
        self._check(state.length, token_ids)
        rows = [
            self._compute(state, piece, (), _wanted(logits, piece, last=end >= len(token_ids)))
            for piece, end in _pieces(token_ids, self.piece_tokens)
        ]
        return np.concatenate(rows) if len(rows) != 1 else rows[0]

    def branches(
        self, state: FastState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> tuple[Logits, Sequence[Logits]]:
        """See the port. All in one pass, and all in the state's own room, one continuation behind the other."""
        for continuation in continuations:
            self._check(state.length, [*token_ids, *continuation])
        ends = np.cumsum([int(len(token_ids) > 0), *map(len, continuations)])
        rows = self._compute(state, token_ids, continuations, int(ends[-1]))
        last, *after = np.split(rows, ends[:-1])
        return last, after

    def truncate(self, state: FastState, length: int) -> None:
        """See the port."""
        state.truncate(length)

    def fork(self, state: FastState) -> FastState:
        """See the port. Shares all pages; costs a copy of the last one when either state goes on."""
        return state.fork()

    def state_bytes(self, length: int) -> int:
        """Bytes that a state of `length` tokens takes, if it shares none of its pages."""
        return -(-length // PAGE_TOKENS) * 4 * self._page_floats

    def _check(self, length: int, token_ids: Sequence[int]) -> None:
        if length + len(token_ids) > self.context_tokens:
            raise ValueError(f"{length} + {len(token_ids)} tokens exceed the context of {self.context_tokens}")
        if not token_ids:
            raise ValueError("there are no tokens to extend the state by")
        for token in (min(token_ids), max(token_ids)):
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"token {token} is not in the vocabulary of {self.vocab_size}")

    def _compute(
        self, state: FastState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]], wanted: int
    ) -> Logits:
        """Extend a state by tokens and look at what may follow; the logits of the last `wanted` of all rows."""
        rows = len(token_ids) + sum(map(len, continuations))
        if rows > self.piece_tokens:
            raise ValueError(f"{rows} tokens at once are more than {self.piece_tokens}")
        logits = np.empty((wanted, self.vocab_size), np.float32)
        state.reserve(rows)
        self._plan.prepare(state, token_ids, continuations, logits)
        self._run(self._plan.address, 0)
        state.length += len(token_ids)
        state.truncate(state.length)
        return logits


def load_fast_model(model_dir: Path, kind: str, context_tokens: int, threads: int) -> FastModel:
    """Map (or make) the quantised weights of a model that `fast_config.supports` and compile the code for it.

    Raises ConfigurationError.
    """
    quantized = open_weights(model_dir, kind)
    return FastModel(quantized, context_tokens, threads)


def _helper(run_entry: Callable[[int, int], None], address: int) -> Callable[[int], None]:
    """What a helper thread runs; it must not keep the model alive, whose end ends the helpers."""
    return lambda member: run_entry(address, member)


def _wanted(logits: Literal["none", "last", "all"], piece: Sequence[int], *, last: bool) -> int:
    if logits == "all":
        return len(piece)
    return 1 if logits == "last" and last else 0


def _pieces(token_ids: Sequence[int], size: int) -> list[tuple[Sequence[int], int]]:
    """Pieces of at most `size` tokens, each with where it ends."""
    return [(token_ids[begin : begin + size], begin + size) for begin in range(0, len(token_ids), size)]


def _piece_tokens(config: FastConfig) -> int:
    """A power of two of tokens that one forward pass gets through in about half a second."""
    fitting = int(_PIECE_FLOPS / (2 * config.linear_parameters))
    smallest, largest = _PIECE_RANGE
    return max(smallest, min(largest, 1 << max(fitting.bit_length() - 1, 0)))

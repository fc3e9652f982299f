"""Keeps keys and values from one request to the next, so that what texts share is computed once.

A warm run gives the same answer as a cold one, to the bit. An exact model does so by itself, whatever is kept, an
answer too: the next turn of a conversation begins with it. Of any other only whole pieces of the prompt are kept, as
prefill goes in pieces of fixed bounds: the rest is then computed in the very same calls.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from daemon.engine.types import Model, OwnState, State

log = logging.getLogger(__name__)


class KeepableModel(Model, Protocol):
    """A model whose states can be kept: it knows how much memory they take."""

    def state_bytes(self, length: int) -> int:
        """Bytes that a state of `length` tokens takes, if it shares none of them."""


class PrefixCache:
    """The most recently used states, within `max_bytes`, found by their longest common prefix.

    States that share memory are counted as if they did not, so the bound holds. A kept state is never extended: users
    get forks of it. Used by one thread.
    """

    def __init__(self, model: KeepableModel, max_bytes: int) -> None:
        self._model = model
        self._max_bytes = max_bytes
        self._step = 1 if model.exact else model.piece_tokens
        """States are kept in multiples of so many tokens."""
        self._kept: OrderedDict[tuple[int, ...], _Entry] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        """Bytes counted for all kept states."""
        return sum(entry.size for entry in self._kept.values())

    def acquire(self, token_ids: Sequence[int]) -> tuple[State, int]:
        """See `types.PromptCache`. The last token is never found: its logits have to be computed."""
        prompt = np.asarray(token_ids, np.int64)
        entry, shared = self._best(prompt[:-1])
        if entry is None:
            return self._model.new_state(), 0
        self._kept.move_to_end(entry.key)
        state = self._model.fork(entry.state)
        self._model.truncate(state, shared)
        return state, shared

    def release(self, token_ids: Sequence[int], state: OwnState) -> None:
        """See `types.PromptCache`. Takes the state over; keeps what fits, in whole steps."""
        length = self._fitting(min(len(token_ids), state.length))
        key = tuple(token_ids[:length])
        if not key or self._touch(key):
            return
        self._model.truncate(state, length)
        for shorter in [other for other in self._kept if other == key[: len(other)]]:
            del self._kept[shorter]
        self._kept[key] = _Entry(key, state, self._model.state_bytes(length))
        while self.used_bytes > self._max_bytes:
            self._kept.popitem(last=False)

    def _best(self, prompt: npt.NDArray[np.int64]) -> tuple["_Entry | None", int]:
        """The entry with the longest common prefix and its length in whole steps; (None, 0) where none has one."""
        found = ((entry, entry.common(prompt) // self._step * self._step) for entry in self._kept.values())
        best, shared = max(found, key=lambda pair: pair[1], default=(None, 0))
        return (best, shared) if shared else (None, 0)

    def _touch(self, key: tuple[int, ...]) -> bool:
        """Whether an entry holds all of `key` already; it then counts as just used."""
        holder = next((other for other in self._kept if other[: len(key)] == key), None)
        if holder is None:
            return False
        self._kept.move_to_end(holder)
        return True

    def _fitting(self, length: int) -> int:
        """The most tokens, in whole steps and at most `length`, whose state fits into the bound."""
        steps = length // self._step
        while steps and self._model.state_bytes(steps * self._step) > self._max_bytes:
            steps -= 1
        return steps * self._step


class _Entry:
    """A kept state, the tokens it holds and the bytes it counts for."""

    def __init__(self, key: tuple[int, ...], state: OwnState, size: int) -> None:
        self.key = key
        self.state = state
        self.size = size
        self._tokens = np.asarray(key, np.int64)

    def common(self, prompt: npt.NDArray[np.int64]) -> int:
        """How many first tokens this state and a prompt share."""
        length = min(len(self._tokens), len(prompt))
        different = np.flatnonzero(self._tokens[:length] != prompt[:length])
        return int(different[0]) if len(different) else length


def prompt_cache(model: KeepableModel, max_bytes: int) -> PrefixCache | None:
    """A cache for `model`; None where `max_bytes` is 0 or the model's states cannot be shortened."""
    if max_bytes == 0:
        log.info("no prompt cache, as configured")
        return None
    state = model.new_state()
    model.extend(state, [0, 0], "none")
    try:
        model.truncate(state, 1)
    except RuntimeError as error:
        log.warning("no prompt cache: the states of this model cannot be shortened (%s)", error)
        return None
    return PrefixCache(model, max_bytes)

"""Choosing the next token: greedy, or drawn after temperature, top-k and top-p, in float64.

The order of the steps is that of transformers' logits processors: temperature, top-k, top-p.
"""

import numpy as np
import numpy.typing as npt

from daemon.engine.types import Logits, Task
from daemon.errors import GenerationFailed

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy (contract, section 2)."""

_FIRST_CANDIDATES = 1024
"""How many of the most probable tokens are sorted at first when looking for the top-p set."""

Mask = npt.NDArray[np.bool_]
"""The tokens that a grammar allows, shape `[vocab_size]`."""


def check_logits(logits: Logits) -> None:
    """Raise GenerationFailed where `logits` hold NaN or +infinity, or nothing but -infinity."""
    peak = float(logits.max(initial=-np.inf))  # NaN wins over every number in numpy's max
    if logits.size and not np.isfinite(peak):
        raise GenerationFailed(f"the model returned logits that are no numbers (their maximum is {peak})")


class Sampler:
    """Draws one request's tokens. The same seed and the same logits give the same tokens, whatever ran before."""

    def __init__(self, task: Task) -> None:
        self._greedy = task.temperature < GREEDY_BELOW
        self._temperature = task.temperature
        self._top_k = task.top_k
        self._top_p = task.top_p
        self._random = np.random.default_rng(task.seed)

    def draw(self, logits: Logits, allowed: Mask | None = None) -> int:
        """Return the next token's id. `logits`: shape `[vocab_size]`, raw; `allowed`: the grammar's mask, if any.

        Raises GenerationFailed where the logits are no numbers or no token is allowed.
        """
        check_logits(logits)
        if allowed is not None:
            logits = np.where(allowed, logits, np.float32(-np.inf))
        best = int(np.argmax(logits))
        if logits[best] == -np.inf:
            raise GenerationFailed("the grammar allows no token that the model can produce")
        return best if self._greedy else self._draw_at_random(logits)

    def _draw_at_random(self, logits: Logits) -> int:
        ids, weights = self._candidates(logits)
        return int(ids[pick(self._random, weights)])

    def _candidates(self, logits: Logits) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """The token ids that survive top-k and top-p, with their unnormalised weights."""
        if 0 < self._top_k < len(logits):
            ids = largest(logits, self._top_k)
            return self._nucleus(ids, tempered(logits[ids], self._temperature))
        weights = tempered(logits, self._temperature)
        if self._top_p >= 1.0:
            return np.arange(len(weights)), weights
        total = float(weights.sum())
        ids = largest(logits, _FIRST_CANDIDATES)
        if float(weights[ids].sum()) < self._top_p * total:  # a flat distribution: only then sort all of it
            ids = largest(logits, len(logits))
        return self._nucleus(ids, weights[ids], total)

    def _nucleus(
        self, ids: npt.NDArray[np.intp], weights: npt.NDArray[np.float64], total: float | None = None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """The shortest head of `ids` (most probable first) that holds at least `top_p` of `total`, never empty."""
        sums = np.cumsum(weights)
        needed = self._top_p * (float(sums[-1]) if total is None else total)
        count = int(np.searchsorted(sums, needed, side="left")) + 1
        return ids[:count], weights[:count]


def tempered(scores: npt.NDArray[np.floating], temperature: float) -> npt.NDArray[np.float64]:
    """Unnormalised probabilities of `scores` at `temperature`, the largest being 1.0, so that nothing overflows."""
    exact = scores.astype(np.float64)
    weights: npt.NDArray[np.float64] = np.exp((exact - exact.max()) / temperature)
    return weights


def pick(random: np.random.Generator, weights: npt.NDArray[np.float64]) -> int:
    """Draw an index in proportion to `weights` (non-negative, at least one positive); weight 0 is never drawn."""
    sums = np.cumsum(weights)
    drawn = random.random() * sums[-1]
    last = int(np.flatnonzero(weights)[-1])  # rounding may carry `drawn` up to the very end
    return min(int(np.searchsorted(sums, drawn, side="right")), last)


def largest(values: npt.NDArray[np.floating], count: int) -> npt.NDArray[np.intp]:
    """The indices of the `count` (at least one) largest `values`, largest first, equal ones by index."""
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    ids = np.sort(np.argpartition(values, len(values) - count)[len(values) - count :])
    return ids[np.argsort(-values[ids], kind="stable")]

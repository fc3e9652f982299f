"""Log-probabilities of tokens from the raw logits, before temperature, truncation and grammar."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from daemon.engine.sampling import largest
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import Logits, TokenLogprob

IMPOSSIBLE = -9999.0
"""Stands for the logarithm of zero, which JSON cannot hold (as in OpenAI's API)."""


def log_normalizer(logits: Logits) -> float:
    """The natural log of the sum of the exponentials of all logits: a logit minus this is its log-probability.

    Exponentials in float32 take a quarter of the time; the result is off by 1e-6 at most.
    """
    peak = logits.max()
    return float(peak) + math.log(np.exp(logits - peak).sum(dtype=np.float64))


def log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    """Natural-log probabilities of one position, float64, shape `[vocab_size]`."""
    return logits.astype(np.float64) - log_normalizer(logits)


def token_logprobs(
    tokenizer: Tokenizer, rows: Sequence[Logits], token_ids: Sequence[int], top: int
) -> tuple[TokenLogprob, ...]:
    """One entry for each token: `rows[i]` are the logits that predicted `token_ids[i]`; `top` alternatives each."""
    return tuple(_one(tokenizer, row, token, top) for row, token in zip(rows, token_ids, strict=True))


def _one(tokenizer: Tokenizer, row: Logits, token: int, top: int) -> TokenLogprob:
    scores = log_softmax(row)
    best = largest(scores, top) if top else ()
    alternatives = tuple(_entry(tokenizer, int(other), scores) for other in best)
    return _entry(tokenizer, token, scores, alternatives)


def _entry(
    tokenizer: Tokenizer, token: int, scores: npt.NDArray[np.float64], top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    logprob = max(float(scores[token]), IMPOSSIBLE)
    return TokenLogprob(tokenizer.token_text(token), tokenizer.token_bytes(token), logprob, top)

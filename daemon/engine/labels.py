"""Choosing among labels by the model's exact probability of each whole label.

A label's score is the log-probability that the model, unconstrained, answers exactly this label and stops: the sum over
the label's tokens plus the log of the summed probability of the end tokens (contract, section 7).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daemon.engine.answer import Answer
from daemon.engine.logprobs import log_normalizer, token_logprobs
from daemon.engine.sampling import GREEDY_BELOW, pick, tempered
from daemon.engine.stepper import Position, Stepper
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import Choice, Logits, OwnState, Task, TokenLogprob
from daemon.errors import InvalidRequest

_PARAM = "structured_outputs.choice"


@dataclass(frozen=True)
class Label:
    """A label as text and as the tokens that continue the prompt (none for an empty label)."""

    text: str
    token_ids: tuple[int, ...]


def encode_labels(tokenizer: Tokenizer, choice: Choice, max_new_tokens: int) -> tuple[Label, ...]:
    """The labels of a choice in tokens.

    Raises InvalidRequest (`structured_outputs.choice`) on labels that are equal, that the vocabulary cannot spell or
    that with the end token are longer than `max_new_tokens`, and where the model has no end token.
    """
    if len(set(choice.labels)) < len(choice.labels):
        raise InvalidRequest("two labels are the same", _PARAM)
    if not tokenizer.end_ids:
        raise InvalidRequest("the model has no end token, so it has no probability of answering just a label", _PARAM)
    return tuple(_encode(tokenizer, text, index, max_new_tokens) for index, text in enumerate(choice.labels))


def _encode(tokenizer: Tokenizer, text: str, index: int, max_new_tokens: int) -> Label:
    param = f"{_PARAM}[{index}]"
    try:
        label = Label(text, tuple(tokenizer.encode_continuation(text)))
    except ValueError as error:
        raise InvalidRequest(f"the label cannot be written in the model's tokens: {error}", param) from error
    needed = len(label.token_ids) + 1
    if needed > max_new_tokens:
        raise InvalidRequest(
            f"the label {text!r} takes {needed} tokens with the end token, more than max_new_tokens = {max_new_tokens}",
            param,
        )
    return label


class Choosing:
    """One answer that is one of some labels."""

    def __init__(
        self, stepper: Stepper, tokenizer: Tokenizer, task: Task, labels: Sequence[Label], answer: Answer
    ) -> None:
        self._stepper = stepper
        self._tokenizer = tokenizer
        self._task = task
        self._labels = labels
        self._answer = answer

    def run(self, start: Position) -> dict[str, float]:
        """Score all labels, answer one of them and return the probability of each.

        Raises Interrupted, GenerationFailed.
        """
        scores = score_labels(self._stepper, start, self._labels, self._tokenizer.end_ids)
        label, shares = choose(self._task, self._labels, scores)
        if label.token_ids:
            self._answer.add(label.token_ids, self._logprobs(label, start))
        self._answer.add_end_token()
        return shares

    def _logprobs(self, label: Label, start: Position) -> tuple[TokenLogprob, ...]:
        if not self._task.logprobs:
            return ()
        state = self._stepper.model.fork(start.state)
        rows = [start.row, *self._stepper.rows(state, label.token_ids[:-1])]
        return token_logprobs(self._tokenizer, rows, label.token_ids, self._task.top_logprobs)


def score_labels(stepper: Stepper, start: Position, labels: Sequence[Label], end_ids: Iterable[int]) -> list[float]:
    """The score of each label, a natural logarithm; the state at `start` stays as it was.

    Raises Interrupted, GenerationFailed.
    """
    first, ends = (start.row, log_normalizer(start.row)), sorted(end_ids)
    rows_after = iter(start.branches or _branches(stepper, start.state, labels))
    scores: list[float] = []
    for label in labels:
        rows = next(rows_after) if label.token_ids else ()
        predictions = [first, *((row, log_normalizer(row)) for row in rows)]
        wanted = [*([token] for token in label.token_ids), ends]
        scores.append(sum(map(_logprob_of_any, predictions, wanted)))
    return scores


def _logprob_of_any(prediction: tuple[Logits, float], token_ids: Sequence[int]) -> float:
    """The log of the summed probability of some tokens, given a position's logits and their normaliser."""
    logits, normalizer = prediction
    return float(np.logaddexp.reduce(logits[token_ids].astype(np.float64))) - normalizer


def choose(task: Task, labels: Sequence[Label], scores: Sequence[float]) -> tuple[Label, dict[str, float]]:
    """The chosen label and the probability of every label, normalised over the labels.

    Greedy takes the most probable (the first of equals); otherwise the label is drawn at the task's temperature, with
    its seed.
    """
    weights = tempered(np.array(scores), 1.0)
    probabilities = weights / weights.sum()
    shares = {label.text: float(share) for label, share in zip(labels, probabilities, strict=True)}
    if task.temperature < GREEDY_BELOW:
        return labels[int(np.argmax(scores))], shares
    random = np.random.default_rng(task.seed)
    return labels[pick(random, tempered(np.array(scores), task.temperature))], shares


def continuations_of(labels: Sequence[Label]) -> list[Sequence[int]]:
    """What is to be read of the labels: the tokens of those that have any."""
    return [label.token_ids for label in labels if label.token_ids]


def _branches(stepper: Stepper, state: OwnState, labels: Sequence[Label]) -> Iterator[Sequence[Logits]]:
    """The logits after each token of each continuation: `len(label)` rows of shape `[vocab_size]`."""
    for batch in _batches(continuations_of(labels), stepper.model.piece_tokens):
        yield from stepper.branches(state, batch)


def _batches(continuations: Sequence[Sequence[int]], limit: int) -> Iterator[list[Sequence[int]]]:
    """Consecutive ones that one pass takes: at most `limit` tokens, each counted as long as the longest."""
    batch: list[Sequence[int]] = []
    for tokens in continuations:
        if batch and (len(batch) + 1) * max(map(len, [*batch, tokens])) > limit:
            yield batch
            batch = []
        batch.append(tokens)
    if batch:
        yield batch

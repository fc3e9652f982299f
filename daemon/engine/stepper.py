"""The model one bounded step at a time, with the stop check before every step and the logits checked after it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.engine.sampling import check_logits
from daemon.engine.types import BranchingModel, Logits, Model, OwnState, StopCheck


class Interrupted(Exception):
    """The stop check asked to end the generation."""


class Stepper:
    """The model, with the stop check before every call and the logits checked after it."""

    def __init__(self, model: Model, stop: StopCheck) -> None:
        self.model = model
        self._stop = stop

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """One call of the port with at most `piece_tokens` tokens.

        Raises Interrupted, and GenerationFailed where the logits are no numbers.
        """
        self.ask()
        rows = self.model.extend(state, token_ids, logits)
        check_logits(rows)
        return rows

    def ask(self) -> None:
        """Raise Interrupted where the stop check says so."""
        if self._stop():
            raise Interrupted

    def pieces(self, token_ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """The tokens in as few pieces as one call each may be given."""
        size = self.model.piece_tokens
        return (token_ids[begin : begin + size] for begin in range(0, len(token_ids), size))

    def rows(self, state: OwnState, token_ids: Sequence[int]) -> list[Logits]:
        """Append any number of tokens and return the logits after each, shape `[vocab_size]`."""
        return [row for piece in self.pieces(token_ids) for row in self.extend(state, piece, "all")]

    def branches(self, state: OwnState, continuations: Sequence[Sequence[int]]) -> Sequence[Sequence[Logits]]:
        """The logits after each token of each continuation of `state`, which stays as it was.

        In one pass where the model can do that and `piece_tokens` allows it, else in one for each continuation.
        """
        together = self._together(state, (), continuations)
        if together is None:
            return [self.rows(self.model.fork(state), continuation) for continuation in continuations]
        return together[1]

    def start(self, state: OwnState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> "Position":
        """Append the prompt's tokens (at least one): where an answer begins that may be one of `continuations`.

        These are read in the same pass as the prompt's last piece, where there are any and they fit.
        """
        *heads, last = self._prompt_pieces(state.length, token_ids, _padded(continuations))
        for piece in heads:
            self.extend(state, piece, "none")
        together = self._together(state, last, continuations)
        if together is None:
            return Position(state, self.extend(state, last, "last")[0])
        return Position(state, together[0][0], together[1])

    def _together(
        self, state: OwnState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> tuple[Logits, Sequence[Sequence[Logits]]] | None:
        """One call of the port's `branches`; None where there are none, they are too many or the model has no such."""
        fitting = 0 < _padded(continuations) <= self.model.piece_tokens - len(token_ids)
        if not fitting or not isinstance(self.model, BranchingModel):
            return None
        self.ask()
        last, branches = self.model.branches(state, token_ids, continuations)
        for rows in (last, *branches):
            check_logits(rows)
        return last, [list(rows) for rows in branches]

    def feed(self, state: OwnState, token_ids: Sequence[int]) -> Logits:
        """Append any number of tokens (at least one) and return the logits after the last, shape `[vocab_size]`."""
        return self.start(state, token_ids, ()).row

    def _prompt_pieces(self, start: int, token_ids: Sequence[int], beside: int) -> Iterable[Sequence[int]]:
        """The tokens behind the first `start`, in pieces; the last has room for `beside` more if no pass is added."""
        size = self.model.piece_tokens
        if not self.model.exact:
            return _aligned(start, token_ids, size)
        return _evenly(token_ids, size, beside if beside < size else 0)


def _evenly(token_ids: Sequence[int], size: int, beside: int) -> Iterator[Sequence[int]]:
    """In as few pieces as can be, none of them much shorter than the others: each reads all weights."""
    rows = len(token_ids) + beside
    step = -(-rows // -(-rows // size))
    return (token_ids[begin : begin + step] for begin in range(0, len(token_ids), step))


def _aligned(start: int, token_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """In pieces that end at multiples of `size` from position 0.

    So the same prompt is always computed in the same pieces, whatever part of it a cache held.
    """
    begin = 0
    while begin < len(token_ids):
        end = begin + size - (start + begin) % size
        yield token_ids[begin:end]
        begin = end


def _padded(continuations: Sequence[Sequence[int]]) -> int:
    """Rows of continuations, each counted as long as the longest."""
    return len(continuations) * max(map(len, continuations), default=0)


@dataclass(frozen=True)
class Position:
    """Where the answer begins: a state that holds the prompt, and the logits after it, shape `[vocab_size]`.

    `branches`: the logits after each token of each continuation, if they were read with the prompt.
    """

    state: OwnState
    row: Logits
    branches: Sequence[Sequence[Logits]] = ()

"""The decode loop on the model port. Every call of the model is bounded in time and preceded by the stop check."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.engine.answer import Answer
from daemon.engine.constrain import Constrainer
from daemon.engine.logprobs import token_logprobs
from daemon.engine.sampling import Sampler, check_logits
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import BranchingModel, Logits, Model, OwnState, Source, StopCheck, Task, TokenLogprob


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

    def rows(self, state: OwnState, token_ids: Sequence[int]) -> list[Logits]:
        """Append any number of tokens and return the logits after each, shape `[vocab_size]`."""
        size = self.model.piece_tokens
        pieces = (token_ids[begin : begin + size] for begin in range(0, len(token_ids), size))
        return [row for piece in pieces for row in self.extend(state, piece, "all")]

    def branches(self, state: OwnState, continuations: Sequence[Sequence[int]]) -> Sequence[Sequence[Logits]]:
        """The logits after each token of each continuation of `state`, which stays as it was.

        In one pass where the model can do that and `piece_tokens` allows it, else in one for each continuation.
        """
        padded = len(continuations) * max(map(len, continuations), default=0)
        if not isinstance(self.model, BranchingModel) or not 0 < padded <= self.model.piece_tokens:
            return [self.rows(self.model.fork(state), continuation) for continuation in continuations]
        self.ask()
        branches = self.model.branches(state, continuations)
        for rows in branches:
            check_logits(rows)
        return [list(rows) for rows in branches]

    def feed(self, state: OwnState, token_ids: Sequence[int]) -> Logits:
        """Append any number of tokens (at least one) and return the logits after the last, shape `[vocab_size]`.

        The pieces end at multiples of `piece_tokens` from position 0, so that the same prompt is always computed in
        the same pieces, whatever part of it a cache held.
        """
        *heads, last = _pieces(state.length, token_ids, self.model.piece_tokens)
        for piece in heads:
            self.extend(state, piece, "none")
        row: Logits = self.extend(state, last, "last")[0]
        return row


def _pieces(start: int, token_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    begin = 0
    while begin < len(token_ids):
        end = begin + size - (start + begin) % size
        yield token_ids[begin:end]
        begin = end


@dataclass(frozen=True)
class Position:
    """Where the answer begins: a state that holds the prompt, and the logits after it, shape `[vocab_size]`."""

    state: OwnState
    row: Logits


class Decoding:
    """One answer's decode loop: forced tokens are taken as they are, the others drawn one by one."""

    def __init__(
        self, stepper: Stepper, tokenizer: Tokenizer, task: Task, constrainer: Constrainer, answer: Answer
    ) -> None:
        self._stepper = stepper
        self._tokenizer = tokenizer
        self._task = task
        self._constrainer = constrainer
        self._answer = answer
        self._sampler = Sampler(task)
        self._pending: list[int] = []

    def run(self, start: Position) -> Literal["stop", "length"]:
        """Decode until an end. Raises Interrupted, GenerationFailed."""
        self._state, self._row = start.state, start.row
        while True:
            self._take_forced()
            if self._constrainer.complete or self._answer.stopped:
                return "stop"
            if self._remaining == 0:
                return "length"
            if self._draw() in self._tokenizer.end_ids:
                return "stop"

    @property
    def _remaining(self) -> int:
        return self._task.max_new_tokens - self._answer.token_count

    def _draw(self) -> int:
        row = self._next_row()
        token = self._sampler.draw(row, self._constrainer.allowed())
        if token in self._tokenizer.end_ids:
            self._answer.add_end_token()
            return token
        self._constrainer.accept(token)
        self._pending.append(token)
        self._answer.add((token,), self._logprobs([row], (token,)))
        return token

    def _take_forced(self) -> None:
        """Forced tokens wait in `_pending` for the next pass; asked for log-probabilities, they are computed now."""
        forced = self._constrainer.take_forced(self._remaining)
        if not forced:
            return
        if not self._task.logprobs:
            self._pending += forced
            self._answer.add(forced, (), Source.FORCED)
            return
        size = self._stepper.model.piece_tokens
        for begin in range(0, len(forced), size):
            chunk = forced[begin : begin + size]
            self._answer.add(chunk, self._logprobs(self._rows_of(chunk), chunk), Source.FORCED)

    def _rows_of(self, chunk: Sequence[int]) -> list[Logits]:
        """The logits that predict each token of `chunk`, which is appended (its last token stays pending)."""
        first = self._next_row()
        self._pending = [chunk[-1]]
        return [first, *self._stepper.rows(self._state, chunk[:-1])]

    def _next_row(self) -> Logits:
        """The logits that predict the next token, after the pending tokens went through the model."""
        if self._pending:
            self._row = self._stepper.feed(self._state, self._pending)
            self._pending = []
        return self._row

    def _logprobs(self, rows: Sequence[Logits], token_ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
        if not self._task.logprobs:
            return ()
        return token_logprobs(self._tokenizer, rows, token_ids, self._task.top_logprobs)

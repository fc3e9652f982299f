"""The decode loop on the model port. Every call of the model is bounded in time and preceded by the stop check."""

from collections.abc import Sequence
from typing import Literal

from daemon.engine.answer import Answer
from daemon.engine.constrain import Constrainer
from daemon.engine.logprobs import token_logprobs
from daemon.engine.sampling import Sampler
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.track import Track
from daemon.engine.types import Logits, Source, Task, TokenLogprob


class Decoding:
    """One answer's decode loop: forced tokens are taken as they are, the others drawn one by one."""

    def __init__(
        self, track: Track, tokenizer: Tokenizer, task: Task, constrainer: Constrainer, answer: Answer
    ) -> None:
        self._track = track
        self._tokenizer = tokenizer
        self._task = task
        self._constrainer = constrainer
        self._answer = answer
        self._sampler = Sampler(task)

    def run(self) -> Literal["stop", "length"]:
        """Decode until an end. Raises Interrupted, GenerationFailed."""
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
        row = self._track.row(self._remaining)
        token = self._sampler.draw(row, self._constrainer.allowed())
        if token in self._tokenizer.end_ids:
            self._answer.add_end_token()
            return token
        self._constrainer.accept(token)
        source = Source.DRAFTED if self._track.append((token,)) else Source.SAMPLED
        self._answer.add((token,), self._logprobs([row], (token,)), source)
        return token

    def _take_forced(self) -> None:
        """Forced tokens go through the model with the next token; asked for log-probabilities, they do so now."""
        forced = self._constrainer.take_forced(self._remaining)
        if not forced:
            return
        if not self._task.logprobs:
            self._track.append(forced)
            self._answer.add(forced, (), Source.FORCED)
            return
        for piece, rows in self._track.append_known(forced):
            self._answer.add(piece, self._logprobs(rows, piece), Source.FORCED)

    def _logprobs(self, rows: Sequence[Logits], token_ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
        if not self._task.logprobs:
            return ()
        return token_logprobs(self._tokenizer, rows, token_ids, self._task.top_logprobs)

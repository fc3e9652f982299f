"""An answer in the making: tokens in, events with certain text out."""

from collections.abc import Sequence

from daemon.engine.stops import StopMatcher
from daemon.engine.text import TextStream
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.types import Emit, Source, TextEvent, TokenLogprob


class Answer:
    """Decodes tokens, looks for stop strings and emits events; the events' texts joined are always `text`."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], emit: Emit) -> None:
        self._tokenizer = tokenizer
        self._characters = TextStream()
        self._matcher = StopMatcher(stops)
        self._emit = emit
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self.token_count = 0

    @property
    def text(self) -> str:
        """All text emitted so far."""
        return "".join(self._texts)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """The log-probabilities of all tokens so far, in order; the end token has none."""
        return tuple(self._logprobs)

    @property
    def stopped(self) -> bool:
        """True once a stop string was found."""
        return self._matcher.stopped

    def add(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] = (), source: Source = Source.SAMPLED
    ) -> None:
        """Take one or more tokens, with their log-probabilities where asked for, and emit one event."""
        self.token_count += len(token_ids)
        self._logprobs += logprobs
        characters = self._characters.push(b"".join(map(self._tokenizer.token_bytes, token_ids)))
        self._send(TextEvent(self._matcher.push(characters), tuple(token_ids), tuple(logprobs), source))

    def add_end_token(self) -> None:
        """Count the end token, which is no text."""
        self.token_count += 1

    def finish(self) -> None:
        """Emit what was held back: an unfinished stop string, an unfinished character (as U+FFFD)."""
        text = self._matcher.push(self._characters.finish()) + self._matcher.finish()
        if text:
            self._send(TextEvent(text, ()))

    def _send(self, event: TextEvent) -> None:
        self._texts.append(event.text)
        self._emit(event)

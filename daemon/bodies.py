"""From the engine's results to the bodies of replies: OpenAI's objects under the model's public id."""

from collections.abc import Sequence

from daemon.admission import Admitted
from daemon.engine.types import Result, TokenLogprob
from daemon.errors import LeveretError
from schemas.replies import ContentLogprob, Head, Partial, Timings, TopLogprob, Usage, chat_error, to_json, usage


class AnswerBodies:
    """The bodies of one attempt: its chunks and its completion share one id and one time of creation."""

    def __init__(self, model_id: str, admitted: Admitted) -> None:
        self._head = Head.new(model_id)
        self._admitted = admitted
        self._first = True

    def chunk(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        """A chunk that adds `text`; the first one says whose it is."""
        first, self._first = self._first, False
        return to_json(self._head.chunk(text, self._logprobs(logprobs), first=first))

    def completion(self, result: Result) -> bytes:
        """The terminal body of an answer. `result` must not be an interrupted one (ValueError)."""
        if result.finish_reason == "interrupted":
            raise ValueError("an interrupted generation has no completion")
        completion = self._head.completion(
            result.text,
            finish_reason=result.finish_reason,
            usage=_usage(result),
            timings=Timings(
                queue_seconds=self._admitted.queue_seconds,
                prefill_seconds=result.timings.prefill_seconds,
                decode_seconds=result.timings.decode_seconds,
                tokens_per_second=result.timings.tokens_per_second,
            ),
            logprobs=self._logprobs(result.logprobs),
            label_probs=result.label_probs,
        )
        return to_json(completion)

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> tuple[ContentLogprob, ...] | None:
        return tuple(map(_content_logprob, logprobs)) if self._admitted.request.logprobs else None


class Bodies:
    """Builds the bodies of replies for one served model."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    def answer(self, admitted: Admitted) -> AnswerBodies:
        """The bodies of a new attempt at answering `admitted`."""
        return AnswerBodies(self._model_id, admitted)

    def error(self, error: LeveretError, interrupted: Result | None = None) -> bytes:
        """The terminal body of a request without an answer; `interrupted` is what had been generated, if anything."""
        partial = Partial(content=interrupted.text, usage=_usage(interrupted)) if interrupted else None
        body = chat_error(error.code, str(error), param=error.param, retryable=error.retryable, partial=partial)
        return to_json(body)


def _usage(result: Result) -> Usage:
    counts = result.usage
    return usage(counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)


def _content_logprob(entry: TokenLogprob) -> ContentLogprob:
    top = tuple(TopLogprob(token=other.token, bytes=tuple(other.bytes), logprob=other.logprob) for other in entry.top)
    return ContentLogprob(token=entry.token, bytes=tuple(entry.bytes), logprob=entry.logprob, top_logprobs=top)

"""From the engine's results to the bodies of replies: OpenAI's objects under the model's public id."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from daemon.admission import Admitted
from daemon.engine.types import Result, TokenLogprob
from daemon.errors import LeveretError


class Bodies:
    """Builds the bodies of chunks, completions and errors for one served model."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    def chunk_of(self, _: Admitted) -> Callable[[str, tuple[TokenLogprob, ...]], bytes]:
        """A builder for the chunks of one attempt; they share id and time of creation, the first names the role."""
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion.chunk", "created": int(time.time())}
        delta: dict[str, Any] = {"role": "assistant"}

        def build(text: str, logprobs: tuple[TokenLogprob, ...]) -> bytes:
            choice = {"index": 0, "delta": delta | {"content": text}, "finish_reason": None}
            delta.clear()
            return _json(head | {"model": self._model_id, "choices": [choice]})

        return build

    def completion(self, admitted: Admitted, result: Result) -> bytes:
        """The terminal body of an answer."""
        usage = result.usage
        return _json(
            {
                "id": f"chatcmpl-{uuid.uuid4().hex}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self._model_id,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": result.text},
                        "finish_reason": result.finish_reason,
                        "logprobs": None,
                    }
                ],
                "usage": {
                    "prompt_tokens": usage.prompt_tokens,
                    "completion_tokens": usage.completion_tokens,
                    "total_tokens": usage.prompt_tokens + usage.completion_tokens,
                    "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
                },
                "timings": {
                    "queue_seconds": admitted.queue_seconds,
                    "prefill_seconds": result.timings.prefill_seconds,
                    "decode_seconds": result.timings.decode_seconds,
                    "tokens_per_second": result.timings.tokens_per_second,
                },
            }
        )

    def partial(self, result: Result) -> dict[str, Any]:
        """What an interrupted generation got so far."""
        usage = result.usage
        counts = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }
        return {"content": result.text, "usage": counts}

    def error(self, error: LeveretError, partial: object) -> bytes:
        """The terminal body of a request that ended without an answer."""
        said = {"code": error.code, "message": str(error), "param": error.param, "retryable": error.retryable}
        return _json({"error": said, "partial": partial})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")

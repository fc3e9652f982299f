"""The replies: chunks, the completion and errors, as frozen models with OpenAI's shapes (contract, section 3).

The daemon writes them with `to_json`; a client reads them with `parse_reply`, which passes over fields that a later
version may add. Times are in seconds, probabilities are natural logarithms or plain fractions as the names say.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LEAST_LOGPROB = -9999.0
"""Stands for every log-probability below it, as in OpenAI's replies: JSON has no infinity."""

FinishReason = Literal["stop", "length"]


class ReplyType(StrEnum):
    """The AMQP property `type` of a reply; all but chunks are terminal."""

    CHUNK = "chat.chunk"
    COMPLETION = "chat.completion"
    ERROR = "chat.error"


class ErrorCode(StrEnum):
    """Every code that an error reply can carry."""

    INVALID_REQUEST = "invalid_request"
    MODEL_NOT_FOUND = "model_not_found"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    GENERATION_FAILED = "generation_failed"
    DELIVERY_LIMIT_EXCEEDED = "delivery_limit_exceeded"
    EXPIRED = "expired"


def _at_least(value: object) -> object:
    return LEAST_LOGPROB if isinstance(value, float) and value < LEAST_LOGPROB else value


def _sendable(value: object) -> object:
    """Text from an envelope may hold bytes that were not UTF-8; they are shown as escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


_Logprob = Annotated[float, BeforeValidator(_at_least)]
_Sendable = Annotated[str, BeforeValidator(_sendable)]
_Fraction = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[float, Field(ge=0)]
_ONE = Field(min_length=1, max_length=1)


def _is_none(value: object) -> bool:
    return value is None


class ReplyModel(BaseModel):
    """A part of a reply: frozen, without NaN and infinities."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, json_schema_serialization_defaults_required=True
    )


class TopLogprob(ReplyModel):
    """A token that the model could have taken; `bytes` are its UTF-8 bytes, which may be a part of a character."""

    token: str
    bytes: tuple[int, ...]
    logprob: _Logprob


class ContentLogprob(TopLogprob):
    """A token that the model did take, with the most probable ones at its position."""

    top_logprobs: tuple[TopLogprob, ...] = ()


class Logprobs(ReplyModel):
    """One entry for every token of the text beside it."""

    content: tuple[ContentLogprob, ...]
    refusal: None = None


class PromptTokensDetails(ReplyModel):
    """How many of the prompt's tokens came from the prompt cache."""

    cached_tokens: _Count


class Usage(ReplyModel):
    """Token counts; `completion_tokens` includes the end token where one was generated."""

    prompt_tokens: _Count
    completion_tokens: _Count
    total_tokens: _Count
    prompt_tokens_details: PromptTokensDetails


class Timings(ReplyModel):
    """Where the time went; `queue_seconds` is null where the request had no timestamp."""

    queue_seconds: _Seconds | None
    prefill_seconds: _Seconds
    decode_seconds: _Seconds
    tokens_per_second: Annotated[float, Field(ge=0)]


class Delta(ReplyModel):
    """The text that a chunk adds; the first chunk of an attempt also says whose it is."""

    role: Literal["assistant"] | None = Field(None, exclude_if=_is_none)
    content: str


class ChunkChoice(ReplyModel):
    """The only choice of a chunk. `finish_reason` is always null: the completion has it."""

    index: Literal[0] = 0
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: None = None


class ChatCompletionChunk(ReplyModel):
    """OpenAI's `chat.completion.chunk`. The contents of an attempt's chunks, joined, are the final text."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: Annotated[tuple[ChunkChoice, ...], _ONE]

    @property
    def text(self) -> str:
        """The text that this chunk adds."""
        return self.choices[0].delta.content


class AnswerMessage(ReplyModel):
    """The assistant's whole turn."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class CompletionChoice(ReplyModel):
    """The only choice of a completion; `label_probs` is there where the request had a `choice`."""

    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: Logprobs | None = None
    finish_reason: FinishReason
    label_probs: Mapping[str, _Fraction] | None = Field(None, exclude_if=_is_none)


class ChatCompletion(ReplyModel):
    """OpenAI's `chat.completion` with the whole text, and `timings` beside it."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: Annotated[tuple[CompletionChoice, ...], _ONE]
    usage: Usage
    timings: Timings

    @property
    def text(self) -> str:
        """The whole answer."""
        return self.choices[0].message.content


class ErrorDetail(ReplyModel):
    """What went wrong; `param` is the JSON path to blame, `retryable` whether the same request may succeed later."""

    code: ErrorCode
    message: _Sendable
    param: _Sendable | None = None
    retryable: bool


class Partial(ReplyModel):
    """What had been generated when a request ended early."""

    content: str
    usage: Usage


class ChatError(ReplyModel):
    """The body of a terminal error."""

    error: ErrorDetail
    partial: Partial | None = None


Reply = ChatCompletionChunk | ChatCompletion | ChatError

_MODELS: Mapping[ReplyType, type[Reply]] = {
    ReplyType.CHUNK: ChatCompletionChunk,
    ReplyType.COMPLETION: ChatCompletion,
    ReplyType.ERROR: ChatError,
}


@dataclass(frozen=True)
class Head:
    """What the chunks and the completion of one answer have in common; `created` is Unix time in whole seconds."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, model: str) -> "Head":
        """A fresh id, created now, by the model with this public id."""
        return cls(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model)

    def chunk(self, text: str, logprobs: Sequence[ContentLogprob] | None, *, first: bool) -> ChatCompletionChunk:
        """Build a chunk that adds `text`; `logprobs` None where they were not asked for."""
        delta = Delta(role="assistant" if first else None, content=text)
        choice = ChunkChoice(delta=delta, logprobs=_logprobs(logprobs))
        return ChatCompletionChunk(id=self.id, created=self.created, model=self.model, choices=(choice,))

    def completion(  # noqa: PLR0913 - what a completion consists of
        self,
        text: str,
        *,
        finish_reason: FinishReason,
        usage: Usage,
        timings: Timings,
        logprobs: Sequence[ContentLogprob] | None = None,
        label_probs: Mapping[str, float] | None = None,
    ) -> ChatCompletion:
        """Build the completion; `logprobs` None where they were not asked for, `label_probs` without a choice."""
        choice = CompletionChoice(
            message=AnswerMessage(content=text),
            logprobs=_logprobs(logprobs),
            finish_reason=finish_reason,
            label_probs=label_probs,
        )
        return ChatCompletion(
            id=self.id, created=self.created, model=self.model, choices=(choice,), usage=usage, timings=timings
        )


def _logprobs(entries: Sequence[ContentLogprob] | None) -> Logprobs | None:
    return None if entries is None else Logprobs(content=tuple(entries))


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """Build the token counts with their sum."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
    )


def chat_error(
    code: str, message: str, *, param: str | None, retryable: bool, partial: Partial | None = None
) -> ChatError:
    """Build an error. `code` must be one of ErrorCode (else ValueError)."""
    detail = ErrorDetail(code=ErrorCode(code), message=message, param=param, retryable=retryable)
    return ChatError(error=detail, partial=partial)


def to_json(reply: Reply) -> bytes:
    """Write a reply as strict JSON in UTF-8; characters beyond ASCII are kept as they are."""
    return reply.model_dump_json().encode()


def parse_reply(kind: str, body: bytes) -> Reply:
    """Read a reply by its `type`. Raises ValueError for an unknown type or a body of another shape."""
    return _MODELS[ReplyType(kind)].model_validate_json(body)

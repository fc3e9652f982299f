"""Admission: what is checked before any work, and the engine's task made from an admitted request."""

import time
from dataclasses import dataclass

from daemon.amqp_codec import UNDECODABLE
from daemon.bus import Envelope
from daemon.engine.types import Choice, Constraint, JsonObject, JsonSchema, Message, Regex, Task
from daemon.errors import InvalidRequest, ModelNotFound
from daemon.settings import Settings
from schemas.encoding import decode_body
from schemas.errors import RequestError
from schemas.request import ChatRequest, parse_request

TIMESTAMP_SECONDS = 1.0
"""Resolution of an AMQP timestamp."""


@dataclass(frozen=True)
class Admitted:
    """A valid request. `deadline` is monotonic seconds; `queue_seconds` None where the wait is unknown."""

    request: ChatRequest
    task: Task
    timeout: float
    deadline: float
    queue_seconds: float | None


class Admission:
    """Turns an envelope into an admitted request. Raises LeveretError naming field, value and what was expected."""

    def __init__(self, settings: Settings, model_id: str) -> None:
        self._settings, self._model_id = settings, model_id

    def admit(self, envelope: Envelope) -> Admitted:
        """Check envelope and body and work out the deadline."""
        waited = _waited(envelope.timestamp)
        self._check_envelope(envelope)
        request = self._parse(envelope)
        if request.model is not None and request.model != self._model_id:
            raise ModelNotFound(f"model: {request.model!r} is not served here; expected {self._model_id!r}", "model")
        timeout = request.timeout or self._settings.max_seconds
        deadline = timeout + (envelope.received_at if waited is None else time.monotonic() - _certain(waited))
        return Admitted(request, self._task(request), timeout, deadline, waited)

    def _check_envelope(self, envelope: Envelope) -> None:
        if UNDECODABLE in envelope.headers:
            raise InvalidRequest("headers: cannot be decoded; expected an AMQP table nested at most 64 deep", "headers")
        if self._settings.require_user_id and envelope.user_id is None:
            raise InvalidRequest("user_id: missing; this daemon demands the property user_id", "user_id")

    def _parse(self, envelope: Envelope) -> ChatRequest:
        try:
            body = decode_body(
                envelope.body,
                content_encoding=envelope.content_encoding,
                content_type=envelope.content_type,
                max_bytes=self._settings.max_body_bytes,
            )
            return parse_request(body, max_seconds=self._settings.max_seconds)
        except RequestError as error:
            raise InvalidRequest(str(error), error.param) from error

    def _task(self, request: ChatRequest) -> Task:
        messages = tuple(Message(message.role, message.content) for message in request.messages)
        if self._settings.system_prompt is not None and all(message.role != "system" for message in messages):
            messages = (Message("system", self._settings.system_prompt), *messages)
        return Task(
            messages=messages,
            max_new_tokens=request.max_new_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
            stop=tuple(request.stop),
            constraint=_constraint(request),
            logprobs=request.logprobs,
            top_logprobs=request.top_logprobs,
        )


def _waited(timestamp: float | None) -> float | None:
    """Seconds since the request was sent; a timestamp in the future counts as now."""
    return None if timestamp is None else max(0.0, time.time() - timestamp)


def _certain(waited: float) -> float:
    """The wait that is certain: a timestamp of whole seconds may be almost one second too early."""
    return max(0.0, waited - TIMESTAMP_SECONDS)


def _constraint(request: ChatRequest) -> Constraint | None:
    """The form that the answer must have; at most one of the two fields is set."""
    if (wanted := request.structured_outputs) is not None:
        return Regex(wanted.regex) if wanted.regex is not None else Choice(wanted.choice or ())
    if request.response_format is None or request.response_format.type == "text":
        return None
    schema = request.response_format.json_schema
    return JsonObject() if schema is None else JsonSchema(schema.schema_)

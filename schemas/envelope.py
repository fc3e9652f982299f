"""The AMQP envelope of requests, cancels and replies, for the published contract.

AsyncAPI has one place, `headers`, for what AMQP 0-9-1 calls basic properties and headers; each field says which it is.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.replies import ReplyType

_Id = Annotated[str, Field(max_length=255)]
_Trace = Annotated[str, Field(description="Header: W3C trace context; carried into logs and replies.")]


class EnvelopeModel(BaseModel):
    """Basic properties and headers of one kind of message; further ones are allowed and have no meaning."""

    model_config = ConfigDict(frozen=True)


class RequestEnvelope(EnvelopeModel):
    """How a request comes."""

    reply_to: _Id = Field(description="Property: the queue that the replies go to, or `amq.rabbitmq.reply-to`.")
    correlation_id: _Id = Field("", description="Property: echoed byte for byte; without it `message_id` is echoed.")
    message_id: _Id = Field("", description="Property: echoed where there is no `correlation_id`.")
    content_type: Literal["application/json"] = Field("application/json", description="Property; may be absent.")
    content_encoding: Literal["identity", "gzip"] = Field("identity", description="Property; may be absent.")
    expiration: str = Field("", pattern=r"^\d*$", description="Property: milliseconds that it may wait in the queue.")
    priority: int = Field(0, ge=0, le=255, description="Property; where the queue knows priorities.")
    timestamp: int = Field(0, description="Property: Unix seconds; `timeout` counts from here, else from the receipt.")
    user_id: _Id = Field("", description="Property: the publishing user; the broker verifies it.")
    traceparent: _Trace = ""
    tracestate: _Trace = ""


class CancelEnvelope(EnvelopeModel):
    """Which request to cancel; the body is ignored."""

    correlation_id: _Id = Field(
        description="Property: the request's `correlation_id`, or its `message_id` without one."
    )
    user_id: _Id = Field("", description="Property: the same as the request's, where it had one.")


class ReplyEnvelope(EnvelopeModel):
    """How a reply comes."""

    type: ReplyType = Field(description="Property: which of the three messages this is.")
    correlation_id: _Id = Field("", description="Property: the request's; absent where it had neither id.")
    message_id: _Id = Field(description="Property: unique; a copy of a reply has the same.")
    content_type: Literal["application/json"] = Field(description="Property.")
    timestamp: int = Field(description="Property: Unix seconds.")
    app_id: str = Field(pattern="^leveret/", description="Property: the daemon's name and version.")
    seq: int = Field(ge=0, description="Header: 0, 1, 2 … without a gap within an attempt.")
    attempt: int = Field(ge=1, description="Header: 1 on the first delivery, rising with every later one.")
    final: bool = Field(description="Header: true for the terminal message.")
    daemon: str = Field(description="Header: id of the daemon that answers.")
    traceparent: _Trace = ""
    tracestate: _Trace = ""

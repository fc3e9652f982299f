"""The published contract: an AsyncAPI 3.0 document, generated from the models.

It is written from the daemon's side, as AsyncAPI asks for: the daemon receives requests and cancels, and sends replies.
Source: AsyncAPI 3.0.0, and its AMQP bindings 0.3.0.
"""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from schemas import examples
from schemas.envelope import CancelEnvelope, ReplyEnvelope, RequestEnvelope
from schemas.names import REQUEST_QUEUE, cancel_exchange
from schemas.replies import ChatCompletion, ChatCompletionChunk, ChatError
from schemas.request import ChatRequest

_BINDING = "0.3.0"
_SCHEMAS = "#/components/schemas/"
_MESSAGES = "#/components/messages/"
_MODELS: list[tuple[type[BaseModel], JsonSchemaMode]] = [
    (ChatRequest, "validation"),
    (RequestEnvelope, "validation"),
    (CancelEnvelope, "validation"),
    (ReplyEnvelope, "validation"),
    (ChatCompletionChunk, "serialization"),
    (ChatCompletion, "serialization"),
    (ChatError, "serialization"),
]

_DESCRIPTION = """\
A small language model behind a RabbitMQ queue. A client publishes a request with `reply_to` and `correlation_id`, with
publisher confirms; it gets chunks where it asked for them, and exactly one terminal message that it should keep: the
first for its `correlation_id`. Every request that the broker has accepted ends in one, at the latest in an error."""


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: core_schema.CoreSchema | Any) -> bool:  # noqa: ANN401, ARG002
        return False


def document(version: str) -> dict[str, Any]:
    """Build the document for this version of the daemon, as plain JSON values."""
    _, definitions = models_json_schema(_MODELS, ref_template=f"{_SCHEMAS}{{model}}", schema_generator=_Untitled)
    return {
        "asyncapi": "3.0.0",
        "info": _info(version),
        "defaultContentType": "application/json",
        "servers": {"broker": {"host": "localhost:5672", "protocol": "amqp", "protocolVersion": "0.9.1"}},
        "channels": _channels(),
        "operations": _operations(),
        "components": {"messages": _messages(), "schemas": definitions["$defs"]},
    }


def _info(version: str) -> dict[str, Any]:
    return {
        "title": "Leveret",
        "version": version,
        "description": _DESCRIPTION,
        "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
    }


def _channels() -> dict[str, Any]:
    cancel = cancel_exchange(REQUEST_QUEUE)
    queue = {"name": REQUEST_QUEUE, "durable": True, "exclusive": False, "autoDelete": False, "vhost": "/"}
    fanout = {"name": cancel, "type": "fanout", "durable": True, "autoDelete": False, "vhost": "/"}
    default = {"name": "", "type": "default", "vhost": "/"}
    return {
        "requests": {
            "address": REQUEST_QUEUE,
            "description": "A durable quorum queue, published to through the default exchange.",
            "messages": _refs("request"),
            "bindings": {"amqp": {"is": "queue", "queue": queue, "bindingVersion": _BINDING}},
        },
        "cancels": {
            "address": cancel,
            "description": "A durable fanout exchange; every daemon listens.",
            "messages": _refs("cancel"),
            "bindings": {"amqp": {"is": "routingKey", "exchange": fanout, "bindingVersion": _BINDING}},
        },
        "replies": {
            "address": None,
            "description": "The queue that the request names in `reply_to`, through the default exchange.",
            "messages": _refs("chunk", "completion", "error"),
            "bindings": {"amqp": {"is": "routingKey", "exchange": default, "bindingVersion": _BINDING}},
        },
    }


def _operations() -> dict[str, Any]:
    replies = {
        "address": {"location": "$message.header#/reply_to", "description": "The request's `reply_to`."},
        "channel": {"$ref": "#/channels/replies"},
        "messages": _channel_refs("replies", "chunk", "completion", "error"),
    }
    return {
        "answer": {
            "action": "receive",
            "summary": "Answer a chat request.",
            "description": "The request is acked once the broker has confirmed the terminal message.",
            "channel": {"$ref": "#/channels/requests"},
            "messages": _channel_refs("requests", "request"),
            "reply": replies,
            "bindings": {"amqp": {"ack": True, "bindingVersion": _BINDING}},
        },
        "cancel": {
            "action": "receive",
            "summary": "Cancel a request, running, queued or yet to come.",
            "channel": {"$ref": "#/channels/cancels"},
            "messages": _channel_refs("cancels", "cancel"),
            "bindings": {"amqp": {"ack": False, "bindingVersion": _BINDING}},
        },
    }


def _messages() -> dict[str, Any]:
    return {
        "request": _message("request", "A chat request", ChatRequest, RequestEnvelope, examples.REQUESTS),
        "chunk": _message("chunk", "Text as it comes", ChatCompletionChunk, ReplyEnvelope, examples.CHUNKS),
        "completion": _message(
            "completion", "The answer; terminal", ChatCompletion, ReplyEnvelope, examples.COMPLETIONS
        ),
        "error": _message("error", "No answer, and why; terminal", ChatError, ReplyEnvelope, examples.ERRORS),
        "cancel": _message("cancel", "A cancel", None, CancelEnvelope, examples.CANCELS),
    }


def _message(
    name: str,
    summary: str,
    payload: type[BaseModel] | None,
    envelope: type[BaseModel],
    shown: list[examples.Example],
) -> dict[str, Any]:
    """Replies carry their kind in the AMQP property `type`; a body without a model is ignored."""
    kind = shown[0]["headers"].get("type")
    binding = {"bindingVersion": _BINDING} | ({} if kind is None else {"messageType": kind})
    return {
        "name": name,
        "summary": summary,
        "contentType": "application/json",
        "correlationId": {"location": "$message.header#/correlation_id"},
        "headers": _ref(envelope),
        "payload": {"description": "Ignored."} if payload is None else _ref(payload),
        "bindings": {"amqp": binding},
        "examples": shown,
    }


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"{_SCHEMAS}{model.__name__}"}


def _refs(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"{_MESSAGES}{name}"} for name in names}


def _channel_refs(channel: str, *names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]

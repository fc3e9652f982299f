"""Examples of every message, made with the models themselves, for the published contract."""

import json
from collections.abc import Mapping
from typing import Any

from schemas.replies import Head, Partial, Reply, Timings, chat_error, to_json, usage

Example = Mapping[str, Any]

_HEAD = Head("chatcmpl-6f1c2a8e5b0d4f3791c8e2d4a6b7c9f0", 1767225600, "Qwen/Qwen2.5-0.5B-Instruct")
_TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
_REQUEST_ENVELOPE = {
    "reply_to": "amq.gen-JzTY20BRgKO-HjmUJj0wLg",
    "correlation_id": "9b2f6d1e",
    "content_type": "application/json",
    "timestamp": 1767225600,
}


def _example(name: str, summary: str, headers: Mapping[str, Any], payload: object) -> Example:
    return {"name": name, "summary": summary, "headers": dict(headers), "payload": payload}


def _reply(name: str, summary: str, kind: str, seq: int, body: Reply) -> Example:
    headers = {
        "type": kind,
        "correlation_id": "9b2f6d1e",
        "message_id": f"4d0c7f2a9e8b4c61a5d3f0e1b2c3d4e{seq}",
        "content_type": "application/json",
        "timestamp": 1767225601,
        "app_id": "leveret/0.1.0",
        "seq": seq,
        "attempt": 1,
        "final": kind != "chat.chunk",
        "daemon": "host-1-4242-a1b2",
    }
    return _example(name, summary, headers, json.loads(to_json(body)))


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


_TIMINGS = Timings(queue_seconds=0.2, prefill_seconds=0.35, decode_seconds=0.28, tokens_per_second=28.6)

REQUESTS: list[Example] = [
    _example(
        "question",
        "A streamed question",
        _REQUEST_ENVELOPE | _TRACE,
        {"messages": _user("What is the capital of France?"), "stream": True, "max_new_tokens": 64, "temperature": 0},
    ),
    _example(
        "choice",
        "One of three labels, with their probabilities",
        _REQUEST_ENVELOPE | {"expiration": "60000", "user_id": "shop"},
        {
            "messages": [{"role": "system", "content": "Classify the mood."}, *_user("I love it!")],
            "structured_outputs": {"choice": ["positive", "neutral", "negative"]},
            "timeout": 30,
        },
    ),
    _example(
        "json",
        "An answer that follows a JSON schema",
        _REQUEST_ENVELOPE,
        {
            "messages": _user("Anna is 31. Extract name and age."),
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "person",
                    "schema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                        "required": ["name", "age"],
                        "additionalProperties": False,
                    },
                },
            },
        },
    ),
]

CHUNKS: list[Example] = [
    _reply("first", "The first chunk names the role", "chat.chunk", 0, _HEAD.chunk("Paris", None, first=True)),
    _reply("later", "Later ones only add text", "chat.chunk", 1, _HEAD.chunk(" is.", None, first=False)),
]

COMPLETIONS: list[Example] = [
    _reply(
        "answer",
        "The whole answer",
        "chat.completion",
        2,
        _HEAD.completion("Paris is.", finish_reason="stop", usage=usage(36, 4, 24), timings=_TIMINGS),
    ),
    _reply(
        "label",
        "The chosen label and the probabilities of all",
        "chat.completion",
        0,
        _HEAD.completion(
            "positive",
            finish_reason="stop",
            usage=usage(41, 2, 0),
            timings=_TIMINGS,
            label_probs={"positive": 0.93, "neutral": 0.05, "negative": 0.02},
        ),
    ),
]

ERRORS: list[Example] = [
    _reply(
        "refused",
        "A wrong field, by its JSON path",
        "chat.error",
        0,
        chat_error("invalid_request", "temperature: got 3, expected at most 2", param="temperature", retryable=False),
    ),
    _reply(
        "late",
        "The budget ran out; what was generated is kept",
        "chat.error",
        7,
        chat_error(
            "deadline_exceeded",
            "the budget of 30 s ran out while generating",
            param=None,
            retryable=True,
            partial=Partial(content="Once upon a", usage=usage(36, 3, 0)),
        ),
    ),
]

CANCELS: list[Example] = [
    _example("cancel", "Cancel one request", {"correlation_id": "9b2f6d1e", "user_id": "shop"}, ""),
]

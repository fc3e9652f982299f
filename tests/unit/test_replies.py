"""Reply bodies: OpenAI's shapes, strict JSON, and back again."""

import json
import math
from typing import Any

import pytest
from openai.types.chat import ChatCompletion as OpenAICompletion
from openai.types.chat import ChatCompletionChunk as OpenAIChunk

from daemon import errors
from schemas.replies import (
    LEAST_LOGPROB,
    ChatCompletion,
    ChatError,
    ContentLogprob,
    ErrorCode,
    Head,
    Partial,
    Timings,
    TopLogprob,
    chat_error,
    parse_reply,
    to_json,
    usage,
)

HEAD = Head("chatcmpl-0a", 1_700_000_000, "acme/tiny")
USAGE = usage(prompt_tokens=12, completion_tokens=3, cached_tokens=8)
TIMINGS = Timings(queue_seconds=None, prefill_seconds=0.1, decode_seconds=0.2, tokens_per_second=15.0)
TOP = TopLogprob(token="a", bytes=(97,), logprob=-0.25)  # noqa: S106 - of text
LOGPROB = ContentLogprob(
    token="\N{REPLACEMENT CHARACTER}",  # noqa: S106 - of text
    bytes=tuple("é".encode()[:1]),
    logprob=-math.inf,
    top_logprobs=(TOP,),
)


def completion(**fields: Any) -> ChatCompletion:
    return HEAD.completion("Grüße 👋", finish_reason="stop", usage=USAGE, timings=TIMINGS, **fields)


def test_completion_on_the_wire() -> None:
    """The whole body, field by field; characters beyond ASCII are kept, absent fields are absent."""
    body = to_json(completion())
    assert "Grüße 👋".encode() in body
    assert json.loads(body) == {
        "id": "chatcmpl-0a",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "acme/tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Grüße 👋", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
        "timings": {"queue_seconds": None, "prefill_seconds": 0.1, "decode_seconds": 0.2, "tokens_per_second": 15.0},
    }


def test_chunks_on_the_wire() -> None:
    """The first chunk names the role, later ones only add text."""
    first, second = (json.loads(to_json(HEAD.chunk("x", None, first=first))) for first in (True, False))
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": "x"}, "logprobs": None, "finish_reason": None}
    ]
    assert second["choices"][0]["delta"] == {"content": "x"}


def test_openai_reads_them() -> None:
    """The replies validate against the types of OpenAI's own package, log-probabilities and additions included."""
    whole = OpenAICompletion.model_validate_json(to_json(completion(logprobs=[LOGPROB], label_probs={"a": 1.0})))
    chunk = OpenAIChunk.model_validate_json(to_json(HEAD.chunk("x", [LOGPROB], first=True)))
    for choice in (whole.choices[0], chunk.choices[0]):
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        entry = choice.logprobs.content[0]
        assert (entry.token, entry.bytes, entry.logprob) == ("\N{REPLACEMENT CHARACTER}", [0xC3], LEAST_LOGPROB)
        assert (entry.top_logprobs[0].token, entry.top_logprobs[0].logprob) == ("a", -0.25)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cached_tokens == 8


def test_label_probabilities() -> None:
    """They stand in the choice, under the labels, and outside 0 … 1 they are a fault."""
    body = json.loads(to_json(completion(label_probs={"ja": 0.75, "nein": 0.25})))
    assert body["choices"][0]["label_probs"] == {"ja": 0.75, "nein": 0.25}
    with pytest.raises(ValueError, match="less than or equal to 1"):
        completion(label_probs={"ja": 1.5})


def test_errors_on_the_wire() -> None:
    """Every field is there, null or not; what had been generated is kept."""
    bare = chat_error("invalid_request", "stop[0]: got \udcff", param="stop[0]", retryable=False)
    assert json.loads(to_json(bare)) == {
        "error": {
            "code": "invalid_request",
            "message": "stop[0]: got \\udcff",
            "param": "stop[0]",
            "retryable": False,
        },
        "partial": None,
    }
    partial = Partial(content="so far", usage=USAGE)
    late = json.loads(to_json(chat_error("deadline_exceeded", "late", param=None, retryable=True, partial=partial)))
    assert late["error"]["param"] is None
    assert late["partial"]["content"] == "so far"
    assert late["partial"]["usage"]["total_tokens"] == 15


def test_error_codes_are_the_daemons() -> None:
    """Every code that the daemon's errors carry has its place in the enumeration, and none is spare."""
    raised = {error.code for error in errors.LeveretError.__subclasses__()}
    assert raised == {str(code) for code in ErrorCode}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_nan_goes_out(value: float) -> None:
    """JSON has neither NaN nor infinities: they are a fault before they are sent."""
    with pytest.raises(ValueError, match="finite"):
        Timings(queue_seconds=0, prefill_seconds=0, decode_seconds=0, tokens_per_second=value)
    with pytest.raises(ValueError, match="finite"):
        TopLogprob.model_validate(TOP.model_dump() | {"logprob": value})


def test_heads_are_unique() -> None:
    """Ids are `chatcmpl-` and hexadecimal digits, never the same twice; `created` is whole seconds."""
    heads = [Head.new("m") for _ in range(100)]
    assert len({head.id for head in heads}) == 100
    for head in heads:
        prefix, digits = head.id.split("-")
        assert prefix == "chatcmpl"
        assert int(digits, 16) >= 0
        assert type(head.created) is int


def test_replies_are_read_back() -> None:
    """What was written is read as the same value; a field of a later version is passed over."""
    replies = [
        ("chat.completion", completion(logprobs=[LOGPROB], label_probs={"a": 1.0})),
        ("chat.chunk", HEAD.chunk("x", [LOGPROB], first=True)),
        ("chat.error", chat_error("cancelled", "m", param=None, retryable=False)),
    ]
    for kind, reply in replies:
        body = json.loads(to_json(reply)) | {"added_later": 1}
        assert parse_reply(kind, json.dumps(body).encode()) == reply


@pytest.mark.parametrize(
    ("kind", "body"),
    [("chat.unknown", b"{}"), ("", b"{}"), ("chat.error", b"{}"), ("chat.chunk", b"[]"), ("chat.completion", b"\xff")],
)
def test_foreign_replies(kind: str, body: bytes) -> None:
    """A reply that is none of ours is a ValueError for the client to handle."""
    with pytest.raises(ValueError, match=r"valid|Chat"):
        parse_reply(kind, body)


def test_texts() -> None:
    """Both kinds of answer give their text."""
    assert HEAD.chunk("a", None, first=False).text == "a"
    assert completion().text == "Grüße 👋"
    assert isinstance(
        parse_reply("chat.error", to_json(chat_error("expired", "", param=None, retryable=True))), ChatError
    )

"""The published contract: up to date, accepted by AsyncAPI's own parser, and in agreement with the models."""

import json
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from daemon import __version__
from schemas.asyncapi import document
from schemas.errors import RequestError
from schemas.replies import parse_reply, to_json
from schemas.request import ChatRequest, parse_request
from tests.support.node import ROOT, node_command

COMMITTED = ROOT / "deploy" / "docs" / "asyncapi.json"
CHECK = ROOT / "tests" / "support" / "check_asyncapi.cjs"
DOCUMENT = document(__version__)
MESSAGES: Mapping[str, Any] = DOCUMENT["components"]["messages"]
ERROR = 0
MESSAGE = {"role": "user", "content": "hi"}


def parser_says(value: object) -> dict[str, Any]:
    command, environment = node_command(CHECK)
    done = subprocess.run(
        command, input=json.dumps(value), env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def validate(instance: object, schema: Mapping[str, Any]) -> None:
    """Validate with the document as the root, so that its references lead somewhere."""
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(instance)


def test_the_committed_document_is_current() -> None:
    """Whoever changes a model has to publish it: `leveret schema > deploy/docs/asyncapi.json`."""
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == DOCUMENT


def test_the_command_prints_it() -> None:
    """`leveret schema` prints the document byte for byte as it is committed, and loads no settings for that."""
    program = [sys.executable, "-c", "from daemon.cli import main; main()", "schema"]
    done = subprocess.run(program, cwd=ROOT, env={"LEVERET_MAX_SECONDS": "no"}, capture_output=True, check=True)
    assert done.stdout == COMMITTED.read_bytes()


def test_the_official_parser_accepts_it() -> None:
    """No error and no warning; that a newer minor version of AsyncAPI exists is only information."""
    said = parser_says(DOCUMENT)
    assert said["version"] == "3.0.0"
    assert {finding["code"] for finding in said["diagnostics"]} <= {"asyncapi-latest-version"}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("operations.answer.channel.$ref", "#/channels/none"),
        ("channels.requests.bindings.amqp.is", "teapot"),
    ],
)
def test_the_official_parser_looks_at_it(place: str, value: str) -> None:
    """A dangling reference and a wrong binding are found, so its silence means something."""
    broken = deepcopy(DOCUMENT)
    *parents, last = place.split(".")
    holder: Any = broken
    for part in parents:
        holder = holder[int(part) if isinstance(holder, list) else part]
    holder[last] = value
    found = [finding for finding in parser_says(broken)["diagnostics"] if finding["severity"] == ERROR]
    assert any(finding["path"].startswith(place.rpartition(".")[0]) for finding in found), found


@pytest.mark.parametrize("name", list(MESSAGES))
def test_examples_validate(name: str) -> None:
    """Every example follows its message's schemas, envelope and body."""
    message = MESSAGES[name]
    assert message["examples"]
    for example in message["examples"]:
        validate(example["payload"], message["payload"])
        validate(example["headers"], message["headers"])


def test_request_examples_are_admitted() -> None:
    """The daemon takes every example of a request."""
    for example in MESSAGES["request"]["examples"]:
        assert parse_request(json.dumps(example["payload"]).encode(), max_seconds=300).messages


def test_reply_examples_are_replies() -> None:
    """Every example of a reply is read and written again without a change."""
    for name in ("chunk", "completion", "error"):
        for example in MESSAGES[name]["examples"]:
            body = json.dumps(example["payload"]).encode()
            reply = parse_reply(example["headers"]["type"], body)
            assert json.loads(to_json(reply)) == example["payload"]


def test_every_field_is_published() -> None:
    """Every field of a request is there, under each of its names, with a description; nothing else is admitted."""
    schema = DOCUMENT["components"]["schemas"]["ChatRequest"]
    assert set(schema["properties"]) == set(ChatRequest.names())
    assert schema["additionalProperties"] is False
    undescribed = [name for name, field in schema["properties"].items() if "description" not in field]
    assert undescribed == []


@pytest.mark.parametrize(
    "fields",
    [
        *({name: None} for name, required in ChatRequest.names().items() if not required),
        {"max_tokens": 256.0},
        {"stop": "x"},
        {"stop": []},
        {"seed": 2**63 - 1},
        {"temperature": 0},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": True, "strict": None}}},
        {"structured_outputs": {"choice": ["a", "b"], "regex": None}},
        {"logprobs": True, "top_logprobs": 20},
    ],
)
def test_schema_and_daemon_admit_the_same(fields: Mapping[str, Any]) -> None:
    """What the daemon admits, the published schema admits."""
    body = {"messages": [MESSAGE]} | dict(fields)
    assert parse_request(json.dumps(body).encode(), max_seconds=300)
    validate(body, MESSAGES["request"]["payload"])


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": None},
        {"messages": [{"role": "tool", "content": ""}]},
        {"messages": [MESSAGE | {"name": "x"}]},
        {"unknown": 1},
        {"max_completion_tokens": 2049},
        {"max_new_tokens": "256"},
        {"max_new_tokens": True},
        {"temperature": 2.1},
        {"top_p": 0},
        {"top_k": -1},
        {"seed": 2**63},
        {"seed": -1},
        {"stop": ""},
        {"stop": ["a"] * 9},
        {"stop": ["a" * 257]},
        {"timeout": 0},
        {"response_format": {"type": "xml"}},
        {"structured_outputs": {"choice": ["a"]}},
        {"top_logprobs": 21, "logprobs": True},
    ],
)
def test_schema_and_daemon_refuse_the_same(fields: Mapping[str, Any]) -> None:
    """What the daemon refuses for a single field, the published schema refuses."""
    body = {"messages": [MESSAGE]} | dict(fields)
    with pytest.raises(RequestError):
        parse_request(json.dumps(body).encode(), max_seconds=300)
    with pytest.raises(jsonschema.ValidationError):
        validate(body, MESSAGES["request"]["payload"])


def test_the_document_is_small_enough_to_read() -> None:
    """Only what the messages need: no schema that nothing refers to."""
    text = json.dumps(DOCUMENT)
    unused = [name for name in DOCUMENT["components"]["schemas"] if f'"#/components/schemas/{name}"' not in text]
    assert unused == []
    assert Path(COMMITTED).stat().st_size < 100_000

"""Request bodies: what is admitted, with which values, and what is refused, with which words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RequestError
from schemas.request import ChatRequest, parse_request

MESSAGES = [{"role": "user", "content": "hi"}]
JSON_SCHEMA = {"type": "object", "properties": {"a": {"default": None}}}


def parse(**fields: Any) -> ChatRequest:
    return parse_request(json.dumps({"messages": MESSAGES} | fields).encode(), max_seconds=300)


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    return caught.value


def test_defaults() -> None:
    """A body with messages alone gets the contract's defaults, `timeout` the daemon's."""
    request = parse_request(json.dumps({"messages": MESSAGES}).encode(), max_seconds=42)
    assert request.model is None
    assert request.max_new_tokens == 256
    assert (request.temperature, request.top_p, request.top_k, request.seed) == (0.7, 0.95, 0, None)
    assert (request.stop, request.stream, request.timeout) == ((), False, 42)
    assert (request.logprobs, request.top_logprobs) == (False, 0)
    assert request.response_format is None
    assert request.structured_outputs is None


@pytest.mark.parametrize("name", ["max_new_tokens", "max_tokens", "max_completion_tokens"])
def test_token_limit_has_three_names(name: str) -> None:
    """Each name sets the same field, and an error names the one that was used."""
    assert parse(**{name: 5}).max_new_tokens == 5
    assert refusal(**{name: 2049}).param == name


def test_only_one_name_of_the_token_limit() -> None:
    """Two names contradict each other even with one value; a null one is absent."""
    error = refusal(max_tokens=5, max_new_tokens=5)
    assert error.param == "max_tokens"
    assert "only one of max_new_tokens, max_tokens, max_completion_tokens" in str(error)
    assert parse(max_tokens=None, max_new_tokens=7).max_new_tokens == 7


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"max_new_tokens": 256.0}, "max_new_tokens", 256),
        ({"top_k": 40.0}, "top_k", 40),
        ({"seed": 2**63 - 1}, "seed", 2**63 - 1),
        ({"temperature": 2}, "temperature", 2.0),
        ({"temperature": 5e-324}, "temperature", 5e-324),
        ({"top_p": 1}, "top_p", 1.0),
        ({"timeout": 300}, "timeout", 300.0),
        ({"stop": "END"}, "stop", ("END",)),
        ({"stop": []}, "stop", ()),
        ({"stop": ["a", "b" * 256]}, "stop", ("a", "b" * 256)),
        ({"logprobs": True, "top_logprobs": 20}, "top_logprobs", 20),
    ],
)
def test_accepted_values(fields: dict[str, Any], name: str, value: object) -> None:
    """Values at their bounds are admitted; an integral float is an integer."""
    found = getattr(parse(**fields), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "name", sorted(set(ChatRequest.model_fields) - {"messages"} | {"max_tokens", "max_completion_tokens"})
)
def test_null_is_absent(name: str) -> None:
    """`null` in an optional field means that the field is absent."""
    assert parse(**{name: None}) == parse()


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_new_tokens": "256"}, "max_new_tokens", 'got "256", expected an integer'),
        ({"max_new_tokens": True}, "max_new_tokens", "got true, expected an integer"),
        ({"max_new_tokens": 2.5}, "max_new_tokens", "got 2.5, expected an integer"),
        ({"max_new_tokens": 0}, "max_new_tokens", "got 0, expected at least 1"),
        ({"temperature": "1"}, "temperature", 'got "1", expected a number'),
        ({"temperature": False}, "temperature", "got false, expected a number"),
        ({"temperature": -0.1}, "temperature", "got -0.1, expected at least 0"),
        ({"temperature": 3}, "temperature", "got 3, expected at most 2"),
        ({"top_p": 0}, "top_p", "got 0, expected more than 0"),
        ({"top_p": 1.01}, "top_p", "got 1.01, expected at most 1"),
        ({"top_k": -1}, "top_k", "got -1, expected at least 0"),
        ({"seed": 2**63}, "seed", "got 9223372036854775808, expected at most 9223372036854775807"),
        ({"seed": -1}, "seed", "got -1, expected at least 0"),
        ({"stop": ""}, "stop", 'got "", expected 1 or more characters'),
        ({"stop": [""]}, "stop[0]", 'got "", expected 1 or more characters'),
        ({"stop": ["END", ""]}, "stop[1]", 'got "", expected 1 or more characters'),
        ({"stop": ["a" * 257]}, "stop[0]", "expected at most 256 characters"),
        ({"stop": ["a"] * 9}, "stop", "expected at most 8 items"),
        ({"stop": 5}, "stop", "got 5, expected a string or a list of strings"),
        ({"stop": [5]}, "stop[0]", "got 5, expected a string"),
        ({"stream": 1}, "stream", "got 1, expected true or false"),
        ({"model": 5}, "model", "got 5, expected a string"),
        ({"timeout": 0}, "timeout", "got 0, expected more than 0"),
        ({"timeout": 300.5}, "timeout", "got 300.5, expected at most 300"),
        ({"logprobs": "yes"}, "logprobs", 'got "yes", expected true or false'),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "got 21, expected at most 20"),
        ({"top_logprobs": 1}, "top_logprobs", 'got 1, expected 0 without "logprobs": true'),
        ({"n": 1}, "n", "an unknown field, expected one of messages, model, max_new_tokens"),
        ({"n": None}, "n", "an unknown field"),
        ({"schema_": 1}, "schema_", "an unknown field"),
        ({"two words": 1}, '["two words"]', "an unknown field"),
    ],
)
def test_refused_values(fields: dict[str, Any], param: str, words: str) -> None:
    """The error names the place, the value found there and what was expected."""
    error = refusal(**fields)
    assert error.param == param
    assert str(error).startswith(f"{param}: ")
    assert words in str(error)


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([], "messages", "got [], expected 1 or more items"),
        (None, "messages", "got null, expected a list"),
        ({}, "messages", "got {}, expected a list"),
        ([5], "messages[0]", "got 5, expected an object"),
        ([*MESSAGES, {"role": "user"}], "messages[1].content", "missing"),
        ([{"content": "x"}], "messages[0].role", "missing"),
        ([{"role": "tool", "content": "x"}], "messages[0].role", "got \"tool\", expected 'system'"),
        ([{"role": "user", "content": None}], "messages[0].content", "got null, expected a string or a list"),
        ([{"role": "user", "content": 5}], "messages[0].content", "got 5, expected a string or a list"),
        ([{"role": "user", "content": "x", "name": "n"}], "messages[0].name", "expected one of role, content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", 'got "x", expected an object'),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "missing"),
        ([{"role": "user", "content": [{"type": "image", "text": ""}]}], "messages[0].content[0].type", "'text'"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "", "x": 1}]}],
            "messages[0].content[1].x",
            "an unknown field, expected one of type, text",
        ),
    ],
)
def test_refused_messages(messages: object, param: str, words: str) -> None:
    """Messages and their parts are named down to the part that is wrong."""
    error = refusal(messages=messages)
    assert error.param == param
    assert words in str(error)


def test_messages_are_required() -> None:
    """A body without messages is refused by name."""
    with pytest.raises(RequestError, match=r"^messages: missing") as caught:
        parse_request(b"{}", max_seconds=1)
    assert caught.value.param == "messages"


def test_text_parts_are_joined() -> None:
    """OpenAI's text parts become one string without a separator; empty content and NUL are text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "\0b"}]
    request = parse(messages=[{"role": "user", "content": parts}, {"role": "assistant", "content": ""}])
    assert [(message.role, message.content) for message in request.messages] == [("user", "a\0b"), ("assistant", "")]


def test_response_formats() -> None:
    """All three of OpenAI's formats; the schema is kept as plain JSON, its own nulls included."""
    assert parse(response_format={"type": "text"}).structured is False
    assert parse(response_format={"type": "json_object"}).structured is True
    for schema in (JSON_SCHEMA, True, False):
        body = {"name": "x", "schema": schema, "strict": True, "description": "d"}
        chosen = parse(response_format={"type": "json_schema", "json_schema": body}).response_format
        assert chosen is not None
        assert chosen.json_schema is not None
        assert chosen.json_schema.schema_ == schema


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ("json", "", "expected an object"),
        ({}, ".type", "missing"),
        ({"type": "xml"}, ".type", 'got "xml"'),
        ({"type": "json_schema"}, ".json_schema", "missing, expected an object"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, ".json_schema.schema", "missing"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, ".json_schema.name", "missing"),
        ({"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}, ".json_schema.name", 'got "a b"'),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": []}}, ".json_schema.schema", "a JSON schema"),
        ({"type": "text", "json_schema": {"name": "x", "schema": {}}}, ".json_schema", 'beside "text"'),
        ({"type": "text", "x": 1}, ".x", "an unknown field, expected one of type, json_schema"),
    ],
)
def test_refused_response_formats(value: object, place: str, words: str) -> None:
    """A format is refused where it does not have OpenAI's shape."""
    error = refusal(response_format=value)
    assert error.param == f"response_format{place}"
    assert words in str(error)


def test_structured_outputs() -> None:
    """`choice` and `regex` as vLLM names them; the other one may be null."""
    choice = parse(structured_outputs={"choice": ["a", "b"], "regex": None}).structured_outputs
    regex = parse(structured_outputs={"regex": "[0-9]+"}).structured_outputs
    assert choice is not None
    assert regex is not None
    assert (choice.choice, choice.regex, regex.choice, regex.regex) == (("a", "b"), None, None, "[0-9]+")


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ({}, "", "exactly one of choice, regex"),
        ({"choice": ["a", "b"], "regex": "a"}, "", "exactly one of choice, regex"),
        ({"choice": ["a"]}, ".choice", "2 or more items"),
        ({"choice": [str(n) for n in range(257)]}, ".choice", "at most 256 items"),
        ({"choice": ["a", "a"]}, ".choice", "labels that all differ"),
        ({"choice": ["a", 3]}, ".choice[1]", "got 3, expected a string"),
        ({"choice": "ab"}, ".choice", 'got "ab", expected a list'),
        ({"regex": 5}, ".regex", "got 5, expected a string"),
        ({"grammar": "x"}, ".grammar", "an unknown field, expected one of choice, regex"),
    ],
)
def test_refused_structured_outputs(value: object, place: str, words: str) -> None:
    """Exactly one of the two, with labels that can be told apart."""
    error = refusal(structured_outputs=value)
    assert error.param == f"structured_outputs{place}"
    assert words in str(error)


def test_fields_that_exclude_each_other() -> None:
    """Two prescribed forms, or a stop string beside one, are refused; no stop string is none."""
    both = refusal(structured_outputs={"regex": "a"}, response_format={"type": "text"})
    assert both.param == "structured_outputs"
    assert refusal(structured_outputs={"regex": "a"}, stop="x").param == "stop"
    assert refusal(response_format={"type": "json_object"}, stop=["x"]).param == "stop"
    assert parse(response_format={"type": "json_object"}, stop=[]).stop == ()
    assert parse(response_format={"type": "text"}, stop=["x"]).stop == ("x",)


def test_long_values_are_shortened() -> None:
    """Neither a long value nor a long key is echoed in full."""
    assert len(str(refusal(temperature="x" * 10_000))) < 200
    error = refusal(**{"k" * 10_000: 1})
    assert error.param is not None
    assert len(error.param) < 100


def test_requests_are_frozen() -> None:
    """A request never changes after it was checked."""
    with pytest.raises(ValueError, match="frozen"):
        parse().top_k = 3  # type: ignore[misc] # the very thing under test


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([*ChatRequest.model_fields, "max_tokens", "type", "json_schema", "schema", "choice", "regex"])
BODIES = st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON, max_size=3), max_size=5)


@given(st.binary() | (JSON | BODIES).map(lambda value: json.dumps(value).encode()))
def test_hostile_bodies_raise_nothing_else(body: bytes) -> None:
    """Whatever the body: a request, or a RequestError that can be sent as UTF-8."""
    try:
        assert parse_request(body, max_seconds=1).messages
    except RequestError as error:
        f"{error} {error.param}".encode()


@given(BODIES)
def test_hostile_fields_raise_nothing_else(fields: dict[str, Any]) -> None:
    """The same with valid messages, so that every other field is reached."""
    try:
        assert parse(**fields).messages
    except RequestError as error:
        f"{error} {error.param}".encode()

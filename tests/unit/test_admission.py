"""Admission: envelope checks, the budget, and the engine's task made from a request."""

import json
import time
from typing import Any

import pytest

from daemon.admission import Admission
from daemon.amqp_codec import UNDECODABLE
from daemon.bus import Envelope
from daemon.engine.types import Choice, JsonObject, JsonSchema, Message, Regex
from daemon.errors import InvalidRequest, LeveretError, ModelNotFound
from daemon.settings import Settings

ASK = {"messages": [{"role": "user", "content": "hi"}]}


def admission(**settings: Any) -> Admission:
    return Admission(Settings(_env_file=None, **settings), "org/model")


def envelope(fields: dict[str, Any] | None = None, **properties: Any) -> Envelope:
    return Envelope(json.dumps(ASK | (fields or {})).encode(), "r", **properties)


def refusal(envelope_: Envelope, **settings: Any) -> LeveretError:
    with pytest.raises(LeveretError) as caught:
        admission(**settings).admit(envelope_)
    return caught.value


def test_without_a_timestamp_the_budget_starts_at_receipt_and_the_wait_is_unknown() -> None:
    """AMQP timestamps are optional; a daemon must not invent a wait."""
    admitted = admission().admit(envelope({"timeout": 10}))
    assert admitted.queue_seconds is None
    assert admitted.deadline == pytest.approx(time.monotonic() + 10, abs=1)


@pytest.mark.parametrize(("age", "waited"), [(3.0, 3.0), (-1e6, 0.0), (1e9, 1e9)])
def test_the_wait_in_the_queue_counts_and_the_future_is_now(age: float, waited: float) -> None:
    """A requester's clock may be wrong in either direction."""
    admitted = admission().admit(envelope({"timeout": 10}, timestamp=time.time() - age))
    assert admitted.queue_seconds == pytest.approx(waited, abs=1)
    assert admitted.deadline - time.monotonic() == pytest.approx(10 - max(0.0, waited - 1), abs=0.5)  # whole seconds


def test_the_served_model_may_be_named_and_no_other() -> None:
    """A request for another model must not be answered by this one."""
    admission().admit(envelope({"model": "org/model"}))
    error = refusal(envelope({"model": "other"}))
    assert isinstance(error, ModelNotFound)
    assert error.param == "model"
    assert "'other'" in str(error)
    assert "'org/model'" in str(error)


def test_a_missing_user_is_refused_where_one_is_demanded() -> None:
    """REQUIRE_USER_ID is the authentication of the request."""
    error = refusal(envelope(), require_user_id=True)
    assert (error.code, error.param) == ("invalid_request", "user_id")
    admission(require_user_id=True).admit(envelope(user_id="alice"))


def test_undecodable_headers_are_refused_not_ignored() -> None:
    """Nothing is silently ignored."""
    error = refusal(envelope(headers={UNDECODABLE: True}))
    assert isinstance(error, InvalidRequest)
    assert error.param == "headers"


@pytest.mark.parametrize("roles", [["user"], ["user", "assistant"]])
def test_the_system_prompt_is_put_first_where_the_request_has_none(roles: list[str]) -> None:
    """SYSTEM_PROMPT never overrides a request's own system message."""
    messages = [{"role": role, "content": role} for role in roles]
    task = admission(system_prompt="be brief").admit(envelope({"messages": messages})).task
    assert task.messages[0] == Message("system", "be brief")
    own = [{"role": "system", "content": "own"}, *messages]
    assert admission(system_prompt="be brief").admit(envelope({"messages": own})).task.messages[0].content == "own"


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": True}}}, JsonSchema(True)),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
    ],
)
def test_the_form_of_the_answer_reaches_the_engine(fields: dict[str, Any], constraint: object) -> None:
    """A form that got lost on the way would yield free text."""
    assert admission().admit(envelope(fields)).task.constraint == constraint


def test_sampling_fields_reach_the_engine_unchanged() -> None:
    """The contract's defaults and the request decide, nothing else."""
    fields = {"max_tokens": 5, "temperature": 0, "top_p": 0.5, "top_k": 3, "seed": 7, "stop": "x"}
    task = admission().admit(envelope(fields | {"logprobs": True, "top_logprobs": 2})).task
    assert (task.max_new_tokens, task.temperature, task.top_p, task.top_k, task.seed) == (5, 0, 0.5, 3, 7)
    assert (task.stop, task.logprobs, task.top_logprobs) == (("x",), True, 2)

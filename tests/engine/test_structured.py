"""Structured output on the scripted model: grammars steer, forced tokens are not decoded, broken ones are refused."""

import json
import re
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from daemon.engine.constrain import GrammarCompiler
from daemon.engine.engine import Engine
from daemon.engine.grammar_guard import GrammarRefused, try_out
from daemon.engine.types import (
    Constraint,
    JsonObject,
    JsonSchema,
    Message,
    Regex,
    Result,
    Source,
    Task,
    TextEvent,
)
from daemon.errors import GenerationFailed, InvalidRequest
from tests.support.fake_engine import WrappedModel, load_float32, run
from tests.support.scripted_model import write_scripted_model

ASK = (Message("user", "q"),)
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Zoë", "東京"]}, "age": {"const": 7}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SLOW_TO_COMPILE = {"type": "string", "allOf": [{"pattern": f".*a{i}.*"} for i in range(200)]}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A model that always prefers a newline."""
    return load_float32(write_scripted_model(tmp_path_factory.mktemp("newline"), ["\n"], default="\n"))


def ask(engine: Engine, constraint: Constraint, **fields: Any) -> tuple[Result, list[TextEvent]]:
    settings: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 200, **fields}
    return run(engine, Task(ASK, constraint=constraint, **settings))


class CountingModel(WrappedModel):
    """Counts the calls of `extend`."""

    calls = 0

    def extend(self, *args: Any, **options: Any) -> Any:
        """As the port's."""
        self.calls += 1
        return super().extend(*args, **options)


def test_the_answer_validates_whatever_the_model_prefers(engine: Engine) -> None:
    """Guards the mask, with enum values that are not ASCII."""
    result, events = ask(engine, JsonSchema(PERSON))
    jsonschema.validate(json.loads(result.text), PERSON)
    assert result.finish_reason == "stop"
    assert "".join(event.text for event in events) == result.text


def test_forced_text_takes_no_pass_of_its_own(engine: Engine) -> None:
    """Guards against known text that is decoded token by token."""
    model = CountingModel(engine.model)
    schema = {"const": {"a": "x" * 40, "b": [1, 2, 3]}}
    result, events = ask(Engine(model, engine.tokenizer), JsonSchema(schema))
    assert json.loads(result.text) == schema["const"]
    assert [event.source for event in events] == [Source.FORCED] * len(events)
    assert result.usage.completion_tokens == len(result.text)
    assert model.calls == 1


def test_forced_tokens_between_choices_share_a_pass(engine: Engine) -> None:
    """Guards the number of passes: one for each token that the model chooses, none for what lies between."""
    model = CountingModel(engine.model)
    schema = {
        "type": "object",
        "properties": {"first": {"enum": ["a", "b"]}, "second": {"enum": ["c", "d"]}},
        "required": ["first", "second"],
        "additionalProperties": False,
    }
    result, events = ask(Engine(model, engine.tokenizer), JsonSchema(schema))
    assert [event.text for event in events] == ['{"first":"', result.text[10], '","second":"', result.text[-3], '"}']
    assert model.calls == 3  # the prompt, then the forced text before each choice


def test_logprobs_cover_forced_tokens_too(engine: Engine) -> None:
    """Guards alignment, and that forced tokens get the model's own probability, not 1."""
    result, events = ask(engine, JsonSchema(PERSON), logprobs=True, top_logprobs=1)
    assert len(result.logprobs) == result.usage.completion_tokens
    assert [len(event.logprobs) for event in events] == [len(event.token_ids) for event in events]
    assert b"".join(entry.bytes for entry in result.logprobs).decode() == result.text
    assert all(entry.logprob < -15 and entry.top[0].bytes == b"\n" for entry in result.logprobs)


def test_logprobs_do_not_change_the_answer(engine: Engine) -> None:
    """Guards the two ways of taking forced tokens: they end in the same text."""
    plain, with_logprobs = ask(engine, JsonSchema(PERSON))[0], ask(engine, JsonSchema(PERSON), logprobs=True)[0]
    assert plain.text == with_logprobs.text


@pytest.mark.parametrize("constraint", [JsonObject(), JsonSchema({"type": "array", "maxItems": 3}), JsonSchema(True)])
def test_white_space_is_bounded(constraint: Constraint, engine: Engine) -> None:
    """Guards against legal white space for ever, from a model that always prefers a newline."""
    result, _ = ask(engine, constraint, max_new_tokens=60)
    assert not re.search(r"\s", re.sub(r'"[^"]*"?', "", result.text))


def test_json_object_is_an_object(tmp_path: Path) -> None:
    """Guards the mode without a schema."""
    engine = load_float32(write_scripted_model(tmp_path, ["{", '"', "k", '":', "1", "}"]))
    result, _ = ask(engine, JsonObject())
    assert (result.text, result.finish_reason) == ('{"k":1}', "stop")


@pytest.mark.parametrize("limit", [1, 5, 12])
def test_an_answer_that_is_cut_off_says_so(limit: int, engine: Engine) -> None:
    """Guards against truncated JSON that passes as whole."""
    result, _ = ask(engine, JsonSchema(PERSON), max_new_tokens=limit)
    assert (result.finish_reason, result.usage.completion_tokens) == ("length", limit)
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.text)


def test_an_answer_that_just_fits_is_whole(engine: Engine) -> None:
    """Guards the limit: where nothing can follow, no end token is needed."""
    size = ask(engine, JsonSchema(PERSON))[0].usage.completion_tokens
    result, _ = ask(engine, JsonSchema(PERSON), max_new_tokens=size)
    assert result.finish_reason == "stop"
    jsonschema.validate(json.loads(result.text), PERSON)


@pytest.mark.parametrize(
    "pattern", ["[0-9]{4}-[0-9]{2}", "yes|no", "(ab)+c", r"\w+@\w+\.(com|org)", "é+漢", "", "a?", r"[^\n]{3}"]
)
def test_the_whole_answer_matches_the_pattern(pattern: str, engine: Engine) -> None:
    """Guards `regex`: the whole text, not a part of it."""
    result, _ = ask(engine, Regex(pattern), max_new_tokens=40, temperature=1.0, seed=1)
    if result.finish_reason == "stop":
        assert re.fullmatch(pattern, result.text)
    else:
        assert len(result.text.encode()) <= 40


def test_sampling_under_a_grammar_is_seeded(engine: Engine) -> None:
    """Guards the generator: forced tokens do not use it up, and the same seed gives the same answer."""
    schema = JsonSchema({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 5})
    texts = {ask(engine, schema, temperature=2.0, top_p=1.0, seed=seed)[0].text for seed in (1, 2, 1, 2)}
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strnig"}, "strnig"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"$ref": "https://example.org/schema"}, "example.org"),
        ({"$ref": "#"}, "requires itself"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"properties": [1]}, "properties"),
        ({"required": "a"}, "required"),
        ({"maxLength": "5"}, "maxLength"),
        ({"const": 10**400}, "beyond"),
        ({"enum": []}, "empty"),
        (False, "no answer"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, "oneOf"),
    ],
)
def test_broken_and_unsupported_schemas_are_refused_before_any_work(schema: Any, reason: str, engine: Engine) -> None:
    """Guards against a bad schema that kills, hangs or is silently ignored; an ordinary request succeeds afterwards."""
    with pytest.raises(InvalidRequest, match=re.escape(reason)) as caught:
        engine.check(Task(ASK, constraint=JsonSchema(schema)))
    assert caught.value.param == "response_format.json_schema.schema"
    assert json.loads(ask(engine, JsonSchema({"const": 1}))[0].text) == 1


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "a{5,2}", "(?<=a)b", r"\1", r"[^\s\S]"])
def test_broken_patterns_are_refused_before_any_work(pattern: str, engine: Engine) -> None:
    """Guards the regular expressions likewise."""
    with pytest.raises(InvalidRequest) as caught:
        engine.check(Task(ASK, constraint=Regex(pattern)))
    assert caught.value.param == "structured_outputs.regex"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 10**9},
        {"type": "string", "minLength": 10**6},
        {"type": "string", "pattern": "(a{1000}){1000}"},
        {"type": "array", "minItems": 10**6, "maxItems": 10**9, "items": {"type": "integer"}},
        {"type": "string", "pattern": "(.*a){200}"},
    ],
)
def test_huge_bounds_are_right_or_refused(schema: Any, engine: Engine) -> None:
    """Guards against bounds that are unrolled until the memory is full."""
    result, _ = ask(engine, JsonSchema(schema), max_new_tokens=20)
    assert result.finish_reason in ("stop", "length")
    assert result.text.startswith(('"', "["))


def test_a_schema_that_takes_minutes_to_compile_is_refused_in_seconds(engine: Engine) -> None:
    """Guards the compile limit; this schema was seen to take more than five minutes."""
    started = time.thread_time()
    with pytest.raises(InvalidRequest, match="seconds of processor time"):
        engine.check(Task(ASK, constraint=JsonSchema(SLOW_TO_COMPILE)))
    assert time.thread_time() - started < 2  # of this thread: the work was another process's


def test_a_crash_of_the_compiler_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the daemon against what would take its process down: the trial's process dies instead."""
    monkeypatch.setattr("daemon.engine.grammar_guard.__file__", _script(tmp_path, "import os; os.abort()"))
    with pytest.raises(GrammarRefused, match="processor time"):
        try_out("regex", "a")


def test_a_compiler_that_cannot_be_run_is_no_fault_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against an installation's fault that is blamed on the requester."""
    monkeypatch.setattr("daemon.engine.grammar_guard.__file__", _script(tmp_path, "raise ImportError('llguidance')"))
    with pytest.raises(RuntimeError, match="llguidance"):
        try_out("regex", "a")


def test_a_grammar_is_compiled_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the speed of repeated requests: the same schema is neither tried out nor compiled again."""
    compiler = GrammarCompiler(engine.tokenizer, engine.model.vocab_size)
    compiler.grammar(Regex("a+b")).accept(_byte(engine, "a"))
    monkeypatch.setattr("daemon.engine.constrain.build_matcher", _never)
    fresh = compiler.grammar(Regex("a+b"))
    assert not fresh.allowed()[_byte(engine, "b")]  # nothing of the first answer is left in it


def test_refusals_are_remembered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against paying for the same hopeless schema with every redelivery."""
    compiler = GrammarCompiler(engine.tokenizer, engine.model.vocab_size)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="unclosed"):
            compiler.grammar(Regex("("))
        monkeypatch.setattr("daemon.engine.constrain.try_out", _never)


def test_a_token_that_the_grammar_forbids_is_noticed(engine: Engine) -> None:
    """Guards against an answer that left the grammar unnoticed; the error does not quote the answer."""
    grammar = GrammarCompiler(engine.tokenizer, engine.model.vocab_size).grammar(Regex("secret"))
    with pytest.raises(GenerationFailed, match="cannot be followed") as caught:
        grammar.accept(_byte(engine, "x"))
    assert "secret" not in str(caught.value)


def test_escaped_names_do_not_pass_for_other_properties(engine: Engine) -> None:
    r"""Guards against `{"\u0066oo": "x"}`, which is the property foo with a value that its schema forbids."""
    compiler = GrammarCompiler(engine.tokenizer, engine.model.vocab_size)
    grammar = compiler.grammar(JsonSchema({"type": "object", "properties": {"foo": {"type": "integer"}}}))
    for character in '{"\\':
        grammar.accept(_byte(engine, character))
    assert not grammar.allowed()[_byte(engine, "u")]


def test_stop_strings_and_structured_output_exclude_each_other(engine: Engine) -> None:
    """Guards against an answer that is cut in the middle of a value."""
    with pytest.raises(InvalidRequest) as caught:
        engine.check(Task(ASK, stop=("x",), constraint=JsonObject()))
    assert caught.value.param == "stop"


def _byte(engine: Engine, character: str) -> int:
    (token,) = engine.tokenizer.encode_continuation(character)
    return token


def _never(*_: object) -> None:
    raise AssertionError("this was to be remembered")


def _script(directory: Path, source: str) -> str:
    """A file with `source`, to stand in for the trial's own."""
    path = directory / "trial.py"
    path.write_text(source, "utf-8")
    return str(path)

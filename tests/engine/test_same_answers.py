"""Whatever ran before, a greedy answer consists of the same tokens: the prompt cache and guesses change none."""

from pathlib import Path
from typing import cast

import pytest

from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions, load_engine
from daemon.engine.prompt_cache import KeepableModel, PrefixCache
from daemon.engine.types import Choice, JsonSchema, Message, Task
from tests.support.fake_engine import run

INSTRUCTION = (
    "You sort messages to a shop and take fields out of them, word for word. Never invent an order number. "
    "Answer in the language of the message, be friendly and brief, and promise nothing. " * 4
)
TICKET = "Anna Miller ordered two Lumo 3 lamps to Leeds, number 48213, and asks where they are."
OTHER = "The app shows an error since the last update."
SCHEMA = {
    "type": "object",
    "properties": {"customer": {"type": "string", "maxLength": 20}, "number": {"type": "string", "maxLength": 8}},
    "required": ["customer", "number"],
    "additionalProperties": False,
}
Tokens = list[int]


def messages(text: str) -> tuple[Message, ...]:
    return (Message("system", INSTRUCTION), Message("user", text))


TASKS = {
    "text": Task(messages(f"Repeat this: {TICKET}"), 40, 0.0),
    "json": Task(messages(TICKET), 40, 0.0, constraint=JsonSchema(SCHEMA)),
    "label": Task(messages(TICKET), 8, 0.0, constraint=Choice(("billing", "delivery", "technical"))),
}


def tokens_of(engine: Engine, task: Task) -> tuple[Tokens, int]:
    """The answer's tokens, and how many of the prompt's were found in the cache."""
    result, events = run(engine, task)
    return [token for event in events for token in event.token_ids], result.usage.cached_tokens


def cached(engine: Engine) -> Engine:
    """An engine of the same model whose prompt cache is empty."""
    return Engine(engine.model, engine.tokenizer, PrefixCache(cast("KeepableModel", engine.model), 1 << 26))


def again(engine: Engine, task: Task) -> int:
    """The very same request before."""
    return tokens_of(engine, task)[1]


def half_shared(engine: Engine, task: Task) -> int:
    """Another request behind the same instruction before."""
    return tokens_of(engine, Task((*task.messages[:-1], Message("user", OTHER)), 20, 0.0))[1]


def cancelled(engine: Engine, task: Task) -> int:
    """The same request before, cancelled after some steps: in the prefill, or in the answer."""
    steps = iter([False] * 6)
    return engine.generate(task, lambda: next(steps, True), lambda _: None).usage.cached_tokens


def failed(engine: Engine, task: Task) -> int:
    """The same request before, which failed at its first tokens."""

    def emit(_: object) -> None:
        raise RuntimeError("as if the daemon had failed")

    with pytest.raises(RuntimeError):
        engine.generate(task, lambda: False, emit)
    return 0


def continued(engine: Engine, task: Task) -> int:
    """A conversation that goes on from the same request, and then the request once more."""
    result, _ = run(engine, task)
    turns = (*task.messages, Message("assistant", result.text), Message("user", OTHER))
    return tokens_of(engine, Task(turns, 10, 0.0))[1]


@pytest.fixture(scope="module")
def loaded(smollm2_dir: Path) -> dict[str, Engine]:
    """The real small model on both paths."""
    return {kind: load_engine(EngineOptions(smollm2_dir, kind, 1, 2048, 0)) for kind in ("int8", "float32")}


@pytest.mark.parametrize(("weights", "kind"), [*(("int8", kind) for kind in TASKS), ("float32", "label")])
def test_what_ran_before_changes_no_token(weights: str, kind: str, loaded: dict[str, Engine]) -> None:
    """Cold, warm, half-shared, after a cancel, after a failure, within a conversation; drafted where the model does."""
    task = TASKS[kind]
    cold, found = tokens_of(cached(loaded[weights]), task)
    assert (len(cold) > 0, found) == (True, 0)
    for before in (again, half_shared, cancelled, failed, continued):
        engine = cached(loaded[weights])
        before(engine, task)
        assert tokens_of(engine, task)[0] == cold, before.__doc__


def test_a_conversation_is_not_computed_again(smollm2_dir: Path) -> None:
    """Of the exact engine the answer is kept too: the next turn computes what is new, and no more."""
    engine = load_engine(EngineOptions(smollm2_dir, "int8", 2, 2048, 1 << 26))
    first = Task(messages(TICKET), 40, 0.0)
    result, _ = run(engine, first)
    found = continued(engine, first)
    assert found > result.usage.prompt_tokens + result.usage.completion_tokens / 2


def test_the_operators_system_prompt_is_computed_ahead(smollm2_dir: Path) -> None:
    """The first request behind it pays for its own words only, and gets the same answer."""
    engine = load_engine(EngineOptions(smollm2_dir, "int8", 2, 2048, 1 << 26))
    cold, _ = tokens_of(cached(engine), TASKS["json"])
    engine.warm(INSTRUCTION)
    tokens, found = tokens_of(engine, TASKS["json"])
    assert tokens == cold
    assert found > len(engine.tokenizer.encode_continuation(INSTRUCTION))

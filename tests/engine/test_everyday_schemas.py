"""Twenty schemas on the real small model, sampled: every finished answer parses and validates."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions, load_engine
from daemon.engine.types import JsonSchema, Message, Task
from tests.support.everyday_schemas import EVERYDAY_SCHEMAS
from tests.support.fake_engine import run

SEEDS = int(os.environ.get("LEVERET_TEST_SCHEMA_SEEDS", "2"))
"""How many seeds each schema is tried with; `make soak` takes ten."""
CUT_OFF_AT_MOST = 0.3
"""Share of answers that may run into the limit of tokens: the model is small."""
UNBOUNDED = {"date", "number", "tree"}
"""Of these all may: a time's and a number's fraction has any number of digits, a list any number of nodes."""
MANY = 10
"""With fewer seeds the share of one schema says nothing."""


@pytest.fixture(scope="module")
def engine(smollm2_dir: Path) -> Engine:
    """The engine as it is by default, with the fast weights."""
    return load_engine(EngineOptions(smollm2_dir, None, 2, 2048, 0))


@pytest.fixture(scope="module")
def finished() -> Iterator[list[bool]]:
    """Whether each answer of this module came to its end; when all schemas were tried, most must have."""
    answers: list[bool] = []
    yield answers
    whole = len(answers) == SEEDS * len(EVERYDAY_SCHEMAS)
    assert not whole or answers.count(False) <= CUT_OFF_AT_MOST * len(answers)


def strict(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """JSON objects that name nothing twice."""
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("name", EVERYDAY_SCHEMAS)
def test_finished_answers_validate(name: str, engine: Engine, finished: list[bool]) -> None:
    """Guards the promise: an answer parses and validates, or it says `length`."""
    schema = EVERYDAY_SCHEMAS[name]
    ask = (Message("user", f"Make up an example of this and answer in JSON: {name}."),)
    cut_off = 0
    for seed in range(SEEDS):
        task = Task(ask, max_new_tokens=150, temperature=0.9, top_p=0.95, seed=seed, constraint=JsonSchema(schema))
        result, events = run(engine, task)
        assert result.text == "".join(event.text for event in events)
        finished.append(result.finish_reason == "stop")
        if finished[-1]:
            answer = json.loads(result.text, object_pairs_hook=strict)
            jsonschema.Draft202012Validator(schema).validate(answer)
        else:
            cut_off += 1
    assert name in UNBOUNDED or SEEDS < MANY or cut_off <= max(1, CUT_OFF_AT_MOST * SEEDS)

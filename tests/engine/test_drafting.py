"""Prompt lookup: the same answers in fewer passes of the model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.engine.drafting import PromptLookup
from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions, load_engine
from daemon.engine.tokenizer import Tokenizer, load_tokenizer
from daemon.engine.types import JsonSchema, Logits, Message, OwnState, Source, Task, Timings
from tests.support.fake_engine import WrappedModel, run
from tests.support.scripted_model import write_scripted_model
from tests.support.successor_model import SuccessorModel

LETTERS = "abcde"
NO_TIMINGS = Timings(0, 0, 0)
COPY = "Repeat the following text word for word.\n\nAnna Miller ordered two Lumo 3 lamps to Leeds, number 48213."
SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {"customer": {"type": "string", "maxLength": 30}, "number": {"type": "string", "maxLength": 8}},
        "required": ["customer", "number"],
        "additionalProperties": False,
    }
)


class ChatteringModel(SuccessorModel):
    """Draws letters that depend on the two tokens before: what it says repeats itself, but not for ever."""

    def __init__(self, directory: Path, tokenizer: Tokenizer, randomness: int) -> None:
        super().__init__(directory, 512, 0.0)
        likely = [tokenizer.encode_continuation(letter)[0] for letter in LETTERS] + sorted(tokenizer.end_ids)
        self._table = np.full((7, 7, self.vocab_size), -30.0, np.float32)
        self._table[:, :, likely] = np.random.default_rng(randomness).normal(0, 3, (7, 7, len(likely)))
        self.calls = 0

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        self.calls += 1
        before = [0, 0, *state.ids]
        super().extend(state, token_ids, "none")
        seen = [*before, *token_ids]
        rows = [self._table[a % 7, b % 7] for a, b in zip(seen[len(before) - 1 :], seen[len(before) :], strict=False)]
        wanted = {"none": 0, "last": 1, "all": len(token_ids)}[logits]
        return np.array(rows[len(rows) - wanted :], np.float32).reshape(wanted, self.vocab_size)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scripted_model(tmp_path_factory.mktemp("model"), [*LETTERS])


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Greedy and sampled, short and long, with and without log-probabilities."""
    prompt = (Message("user", draw(st.text(LETTERS, max_size=40))),)
    limit, temperature = draw(st.integers(1, 60)), draw(st.sampled_from([0.0, 0.3, 1.0]))
    return Task(prompt, limit, temperature, seed=7, logprobs=draw(st.booleans()))


@given(task=tasks(), randomness=st.integers(0, 2**16))
@settings(max_examples=150, deadline=None)
def test_answers_are_the_same_with_and_without(directory: Path, task: Task, randomness: int) -> None:
    """Guards exactness: greedy and sampled, tokens, log-probabilities and reasons to end; never more passes."""
    tokenizer = load_tokenizer(directory)
    outcomes, calls = [], []
    for exact in (False, True):
        model = ChatteringModel(directory, tokenizer, randomness)
        model.exact = exact
        result, events = run(Engine(model, tokenizer), task)
        outcomes.append((replace(result, timings=NO_TIMINGS), [event.token_ids for event in events]))
        calls.append(model.calls)
    assert outcomes[0] == outcomes[1]
    assert calls[0] >= calls[1]


class CountingModel(WrappedModel):
    """Counts the calls, and the tokens in them."""

    calls = tokens = 0

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        self.calls += 1
        self.tokens += len(token_ids)
        return super().extend(state, token_ids, logits)


@pytest.fixture(scope="module")
def real(smollm2_dir: Path) -> Engine:
    """The small model on the fast engine, as it is served by default."""
    return load_engine(EngineOptions(smollm2_dir, "int8", 2, 2048, 0))


@pytest.mark.parametrize(
    "task",
    [
        Task((Message("user", COPY),), 60, 0.0),
        Task((Message("user", COPY),), 60, 0.9, seed=3, logprobs=True, top_logprobs=2),
        Task((Message("user", COPY),), 60, 0.0, constraint=SCHEMA),
        Task((Message("user", COPY),), 60, 0.0, constraint=SCHEMA, logprobs=True),
    ],
    ids=["greedy", "sampled, with logprobs", "grammar", "grammar, with logprobs"],
)
def test_on_the_real_model_too(task: Task, real: Engine) -> None:
    """Guards that a drafted run equals one without to the bit, on the kernels that verify several tokens at once."""
    outcomes = []
    for exact in (False, True):
        model = WrappedModel(real.model)
        model.exact = exact
        result, events = run(Engine(model, real.tokenizer), task)
        outcomes.append((replace(result, timings=NO_TIMINGS), [event.token_ids for event in events]))
    assert outcomes[0] == outcomes[1]


def test_copied_text_takes_few_passes(real: Engine) -> None:
    """Guards the point of it: what stands in the prompt comes several tokens a pass, and says that it was drafted."""
    model = CountingModel(real.model)
    result, events = run(Engine(model, real.tokenizer), Task((Message("user", COPY),), 60, 0.0))
    drafted = sum(len(event.token_ids) for event in events if event.source is Source.DRAFTED)
    assert drafted >= result.usage.completion_tokens / 2
    assert model.calls < result.usage.completion_tokens / 2


def test_drafts_that_are_never_right_stop() -> None:
    """Guards the price of guessing where it does not pay: of 1,000 tokens few are guessed at."""
    lookup = PromptLookup([1, 2, 3] * 10)
    guessed = 0
    for _ in range(300):
        lookup.append([1, 2, 3])
        drafts = lookup.draft(100)
        guessed += len(drafts)
        if drafts:
            lookup.judge(len(drafts), 0)
    assert 0 < guessed < 40


def test_drafts_that_are_right_again_come_back() -> None:
    """Guards against guessing that rests for good after some bad luck."""
    lookup = PromptLookup([1, 2, 3] * 10)
    for _ in range(10):
        if drafts := lookup.draft(100):
            lookup.judge(len(drafts), 0)
    lengths = []
    for _ in range(200):
        drafts = lookup.draft(100)
        if drafts:
            assert list(drafts) == ([1, 2, 3] * 2)[: len(drafts)]
            lookup.judge(len(drafts), len(drafts))
        lengths.append(len(drafts))
    assert lengths[-5:] == [5] * 5


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ([1, 2, 3, 4, 9, 2, 3], 10, [4, 9, 2, 3, 4]),
        ([1, 2, 3, 4, 5, 2, 3, 8, 1, 2, 3], 2, [4, 5]),
        ([2, 3, 4, 2, 3, 5, 2, 3], 1, [5]),
        ([1, 2, 3, 4, 9, 2, 3], 0, []),
        ([1, 2, 3], 5, []),
        ([1], 5, []),
        ([], 5, []),
        ([7, 7, 7, 7], 5, [7] * 5),
    ],
    ids=[
        "two tokens",
        "three before two",
        "the last place",
        "no room",
        "nothing before",
        "one token",
        "none",
        "itself",
    ],
)
def test_what_followed_before_is_guessed(text: list[int], limit: int, expected: list[int]) -> None:
    """Guards the look-up: the longest match first, then the latest, cut to the limit."""
    assert list(PromptLookup(text).draft(limit)) == expected


def test_the_reference_path_does_not_draft(smollm2_dir: Path) -> None:
    """Guards greedy answers of the float32 path: a matrix product of torch rounds by how many rows it has."""
    engine = load_engine(EngineOptions(smollm2_dir, "float32", 1, 2048, 0))
    _, events = run(engine, Task((Message("user", COPY),), 8, 0.0))
    assert not engine.model.exact
    assert {event.source for event in events} == {Source.SAMPLED}

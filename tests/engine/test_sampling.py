"""Choosing tokens: greedy, truncated, seeded, and safe at every bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.sampling import Sampler, largest
from daemon.engine.types import Logits, Task
from daemon.errors import GenerationFailed

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def task(**fields: float | None) -> Task:
    return Task((), **fields)  # type: ignore[arg-type] # each test names fields of its own


def drawn(logits: Logits, count: int = 200, **fields: float | None) -> set[int]:
    sampler = Sampler(task(seed=1, **fields))
    return {sampler.draw(logits) for _ in range(count)}


@pytest.mark.parametrize("temperature", [0, 0.0, -0.0, 1e-6, 1e-45, 5e-324, 9.9e-6])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    """Guards against division by zero, infinities and NaN below the greedy threshold."""
    assert drawn(LOGITS, temperature=temperature) == {1}


def test_equal_logits_go_to_the_first_when_greedy() -> None:
    """Guards against an argmax that differs from transformers'."""
    assert Sampler(task(temperature=0.0)).draw(np.zeros(5, np.float32)) == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"top_k": 2, "top_p": 1.0}, {1, 3}),
        ({"top_k": 99, "top_p": 1.0}, {0, 1, 2, 3}),
        ({"top_p": 1e-9}, {1}),
        ({"top_p": 0.5}, {1, 3}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
        ({"top_p": 0.6, "top_k": 2}, {1, 3}),
        ({"top_p": 0.5, "top_k": 2}, {1}),
    ],
)
def test_truncation_keeps_the_shortest_head(fields: dict[str, float], expected: set[int]) -> None:
    """Guards top-k and top-p, alone and together: top-p counts within what top-k left (0.4 of 0.7 is above 0.5)."""
    assert drawn(LOGITS, 200, temperature=1.0, **fields) == expected


def test_frequencies_follow_the_distribution() -> None:
    """Guards against a biased draw; the bounds are five standard deviations, and the seed is fixed."""
    sampler, count = Sampler(task(temperature=1.0, top_p=1.0, seed=3)), 20_000
    counts = np.bincount([sampler.draw(LOGITS) for _ in range(count)], minlength=4)
    expected = np.exp(LOGITS)
    assert np.all(np.abs(counts / count - expected) < 5 * np.sqrt(expected / count))


def test_a_flat_large_vocabulary_is_truncated_exactly() -> None:
    """Guards the short cut that sorts only the best candidates: here the top-p set is much larger than those."""
    logits = np.zeros(5000, np.float32)
    logits[4000:] = -50.0
    seen = drawn(logits, count=3000, temperature=1.0, top_p=0.95)
    assert max(seen) < 3900
    assert len(seen) > 1500


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_the_same_seed_draws_the_same_whatever_ran_before(seed: int) -> None:
    """Guards against a generator shared between requests."""
    first = Sampler(task(temperature=1.0, seed=seed))
    other = Sampler(task(temperature=1.0, seed=5))
    tokens = []
    for _ in range(50):
        tokens.append(first.draw(LOGITS))
        other.draw(LOGITS)
    again = Sampler(task(temperature=1.0, seed=seed))
    assert [again.draw(LOGITS) for _ in range(50)] == tokens


def test_without_a_seed_two_requests_differ() -> None:
    """Guards against a fixed default seed."""
    draws = [[Sampler(task(temperature=2)).draw(np.zeros(1000, np.float32)) for _ in range(8)] for _ in range(2)]
    assert draws[0] != draws[1]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_fail_the_request(bad: float) -> None:
    """Guards against a silent token 0 where the model broke down."""
    logits = LOGITS.copy()
    logits[2] = bad
    with pytest.raises(GenerationFailed, match="no numbers"):
        Sampler(task(temperature=0.0)).draw(logits)


def test_a_mask_that_allows_nothing_fails_the_request() -> None:
    """Guards against a token that the grammar forbids."""
    with pytest.raises(GenerationFailed, match="allows no token"):
        Sampler(task()).draw(LOGITS, np.zeros(4, np.bool_))


tasks = st.builds(
    task,
    temperature=st.floats(0, 2),
    top_p=st.floats(1e-9, 1),
    top_k=st.integers(0, 50),
    seed=st.integers(0, 2**63 - 1),
)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=40), tasks, st.integers(0, 39))
def test_every_bound_draws_an_allowed_token(values: list[float], settings: Task, forbidden: int) -> None:
    """Guards against overflow, an empty nucleus and forbidden tokens, over the whole range of the contract."""
    logits = np.array(values, np.float32)
    allowed = np.arange(len(values)) != forbidden
    token = Sampler(settings).draw(logits, allowed)
    assert 0 <= token < len(values)
    assert token != forbidden


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 40))
def test_the_largest_come_first(values: list[int], count: int) -> None:
    """Guards the order of candidates and of `top_logprobs`."""
    array = np.array(values, np.float32)
    ids = largest(array, count)
    assert [array[i] for i in ids] == sorted(values, reverse=True)[:count]
    assert len(set(ids)) == len(ids)

"""The prompt cache: what is found, what is kept, that nothing kept ever changes."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.prompt_cache import PrefixCache, prompt_cache
from daemon.engine.types import Logits
from tests.support.successor_model import Tokens

PIECE = 4
PROMPT = tuple(range(100, 111))
"""Two whole pieces and three tokens."""


class TokenModel:
    """Keeps tokens and computes nothing; a state of n tokens takes n bytes."""

    vocab_size = 1000
    context_tokens = 1000
    piece_tokens = PIECE
    shortens = True

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact

    def new_state(self) -> Tokens:
        """As the port says."""
        return Tokens()

    def extend(
        self,
        state: Tokens,
        token_ids: Sequence[int],
        logits: Literal["none", "last", "all"] = "last",  # noqa: ARG002 - the port's
    ) -> Logits:
        """As the port says."""
        state.ids += token_ids
        return np.zeros((0, self.vocab_size), np.float32)

    def truncate(self, state: Tokens, length: int) -> None:
        """As the port says."""
        if not self.shortens:
            raise RuntimeError("a recurrent state")
        del state.ids[length:]

    def fork(self, state: Tokens) -> Tokens:
        """As the port says."""
        return Tokens(list(state.ids))

    def state_bytes(self, length: int) -> int:
        """As `KeepableModel` says."""
        return length


def run(cache: PrefixCache, prompt: Sequence[int], answer: Sequence[int] = (7, 8, 9)) -> int:
    """One request as the engine makes it; how many tokens the cache saved."""
    state, cached = cache.acquire(prompt)
    assert isinstance(state, Tokens)
    assert state.ids == list(prompt[:cached])
    state.ids += [*prompt[cached:], *answer]
    cache.release(prompt, state)
    return cached


@pytest.fixture
def cache() -> PrefixCache:
    """Room for 100 tokens."""
    return PrefixCache(TokenModel(), 100)


def test_whole_pieces_are_found_again(cache: PrefixCache) -> None:
    """Only whole pieces make a warm run compute in the same calls as a cold one."""
    assert run(cache, PROMPT) == 0
    assert run(cache, PROMPT) == 8
    assert run(cache, (*PROMPT[:6], 1, 2, 3)) == 4
    assert run(cache, (1, *PROMPT)) == 0


def test_the_last_token_is_always_computed(cache: PrefixCache) -> None:
    """A prompt that is found as a whole would leave no logits to decode from."""
    run(cache, PROMPT[:8])
    assert run(cache, PROMPT[:8]) == 4
    assert run(cache, PROMPT[:9]) == 8


def test_decoded_tokens_are_not_kept(cache: PrefixCache) -> None:
    """They were computed one by one, which another model need not do to the same bits."""
    run(cache, PROMPT[:8], answer=(5, 6, 7, 8))
    assert run(cache, (*PROMPT[:8], 5, 6, 7, 8, 9)) == 8


def test_of_an_exact_model_everything_is_found_again() -> None:
    """Its logits do not depend on how tokens are divided among calls, so any beginning will do, an answer's too."""
    cache = PrefixCache(TokenModel(exact=True), 100)
    run(cache, PROMPT)
    assert run(cache, PROMPT) == 10
    assert run(cache, (*PROMPT[:6], 1)) == 6
    state, cached = cache.acquire(PROMPT)
    assert isinstance(state, Tokens)
    state.ids += [*PROMPT[cached:], 7, 8, 9]
    cache.release([*PROMPT, 7, 8], state)
    assert run(cache, (*PROMPT, 7, 8, 9, 1)) == 13


def test_a_kept_state_never_changes(cache: PrefixCache) -> None:
    """Users extend what they get; a cache that hands out its own state would hand out their answers next."""
    run(cache, PROMPT)
    for other in range(3):
        run(cache, (*PROMPT[:8], other, other, other, other, other))
    assert run(cache, (*PROMPT[:8], 0, 0, 0, 0, 1)) == 12


def test_a_cancelled_prefill_keeps_what_was_computed(cache: PrefixCache) -> None:
    """The engine gives back the part of the prompt that the state holds."""
    state, _ = cache.acquire(PROMPT)
    assert isinstance(state, Tokens)
    state.ids += PROMPT[:6]
    cache.release(PROMPT[:6], state)
    assert run(cache, PROMPT) == 4


def test_a_failed_request_leaves_the_cache_as_it_was(cache: PrefixCache) -> None:
    """After a failure nothing is given back; what was kept must not have been taken out."""
    run(cache, PROMPT)
    state, _ = cache.acquire(PROMPT)
    assert isinstance(state, Tokens)
    state.ids[:] = [0] * 50
    assert run(cache, PROMPT) == 8


def test_the_least_recently_used_goes_first() -> None:
    """The bound holds, and the instruction that every request begins with stays."""
    cache = PrefixCache(TokenModel(), 20)
    run(cache, (1,) * 9)
    run(cache, (2,) * 9)
    run(cache, (1,) * 9)
    run(cache, (3,) * 9)
    assert cache.used_bytes <= 20
    assert run(cache, (1,) * 9) == 8
    assert run(cache, (2,) * 9) == 0


def test_a_longer_prompt_replaces_its_beginning(cache: PrefixCache) -> None:
    """A conversation that grows would otherwise be kept once for each turn."""
    for end in range(4, 40, 4):
        run(cache, tuple(range(end)))
    assert cache.used_bytes == 36
    assert run(cache, tuple(range(8))) == 4
    assert cache.used_bytes == 36


def test_of_a_prompt_larger_than_the_bound_the_beginning_is_kept() -> None:
    """The beginning is what requests share."""
    cache = PrefixCache(TokenModel(), 10)
    run(cache, tuple(range(40)))
    assert cache.used_bytes == 8
    assert run(cache, tuple(range(40))) == 8


def test_a_prompt_shorter_than_a_piece_is_not_kept(cache: PrefixCache) -> None:
    """There is nothing of fixed shape in it."""
    run(cache, PROMPT[:3])
    assert cache.used_bytes == 0


def test_zero_bytes_and_states_that_cannot_be_shortened_mean_no_cache() -> None:
    """A recurrent model's state has no beginning to cut off; the daemon must start all the same."""
    model = TokenModel()
    assert prompt_cache(model, 0) is None
    assert isinstance(prompt_cache(model, 1), PrefixCache)
    model.shortens = False
    assert prompt_cache(model, 1) is None


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), max_size=25), st.integers(0, 60), st.booleans())
def test_whatever_runs_the_states_are_right_and_the_bound_holds(
    prompts: list[list[int]],
    bound: int,
    exact: bool,  # noqa: FBT001 - drawn
) -> None:
    """`run` compares each state with its prompt; prompts of two tokens share prefixes of all lengths."""
    cache = PrefixCache(TokenModel(exact=exact), bound)
    for prompt in prompts:
        assert run(cache, prompt) < len(prompt)
        assert cache.used_bytes <= bound

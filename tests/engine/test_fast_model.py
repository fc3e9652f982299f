"""The fast model against transformers on the same weights, and against itself however the tokens are divided."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from daemon.engine.fast_model import FastModel, load_fast_model
from daemon.engine.fast_state import FastState
from daemon.engine.quantize import KINDS
from daemon.engine.stepper import Stepper
from tests.support.tiny_models import (
    FAMILIES,
    VOCABULARY,
    make_network,
    quantize_network,
    reference_logits,
    save,
)
from tests.support.wait import block_until

CONTEXT = 256
TOKENS = np.random.default_rng(3).integers(0, VOCABULARY, 150).tolist()
"""More than two pages of keys and values."""


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tiny model for the tests that compare the engine with itself."""
    return save(make_network("qwen2"), tmp_path_factory.mktemp("qwen2"))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of weights."""
    return str(request.param)


@pytest.fixture(scope="module")
def model(model_dir: Path, kind: str) -> FastModel:
    """That model on two threads."""
    return load_fast_model(model_dir, kind, CONTEXT, 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_on_the_same_weights(family: str, kind: str, tmp_path: Path) -> None:
    """A wrong bias, norm, rotary scaling, head order, nibble order or padding would give other numbers."""
    network = make_network(family)
    fast = load_fast_model(save(network, tmp_path), kind, CONTEXT, 2)
    logits = fast.extend(fast.new_state(), TOKENS, "all")
    expected = reference_logits(quantize_network(network, kind), TOKENS)
    assert logits.shape == expected.shape
    assert np.abs(expected).max() > 1
    assert np.abs(logits - expected).max() < 1e-3


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 64])
def test_pieces_do_not_matter_to_the_bit(model: FastModel, size: int) -> None:
    """Cached, forced and drafted tokens are computed in other groups than decoded ones, and must not differ."""
    whole = model.extend(model.new_state(), TOKENS, "all")
    state = model.new_state()
    pieces = [model.extend(state, TOKENS[begin : begin + size], "all") for begin in range(0, len(TOKENS), size)]
    assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_does_not_matter_to_the_bit(
    model_dir: Path, kind: str, model: FastModel, threads: int
) -> None:
    """An answer must not change when the quota does."""
    other = load_fast_model(model_dir, kind, CONTEXT, threads)
    assert np.array_equal(
        other.extend(other.new_state(), TOKENS, "all"), model.extend(model.new_state(), TOKENS, "all")
    )


def test_only_the_wanted_logits_are_returned(model: FastModel) -> None:
    """`last` of a long prompt must be the last token's; `none` has no rows."""
    whole = model.extend(model.new_state(), TOKENS, "all")
    assert model.extend(model.new_state(), TOKENS, "none").shape == (0, VOCABULARY)
    last = model.extend(model.new_state(), TOKENS, "last")
    assert last.shape == (1, VOCABULARY)
    assert np.array_equal(last[0], whole[-1])


def test_logits_stay_when_the_next_ones_come(model: FastModel) -> None:
    """The port promises fresh memory: whoever keeps a row must not see it change."""
    state = model.new_state()
    first = model.extend(state, TOKENS[:4])
    kept = first.copy()
    model.extend(state, TOKENS[4:8])
    assert np.array_equal(first, kept)


def test_branches_equal_separate_continuations_and_leave_the_state(model: FastModel) -> None:
    """Labels scored together must get the scores that they get alone; the state must not move."""
    state = model.new_state()
    model.extend(state, TOKENS[:70], "none")
    continuations = [TOKENS[80:83], TOKENS[90:91], TOKENS[100:107]]
    nothing, together = model.branches(state, [], continuations)
    assert nothing.shape == (0, VOCABULARY)
    assert state.length == 70
    for continuation, rows in zip(continuations, together, strict=True):
        assert np.array_equal(rows, model.extend(model.fork(state), continuation, "all"))
    assert np.array_equal(model.extend(state, TOKENS[70:72]), model.extend(_fresh(model, 70), TOKENS[70:72]))


@pytest.mark.parametrize(("before", "after"), [(0, 20), (50, 60), (60, 64), (60, 70), (64, 128), (70, 71)])
def test_branches_read_with_the_prompt_are_as_behind_it(model: FastModel, before: int, after: int) -> None:
    """A label is read before the prompt's keys and values are whole: over a page's end, from a kept prefix, or both."""
    prefix = _fresh(model, before)
    state, behind = model.fork(prefix), model.fork(prefix)
    continuations = [TOKENS[80:83], TOKENS[90:91], TOKENS[100:107]]
    last, together = model.branches(state, TOKENS[before:after], continuations)
    assert state.length == after
    assert np.array_equal(last, model.extend(behind, TOKENS[before:after]))
    for rows, expected in zip(together, model.branches(behind, [], continuations)[1], strict=True):
        assert np.array_equal(rows, expected)
    for continued in (state, prefix):
        expected = model.extend(_fresh(model, continued.length), TOKENS[130:132])
        assert np.array_equal(model.extend(continued, TOKENS[130:132]), expected)


def test_branches_at_the_end_of_the_context_have_room(model: FastModel) -> None:
    """Side by side they take more room than the context has left, though none of them alone does."""
    state = _fresh(model, 140)
    model.extend(state, TOKENS[:110], "none")
    continuations = [TOKENS[begin : begin + 6] for begin in range(0, 120, 6)]
    assert state.length + sum(map(len, continuations)) > CONTEXT + 64
    for continuation, rows in zip(continuations, model.branches(state, [], continuations)[1], strict=True):
        assert np.array_equal(rows, model.extend(model.fork(state), continuation, "all"))
    assert len(state.pages) == 4


def test_forks_do_not_touch_each_other(model: FastModel) -> None:
    """Forks share pages: writing to a shared one would change the other's past."""
    state = model.new_state()
    model.extend(state, TOKENS[:100], "none")
    fork = model.fork(state)
    model.extend(fork, TOKENS[120:150], "none")
    model.extend(state, TOKENS[100:110], "none")
    model.truncate(fork, 90)
    model.extend(fork, TOKENS[90:95], "none")
    assert np.array_equal(model.extend(state, TOKENS[110:112]), model.extend(_fresh(model, 110), TOKENS[110:112]))
    assert np.array_equal(model.extend(fork, TOKENS[95:97]), model.extend(_fresh(model, 95), TOKENS[95:97]))


def test_a_truncated_state_is_as_if_it_had_never_been_longer(model: FastModel) -> None:
    """Rejected drafts are cut off; what they left behind in the page must not be seen."""
    state = model.new_state()
    model.extend(state, TOKENS[:130], "none")
    model.truncate(state, 60)
    assert state.length == 60
    assert np.array_equal(model.extend(state, TOKENS[60:75]), model.extend(_fresh(model, 60), TOKENS[60:75]))


@pytest.mark.parametrize("length", [1, 120, 128, 140])
def test_labels_beside_the_last_piece_are_read_as_behind_it(model: FastModel, length: int) -> None:
    """Where a prompt is divided depends on its length and on the labels; the answer must not."""
    labels = [[5, 6, 7], [8], [9, 10]]
    position = Stepper(model, lambda: False).start(model.new_state(), TOKENS[:length], labels)
    last, after = model.branches(_fresh(model, length - 1), TOKENS[length - 1 : length], labels)
    assert np.array_equal(position.row, last[0])
    assert len(position.branches) == len(labels)
    assert all(np.array_equal(rows, expected) for rows, expected in zip(position.branches, after, strict=True))


def test_what_does_not_fit_is_refused_and_changes_nothing(model: FastModel) -> None:
    """Beyond the context there is no memory to write to, and a wrong token would read somebody else's."""
    state = model.new_state()
    model.extend(state, TOKENS, "none")
    for bad, message in (
        (TOKENS, "exceed the context"),
        ([VOCABULARY], "vocabulary"),
        ([-1], "vocabulary"),
        ([], "no "),
    ):
        with pytest.raises(ValueError, match=message):
            model.extend(state, bad)
    with pytest.raises(ValueError, match="exceed the context"):
        model.branches(state, [1], [[1], TOKENS])
    assert state.length == len(TOKENS)
    assert np.array_equal(model.extend(state, [5]), model.extend(_fresh(model, len(TOKENS)), [5]))


def test_the_last_position_of_the_context_can_be_used(model: FastModel) -> None:
    """An off-by-one at the end would only show in the longest requests."""
    state = model.new_state()
    model.extend(state, (TOKENS * 2)[: CONTEXT - 1], "none")
    assert np.isfinite(model.extend(state, [1])).all()
    assert state.length == CONTEXT


def test_helper_threads_end_with_their_model(model_dir: Path) -> None:
    """A process that loads several models, as tests do, would otherwise collect sleeping threads."""
    before = _helpers()
    other = load_fast_model(model_dir, "int8", CONTEXT, 3)
    other.extend(other.new_state(), [1, 2, 3])
    assert _helpers() == before + 2
    del other
    gc.collect()
    block_until(lambda: _helpers() == before, description="the helper threads ended")


def _helpers() -> int:
    return sum(thread.name.startswith("leveret-compute") for thread in threading.enumerate())


def _fresh(model: FastModel, length: int) -> FastState:
    """A state of the first tokens, computed from nothing."""
    state = model.new_state()
    if length:
        model.extend(state, TOKENS[:length], "none")
    return state

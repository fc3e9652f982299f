"""How a prompt is divided among the model's calls."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.stepper import Stepper, _aligned, _evenly
from daemon.engine.types import Logits, Model, OwnState
from tests.support.fake_engine import WrappedModel
from tests.support.scripted_model import write_scripted_model
from tests.support.successor_model import SuccessorModel

SIZE = 16

lengths = st.integers(1, 100)


@given(length=lengths, beside=st.integers(0, 60))
def test_even_pieces_hold_all_tokens_and_are_as_few_as_can_be(length: int, beside: int) -> None:
    """Guards the prompt, the bound on a call's time, and against reading all weights for a token or two."""
    pieces = list(_evenly(range(length), SIZE, beside))
    assert list(chain(*pieces)) == list(range(length))
    assert all(0 < len(piece) <= SIZE for piece in pieces)
    assert len(pieces) <= -(-(length + beside) // SIZE)
    assert beside or len(pieces) == -(-length // SIZE)


@pytest.mark.parametrize(
    ("length", "beside", "sizes"),
    [
        (16, 0, [16]),
        (17, 0, [9, 8]),
        (40, 0, [14, 14, 12]),
        (10, 6, [10]),
        (12, 8, [10, 2]),
        (30, 6, [12, 12, 6]),
        (9, 40, [9]),
    ],
)
def test_the_last_even_piece_has_room_for_labels(length: int, beside: int, sizes: list[int]) -> None:
    """Guards the cost: labels are read beside the last piece, and no piece is a short one for their sake."""
    assert [len(piece) for piece in _evenly(range(length), SIZE, beside)] == sizes


@given(start=lengths, length=lengths)
def test_aligned_pieces_are_those_of_a_cold_run(start: int, length: int) -> None:
    """Guards greedy answers of a model that is not exact against what the prompt cache happens to hold."""
    start -= start % SIZE
    cold = list(_aligned(0, range(start + length), SIZE))
    warm = list(_aligned(start, range(start, start + length), SIZE))
    assert warm == cold[start // SIZE :]


class RecordingModel(WrappedModel):
    """Keeps the lengths of its calls, and says of itself what it is told to."""

    def __init__(self, model: Model, *, exact: bool) -> None:
        super().__init__(model)
        self.piece_tokens, self.exact, self.lengths = 4, exact, list[int]()

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        self.lengths.append(len(token_ids))
        return super().extend(state, token_ids, logits)


@pytest.mark.parametrize(
    ("exact", "labels", "lengths"),
    [(False, (), [4, 2]), (True, (), [3, 3]), (True, [[1]] * 5, [3, 3])],
    ids=["aligned", "even", "labels that fit beside no piece"],
)
def test_only_an_exact_models_prompt_goes_in_even_pieces(
    *, exact: bool, labels: Sequence[Sequence[int]], lengths: list[int], tmp_path: Path
) -> None:
    """Guards the choice between the two: of any other model a warm run would differ from a cold one."""
    write_scripted_model(tmp_path, ["a"])
    model = RecordingModel(SuccessorModel(tmp_path, 100, 0), exact=exact)
    state = model.new_state()
    Stepper(model, lambda: False).start(state, [1] * 4, ())
    model.lengths.clear()
    Stepper(model, lambda: False).start(state, [1] * 6, labels)
    assert model.lengths == lengths

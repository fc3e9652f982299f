"""How a prompt is divided among the model's calls."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.stepper import _aligned, _evenly

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

"""Bytes to text: whole characters only, nothing lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.text import TextStream

FAMILY = "👨‍👩‍👧"


def stream(pieces: list[bytes]) -> list[str]:
    decoder = TextStream()
    return [*(decoder.push(piece) for piece in pieces), decoder.finish()]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.binary(max_size=60), st.lists(st.integers(0, 1000), max_size=10))
def test_any_bytes_in_any_pieces_are_the_whole_decoded_at_once(data: bytes, places: list[int]) -> None:
    """Guards against pieces that decode differently from the whole: a character lost, doubled or replaced."""
    assert "".join(stream(cut(data, places))) == data.decode("utf-8", errors="replace")


@given(st.text(max_size=40), st.lists(st.integers(0, 1000), max_size=10))
def test_text_cut_inside_characters_comes_back_whole(text: str, places: list[int]) -> None:
    """Guards against U+FFFD where a token ends inside a character."""
    assert "".join(stream(cut(text.encode(), places))) == text


@pytest.mark.parametrize("text", ["é", "漢", "😀", FAMILY, "\ufffd", "\ufeff", "\x00"])
def test_a_character_is_held_back_until_its_last_byte(text: str) -> None:
    """Guards against half characters in a chunk, and against real U+FFFD, BOM and NUL being taken for damage."""
    out = stream([bytes([byte]) for byte in text.encode()])
    assert "".join(out) == text
    assert all(piece in ("", *text) for piece in out)


def test_an_unfinished_character_at_the_end_is_shown() -> None:
    """Guards against text that silently ends one token early."""
    assert stream([b"a", "😀".encode()[:3]]) == ["a", "", "\ufffd"]

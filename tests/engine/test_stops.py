"""Stop strings in a stream: none leaks, nothing before one is swallowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.engine.stops import StopMatcher

words = st.text(alphabet="ab", max_size=24)
stop_lists = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)


def matched(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    out = [matcher.push(piece) for piece in pieces]
    return [*out, matcher.finish()], matcher.stopped


def reference(stops: list[str], text: str) -> str:
    found = [position for stop in stops if (position := text.find(stop)) >= 0]
    return text[: min(found, default=len(text))]


@given(stop_lists, words, st.lists(st.integers(1, 5), max_size=24))
def test_every_cut_gives_the_text_before_the_earliest_stop(stops: list[str], text: str, widths: list[int]) -> None:
    """Guards against results that depend on where tokens end, with overlapping stop strings of every kind."""
    pieces, rest = [], text
    for width in widths:
        pieces.append(rest[:width])
        rest = rest[width:]
    out, stopped = matched(stops, [*pieces, rest])
    assert "".join(out) == reference(stops, text)
    assert stopped == any(stop in text for stop in stops)


@given(stop_lists, words)
def test_what_is_released_is_final(stops: list[str], text: str) -> None:
    """Guards against a stop string leaking in part: at no time is more out than the final text has."""
    matcher, out = StopMatcher(stops), ""
    for character in text:
        out += matcher.push(character)
        assert reference(stops, text).startswith(out)


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["END"], ["a E", "N", "D b"], ["a ", "", "", ""]),
        (["END"], ["a E", "N"], ["a ", "", "EN"]),
        (["lo w"], ["hello wor"], ["hel", ""]),
        (["abcd", "bc"], ["abc", "d"], ["", "", ""]),
        (["abcd", "bc"], ["abc", "x"], ["", "a", ""]),
        (["abcd", "bc"], ["abc"], ["", "a"]),
        ([], ["a", "b"], ["a", "b", ""]),
    ],
    ids=["over tokens", "cut off", "inside one token", "earlier wins", "earlier fails", "earlier unfinished", "none"],
)
def test_known_cases(stops: list[str], pieces: list[str], expected: list[str]) -> None:
    """Guards the cases that people reported: leaks over tokens, swallowed text, an unfinished prefix that vanishes."""
    assert matched(stops, pieces)[0] == expected


def test_an_empty_stop_string_is_refused() -> None:
    """Guards against an answer that ends before it begins."""
    with pytest.raises(ValueError, match="empty stop string"):
        StopMatcher(["END", ""])

"""Strict JSON and the encoding of bodies: hostile bytes are refused in words, at once and in bounded memory."""

import gzip
import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding import decode_body
from schemas.errors import RequestError
from schemas.strict_json import MAX_DEPTH, parse_json

LIMIT = 1_048_576


def refusal(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_json(body)
    return caught.value


def test_byte_order_mark() -> None:
    """One UTF-8 byte order mark is skipped, a second one is no JSON."""
    assert parse_json(b'\xef\xbb\xbf{"a": "\xc3\xa9"}') == {"a": "é"}
    assert refusal(b"\xef\xbb\xbf\xef\xbb\xbf{}").param is None


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "got nothing"),
        (b" \n", None, "got nothing"),
        (b"\xff{}", None, "byte 0xff at offset 0, expected JSON in UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', None, "expected JSON in UTF-8"),
        ('{"a": 1}'.encode("utf-16"), None, "expected JSON in UTF-8"),
        (b'{"messages":', None, "got the end of the body"),
        (b"{} x", None, 'got "x" at character 3'),
        (b'{"a": 01}', None, "expected valid JSON"),
        (b'{"a": "\n"}', None, "expected valid JSON"),
        (b'{"a": NaN}', "a", "got NaN, expected a finite number"),
        (b'{"a": [0, {"b": -Infinity}]}', "a[1].b", "got -Infinity"),
        (b'{"a": 1e999}', "a", "got 1e999, expected a number that a double can hold"),
        (b'{"a": ' + b"9" * 400 + b"}", "a", "expected a number that a double can hold"),
        (b'{"a": -' + b"9" * 100_000 + b"}", "a", "expected a number that a double can hold"),
        (b'{"a": 1, "a": 1}', "a", "got this key twice"),
        (b'{"x": [{"b c": 1, "b c": NaN}]}', 'x[0]["b c"]', "got this key twice"),
        (b'{"a": "x\\ud800"}', "a", 'got "x\\ud800", expected text without lone surrogates'),
        (b'{"a": "\\uDC00\\uD800"}', "a", "without lone surrogates"),
        (b'{"a": [{"\\udfff": 1}]}', 'a[0]["\\udfff"]', "without lone surrogates"),
    ],
)
def test_refused_json(body: bytes, param: str | None, words: str) -> None:
    """Each fault is refused with its place, and with words that can be sent."""
    error = refusal(body)
    assert error.param == param
    assert words in str(error)
    f"{error} {error.param}".encode()


def test_surrogate_pairs_are_text() -> None:
    """An escaped pair is one character."""
    assert parse_json(b'"\\ud83d\\ude00 \\\\ud800"') == "\N{GRINNING FACE} \\ud800"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_limit(opening: bytes, closing: bytes) -> None:
    """64 levels are admitted and 65 are not, whatever the interpreter's recursion limit is."""
    parse_json(opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH)
    error = refusal(opening * (MAX_DEPTH + 1) + b"1" + closing * (MAX_DEPTH + 1))
    assert "got nesting of 65 levels" in str(error)
    for depth in (1_000, 20_000, 1_000_000):
        assert "expected at most 64" in str(refusal(opening * depth))


def test_brackets_in_strings_do_not_nest() -> None:
    """Only brackets of the structure count."""
    text = "[{" * 100 + '"\\'
    assert parse_json(json.dumps([text, text]).encode()) == [text, text]


def test_long_strings_of_escapes() -> None:
    """A string of nothing but escapes, closed or not, is scanned without running out of stack."""
    assert parse_json(b'"' + b"\\\\" * 500_000 + b'"') == "\\" * 500_000
    assert refusal(b'"' + b"\\" * 1_000_001).param is None


@given(st.binary())
def test_any_bytes(body: bytes) -> None:
    """Any bytes give a value or a RequestError."""
    try:
        json.dumps(parse_json(body), allow_nan=False).encode()
    except RequestError as error:
        f"{error} {error.param}".encode()


@pytest.mark.parametrize(
    "content_type",
    [None, "", "application/json", "Application/JSON ; Charset=UTF-8", 'application/json; charset="utf-8"'],
)
def test_content_types(content_type: str | None) -> None:
    """JSON in UTF-8 however it is written; absent is fine."""
    assert decode_body(b"{}", None, content_type, LIMIT) == b"{}"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/json2", "application/json; charset=latin-1", "json", "\udcff"]
)
def test_refused_content_types(content_type: str) -> None:
    """Everything else is refused with its name."""
    with pytest.raises(RequestError, match=r"expected application/json") as caught:
        decode_body(b"{}", None, content_type, LIMIT)
    assert caught.value.param == "content_type"
    str(caught.value).encode()


def test_content_encodings() -> None:
    """Identity, gzip, and gzip in several members."""
    members = gzip.compress(b'{"a"') + gzip.compress(b": 1}")
    for encoding, body in [(None, b'{"a": 1}'), ("identity", b'{"a": 1}'), ("GZIP", members)]:
        assert decode_body(body, encoding, None, LIMIT) == b'{"a": 1}'
    with pytest.raises(RequestError, match='got "br", expected identity or gzip') as caught:
        decode_body(b"{}", "br", None, LIMIT)
    assert caught.value.param == "content_encoding"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        gzip.compress(b"{}")[:-1],
        gzip.compress(b"{}")[:5],
        gzip.compress(b"{}") + b"junk",
        gzip.compress(b"{}")[:-8] + bytes(8),
        zlib.compress(b"{}"),
    ],
)
def test_damaged_gzip(body: bytes) -> None:
    """Truncated, extended, altered or other data is refused, never taken in part."""
    with pytest.raises(RequestError, match="damaged gzip"):
        decode_body(body, "gzip", None, LIMIT)


def test_oversize_names_both_numbers() -> None:
    """A body of the limit passes, one byte more does not, compressed or not."""
    body = b"x" * LIMIT
    assert decode_body(body, None, None, LIMIT) == body
    assert decode_body(gzip.compress(body), "gzip", None, LIMIT) == body
    with pytest.raises(RequestError, match="got 1048577 bytes, expected at most 1048576"):
        decode_body(body + b"x", None, None, LIMIT)
    with pytest.raises(RequestError, match="hold 1048577 or more, expected at most 1048576"):
        decode_body(gzip.compress(body + b"x"), "gzip", None, LIMIT)


def test_gzip_bomb_stays_small() -> None:
    """Data that would expand to 1 GB costs a few times the limit, not a gigabyte."""
    packer = zlib.compressobj(level=9, wbits=31)
    megabyte = bytes(LIMIT)
    bomb = b"".join([*(packer.compress(megabyte) for _ in range(1024)), packer.flush()])
    assert len(bomb) < LIMIT
    tracemalloc.start()
    try:
        with pytest.raises(RequestError, match="expected at most 1048576"):
            decode_body(bomb, "gzip", None, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * LIMIT


@given(st.binary(), st.none() | st.text(), st.none() | st.text())
def test_any_envelope(body: bytes, encoding: str | None, content_type: str | None) -> None:
    """Any bytes under any name give bytes or a RequestError."""
    for name in (encoding, "gzip"):
        try:
            assert len(decode_body(body, name, content_type, LIMIT)) <= LIMIT
        except RequestError as error:
            str(error).encode()

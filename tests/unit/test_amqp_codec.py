"""The tolerant codec: no property that the broker accepts may break the connection of a reader."""

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, header

from daemon import amqp_codec

amqp_codec.install()

LONGEST = 255


def through(properties: commands.Basic.Properties) -> commands.Basic.Properties:
    """Write properties as a frame's payload and read them back."""
    read = header.ContentHeader()
    read.unmarshal(header.ContentHeader(properties=properties).marshal())
    return read.properties


@given(st.binary(min_size=1, max_size=LONGEST))
def test_ids_of_any_bytes_come_back_byte_for_byte(raw: bytes) -> None:
    """Read strictly, as pamqp does: one foreign id kills the connection again at every redelivery."""
    text = raw.decode("utf-8", "surrogateescape")
    assert through(commands.Basic.Properties(correlation_id=text)).correlation_id == text
    _, decoded = decode.METHODS["shortstr"](bytes([len(raw)]) + raw)
    assert decoded.encode("utf-8", "surrogateescape") == raw


@pytest.mark.parametrize("seconds", [2**63, 2**64 - 1, 253_402_300_800])
def test_a_time_beyond_the_calendar_is_the_far_future(seconds: int) -> None:
    """A timestamp beyond the year 9999 raises in pamqp, and the consumer then hears nothing more."""
    _, read = decode.METHODS["timestamp"](struct.pack(">Q", seconds))
    assert read == datetime.max.replace(tzinfo=UTC)


def test_a_plain_time_is_read_as_whole_seconds() -> None:
    """The protocol says seconds; pamqp guesses milliseconds above the year 2106."""
    for seconds in (0, 1_700_000_000, 2**32 + 5):
        assert decode.METHODS["timestamp"](struct.pack(">Q", seconds))[1].timestamp() == seconds


def nested_table(depth: int) -> bytes:
    table = struct.pack(">I", 0)
    for _ in range(depth):
        entry = b"\x01aF" + table
        table = struct.pack(">I", len(entry)) + entry
    return table


@pytest.mark.parametrize("table", [nested_table(20_000), struct.pack(">I", 8) + b"\x02\xff\xfeS\x00\x00\x00\x00"])
def test_headers_that_cannot_be_decoded_are_marked(table: bytes) -> None:
    """Deep nesting raises RecursionError, a foreign key UnicodeDecodeError; what follows must still be read."""
    consumed, headers = decode.METHODS["table"](table + b"rest")
    assert consumed == len(table)
    assert headers == {amqp_codec.UNDECODABLE: True}


def test_ordinary_headers_are_untouched() -> None:
    """The tolerant path must not change what everybody sends."""
    headers = {"x-delivery-count": 3, "traceparent": "00-ab-cd-01", "nested": {"a": [1, "b"]}}
    assert through(commands.Basic.Properties(headers=headers)).headers == headers


def test_too_long_a_string_is_refused_with_its_length() -> None:
    """255 bytes are the protocol's limit, in bytes and not in characters."""
    with pytest.raises(TypeError, match="256 bytes"):
        commands.Basic.Properties(correlation_id="é" * 128).marshal()

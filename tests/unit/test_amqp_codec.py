"""The tolerant codec: no property that the broker accepts may break the connection of a reader."""

import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, encode, header

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


def table_of(entries: bytes) -> bytes:
    return struct.pack(">I", len(entries)) + entries


DEEP = b"\x04deepF" + nested_table(20_000)
FOREIGN_KEY = b"\x04nestF" + table_of(b"\x02\xff\xfeS\x00\x00\x00\x00")
UNKNOWN_TYPE = b"\x01?Z"
COUNT = b"\x05countb\x03"


@pytest.mark.parametrize("entries", [DEEP, FOREIGN_KEY, DEEP + COUNT, COUNT + FOREIGN_KEY, COUNT + UNKNOWN_TYPE])
def test_headers_that_cannot_be_decoded_are_left_out_and_the_table_is_marked(entries: bytes) -> None:
    """Deep nesting raises RecursionError, a foreign key UnicodeDecodeError; `x-death` must still be read."""
    table = table_of(entries)
    consumed, headers = decode.METHODS["table"](table + b"rest")
    assert consumed == len(table)
    assert headers == {amqp_codec.UNDECODABLE: True} | ({"count": 3} if COUNT in entries else {})


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_for_a_table_are_read_without_an_error(entries: bytes) -> None:
    """The broker checks little of a table; reading it must never raise."""
    consumed, headers = decode.METHODS["table"](table_of(entries))
    assert consumed == 4 + len(entries)
    assert isinstance(headers, amqp_codec.RawTable)


def test_a_received_table_is_sent_on_byte_for_byte() -> None:
    """Not all that pamqp decodes it can encode: a parked request with such a header would end the daemon."""
    table = table_of(DEEP + b"\x01xS\x00\x00\x00\x02\xff\xfe" + b"\x01dd" + struct.pack(">d", 1e300))
    _, headers = decode.METHODS["table"](table)
    assert encode.by_type(headers, "table") == table
    _, longer = decode.METHODS["table"](encode.by_type(headers.with_text("user", "ü\udcff"), "table"))
    assert longer["user"] == "ü".encode() + b"\xff"
    assert longer["d"] == 1e300


def test_ordinary_headers_are_untouched() -> None:
    """The tolerant path must not change what everybody sends."""
    headers = {"x-delivery-count": 3, "traceparent": "00-ab-cd-01", "nested": {"a": [1, "b"]}}
    assert through(commands.Basic.Properties(headers=headers)).headers == headers


def test_too_long_a_string_is_refused_with_its_length() -> None:
    """255 bytes are the protocol's limit, in bytes and not in characters."""
    with pytest.raises(TypeError, match="256 bytes"):
        commands.Basic.Properties(correlation_id="é" * 128).marshal()

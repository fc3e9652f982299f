"""A tolerant AMQP codec, so that no single message can stop a daemon.

pamqp decodes strictly: a short string that is not UTF-8, a timestamp beyond the year 9999 or a header table nested
thousands deep raises while the frame is read, which kills the connection, again at every redelivery. The broker
accepts all three. `install` makes pamqp carry foreign bytes through (`surrogateescape`, so they are echoed byte for
byte), read absurd times as the far future, and leave out the headers that it cannot decode. Nor can pamqp encode all
that it decodes, so a table that was received keeps its bytes and is sent on as it came.
Source: pamqp 4 `decode.py`, `encode.py`; AMQP 0-9-1 section 4.2.5.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pamqp import common, constants, decode, encode

UNDECODABLE = "x-leveret-undecodable"
"""Stands among the headers of a message of which some could not be decoded."""

_FAR_FUTURE = datetime.max.replace(tzinfo=UTC)
_FAULTS = (ValueError, TypeError, KeyError, RecursionError, ArithmeticError, IndexError, struct.error)
_WITH_LENGTH = (b"F", b"A")
"""Field types that nest; their length precedes them, so they can be passed over."""


class RawTable(dict[str, Any]):
    """A header table as received: what could be decoded of it, and its bytes with the length before them."""

    def __init__(self, fields: Mapping[str, Any], raw: bytes) -> None:
        super().__init__(fields)
        self.raw = raw

    def with_text(self, name: str, text: str) -> "RawTable":
        """The same table with one more entry, a long string."""
        data = text.encode("utf-8", "surrogateescape")
        key = name.encode()
        entries = self.raw[4:] + bytes([len(key)]) + key + b"S" + struct.pack(">I", len(data)) + data
        return RawTable({**self, name: text}, struct.pack(">I", len(entries)) + entries)

    def without(self, *prefixes: str) -> "RawTable":
        """The same table without the entries whose names begin so."""
        entries = b"".join(entry for name, _, entry in _entries(self.raw[4:]) if not name.startswith(prefixes))
        kept = {name: value for name, value in self.items() if not name.startswith(prefixes)}
        return RawTable(kept, struct.pack(">I", len(entries)) + entries)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _short_string(value: bytes) -> tuple[int, str]:
    length = value[0]
    return length + 1, _text(value[1 : length + 1])


def _timestamp(value: bytes) -> tuple[int, datetime]:
    (seconds,) = struct.unpack(">Q", value[:8])
    try:
        return 8, datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return 8, _FAR_FUTURE


def _received_table(value: bytes) -> tuple[int, common.FieldTable]:
    (length,) = struct.unpack(">I", value[:4])
    raw = bytes(value[: 4 + length])
    return len(raw), RawTable(_fields(raw[4:]), raw)


def _fields(entries: bytes) -> dict[str, Any]:
    """The fields of a table; those that nest too deep or hold foreign keys are left out and the table is marked."""
    fields: dict[str, Any] = {}
    for name, value, _ in _entries(entries):
        if isinstance(value, _Fault):
            fields[UNDECODABLE] = True
        else:
            fields[name] = value
    return fields


class _Fault:
    """Stands for a value that cannot be decoded."""


def _entries(data: bytes) -> Iterator[tuple[str, Any, bytes]]:
    """Name, value and bytes of each entry of a table; where the length of one is unknown, it takes all the rest."""
    offset = 0
    while offset < len(data):
        begin, name = offset, ""
        value: Any = _Fault()
        try:
            consumed, name = _short_string(data[offset:])
            offset += consumed
            consumed, value = _value(data[offset:])
            offset += consumed
        except _FAULTS:
            offset = len(data)
        yield name, value, data[begin:offset]


def _value(data: bytes) -> tuple[int, Any]:
    try:
        return decode.embedded_value(data)
    except _FAULTS:
        return _nested_length(data), _Fault()


def _nested_length(value: bytes) -> int:
    """Bytes of a nested value with its type. Raises ValueError where its type has no length before it."""
    if value[:1] not in _WITH_LENGTH:
        raise ValueError(f"a field of type {value[:1]!r} cannot be passed over")
    (length,) = struct.unpack(">I", value[1:5])
    return 5 + int(length)


def _sent_table(value: common.FieldTable) -> bytes:
    return value.raw if isinstance(value, RawTable) else encode.field_table(value)


def _encode_string(encoder: struct.Struct, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"str required, received {type(value)}")
    data = value.encode("utf-8", "surrogateescape")
    limit = 255 if encoder is common.Struct.byte else 2**32 - 1
    if len(data) > limit:
        raise TypeError(f"string of {len(data)} bytes exceeds the maximum of {limit} bytes")
    return encoder.pack(len(data)) + data


def install() -> None:
    """Replace pamqp's strict decoders and encoders for this process; safe to call twice."""
    decoders: dict[str, Any] = {"shortstr": _short_string, "timestamp": _timestamp, "table": _received_table}
    decode.METHODS.update(decoders)
    decode.TABLE_MAPPING[b"T"] = _timestamp
    encode.METHODS["table"] = _sent_table
    encode._string = _encode_string  # noqa: SLF001 - pamqp has no hook for this
    # pamqp refuses names that the broker itself hands out (`amq.rabbitmq.reply-to.…==`); the broker is the judge.
    constants.DOMAIN_REGEX["queue-name"] = re.compile(r"^.*$", re.DOTALL)

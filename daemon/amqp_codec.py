"""A tolerant AMQP codec, so that no single message can stop a daemon.

pamqp decodes strictly: a short string that is not UTF-8, a timestamp beyond the year 9999 or a header table nested
thousands deep raises while the frame is read, which kills the connection, again at every redelivery. The broker
accepts all three. `install` makes pamqp carry foreign bytes through (`surrogateescape`, so they are echoed byte for
byte), read absurd times as the far future, and replace a header table that cannot be decoded by a mark.
Source: pamqp 4 `decode.py`, `encode.py`; AMQP 0-9-1 section 4.2.5.
"""

import re
import struct
from datetime import UTC, datetime
from typing import Any

from pamqp import common, constants, decode, encode

UNDECODABLE = "x-leveret-undecodable"
"""The only header of a message whose header table could not be decoded."""

_FAR_FUTURE = datetime.max.replace(tzinfo=UTC)
_original_table = decode.field_table


def _short_string(value: bytes) -> tuple[int, str]:
    length = value[0]
    return length + 1, value[1 : length + 1].decode("utf-8", "surrogateescape")


def _timestamp(value: bytes) -> tuple[int, datetime]:
    (seconds,) = struct.unpack(">Q", value[:8])
    try:
        return 8, datetime.fromtimestamp(seconds, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return 8, _FAR_FUTURE


def _table(value: bytes) -> tuple[int, common.FieldTable]:
    try:
        return _original_table(value)
    except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError):
        (length,) = struct.unpack(">I", value[:4])
        return 4 + length, {UNDECODABLE: True}


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
    decoders: dict[str, Any] = {"shortstr": _short_string, "timestamp": _timestamp, "table": _table}
    decode.METHODS.update(decoders)
    decode.TABLE_MAPPING[b"T"] = _timestamp
    encode._string = _encode_string  # noqa: SLF001 - pamqp has no hook for this
    # pamqp refuses names that the broker itself hands out (`amq.rabbitmq.reply-to.…==`); the broker is the judge.
    constants.DOMAIN_REGEX["queue-name"] = re.compile(r"^.*$", re.DOTALL)

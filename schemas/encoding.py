"""From the bytes of an AMQP message to the bytes of its JSON body: content type, content encoding, size."""

import gzip
import io
import zlib

from schemas.errors import RequestError, shown


def decode_body(body: bytes, content_encoding: str | None, content_type: str | None, max_bytes: int) -> bytes:
    """Give the plain body of a message, at most `max_bytes` bytes before and after decompression.

    Raises RequestError for a content type that is not JSON, an unknown content encoding, a body that is too large,
    and gzip data that is truncated or damaged. Memory stays within `max_bytes`, whatever the data would expand to.
    """
    _check_type(content_type)
    encoding = (content_encoding or "identity").strip().lower()
    if encoding not in {"identity", "gzip"}:
        raise RequestError(
            f"content_encoding: got {shown(content_encoding)}, expected identity or gzip", "content_encoding"
        )
    if len(body) > max_bytes:
        raise RequestError(f"body: got {len(body)} bytes, expected at most {max_bytes}")
    return _gunzip(body, max_bytes) if encoding == "gzip" else body


def _check_type(content_type: str | None) -> None:
    """Absent is JSON; so is `application/json` with any parameters but another charset than UTF-8."""
    media_type, *parameters = (part.strip() for part in (content_type or "application/json").lower().split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    charsets = {value.strip(' "') for name, _, value in pairs if name.strip() == "charset"}
    if media_type != "application/json" or not charsets <= {"utf-8", "utf8"}:
        raise RequestError(
            f"content_type: got {shown(content_type)}, expected application/json in UTF-8", "content_type"
        )


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    """Read one byte more than allowed, never all of it: a bomb costs no more than the limit."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
            plain = stream.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RequestError(f"body: got damaged gzip data ({error}), expected one or more whole gzip members") from error
    if len(plain) > max_bytes:
        raise RequestError(
            f"body: got {len(body)} bytes of gzip that hold {len(plain)} or more, expected at most {max_bytes}"
        )
    return plain

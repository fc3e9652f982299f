"""The exact bytes that each token stands for, taken from a tokenizer's own description.

Two families cover the causal models: byte-level BPE (GPT-2's alphabet of 256 printable characters, one for each byte)
and SentencePiece-like vocabularies ("▁" for a space, `<0xAB>` for a byte that is in no piece).
Source: OpenAI's GPT-2 `encoder.py` (`bytes_to_unicode`); tokenizers' `decoders` ByteLevel, ByteFallback, Metaspace.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: the printable Latin-1 characters are themselves, the other bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


def piece_decoder(description: Mapping[str, Any]) -> Callable[[str], bytes]:
    """How pieces of this vocabulary become bytes; `description` is the parsed `tokenizer.json`."""
    parts = (_types(description.get("decoder")), _types(description.get("pre_tokenizer")))
    return _byte_level() if any("ByteLevel" in names for names in parts) else _sentence_piece


def _types(part: object) -> set[str]:
    """The `type` names of a component and of everything nested in it."""
    if isinstance(part, list):
        return set().union(*(_types(item) for item in part))
    if not isinstance(part, dict):
        return set()
    return {str(part.get("type"))}.union(*(_types(item) for item in part.values()))


def _byte_level() -> Callable[[str], bytes]:
    alphabet = byte_alphabet()

    def decode(piece: str) -> bytes:
        try:
            return bytes(alphabet[character] for character in piece)
        except KeyError:  # a piece outside the alphabet stands for itself
            return piece.encode()

    return decode


def _sentence_piece(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()

"""Bytes to text, piece by piece: only whole characters come out, and nothing is lost on the way."""

import codecs


class TextStream:
    """An incremental UTF-8 decoder; the pieces joined are `all_bytes.decode("utf-8", errors="replace")`.

    A character that is split over tokens is held back until its last byte; bytes that form no character become
    U+FFFD, one for each maximal ill-formed part, as Python's `errors="replace"` does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, data: bytes) -> str:
        """Take the bytes of the next token and return the characters that are now whole, often one or none."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return what an unfinished character at the end becomes: U+FFFD, or nothing where there is none."""
        return self._decoder.decode(b"", final=True)

"""Stop strings in a stream of text: none leaks, and no text before one is swallowed."""

from collections.abc import Sequence


class StopMatcher:
    """Finds, in text that comes in pieces, the stop string that begins earliest.

    Text that might still become (part of) a stop string is held back; `finish` releases it. The pieces returned,
    joined, are the whole text up to the beginning of the earliest stop string, or all of it where none occurs.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: the stop strings, none of them empty. Raises ValueError on an empty one."""
        if "" in stops:
            raise ValueError("an empty stop string would match at once")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Take the next piece and return the text that no stop string can claim any more; sets `stopped` on a match."""
        if self.stopped:
            return ""
        self._held += text
        match = self._earliest_match()
        open_start = self._earliest_open_start()
        # A stop string that began before the one found may still complete, and would then win: wait for it.
        if match is not None and match <= open_start:
            return self._stop_at(match)
        return self._release(open_start)

    def finish(self) -> str:
        """Release the held text at the end of the answer, cut at a stop string that was found but not yet certain."""
        match = None if self.stopped else self._earliest_match()
        return self._release(len(self._held)) if match is None else self._stop_at(match)

    def _stop_at(self, position: int) -> str:
        self.stopped = True
        text = self._release(position)
        self._held = ""
        return text

    def _release(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        return text

    def _earliest_match(self) -> int | None:
        found = [position for stop in self._stops if (position := self._held.find(stop)) >= 0]
        return min(found, default=None)

    def _earliest_open_start(self) -> int:
        """Where the earliest unfinished stop string begins; the length of the held text where there is none."""
        end = len(self._held)
        return min((self._open_start(stop) for stop in self._stops), default=end)

    def _open_start(self, stop: str) -> int:
        end = len(self._held)
        for start in range(max(0, end - len(stop) + 1), end):
            if stop.startswith(self._held[start:]):
                return start
        return end

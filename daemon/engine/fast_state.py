"""What the fast model remembers of a sequence: keys and values in pages that sequences can share."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from daemon.engine.fast_checkpoint import Floats
from daemon.engine.fast_records import PAGE_TOKENS


@dataclass
class FastState:
    """Keys and values of the first `length` tokens.

    Pages are shared by forks and never written to while they are: `owned` says which may be. A page is copied before
    its first write; what lies behind `length` in a page means nothing.
    """

    page_floats: int
    length: int = 0
    pages: list[Floats] = field(default_factory=list)
    owned: list[bool] = field(default_factory=list)

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens: every page that they will be written to exists and is this state's own."""
        end = self.length + count
        while len(self.pages) * PAGE_TOKENS < end:
            self.pages.append(np.zeros(self.page_floats, np.float32))
            self.owned.append(True)
        for number in range(self.length // PAGE_TOKENS, -(-end // PAGE_TOKENS)):
            if not self.owned[number]:
                self.pages[number] = self.pages[number].copy()
                self.owned[number] = True

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if length < self.length:
            self.length = length
            kept = -(-length // PAGE_TOKENS)
            del self.pages[kept:], self.owned[kept:]

    def fork(self) -> "FastState":
        """A state of the same tokens; from now on neither writes to the pages that they share."""
        self.owned = [False] * len(self.pages)
        return FastState(self.page_floats, self.length, list(self.pages), list(self.owned))

    def branch(self, ahead: int) -> "FastState":
        """What may follow the next `ahead` tokens, for which room is reserved but which need not be there yet.

        To be dropped before this state is extended again: it reads this state's pages and writes to its own.
        """
        return FastState(self.page_floats, self.length + ahead, list(self.pages), [False] * len(self.pages))

    def addresses(self) -> Iterator[int]:
        """The pages' addresses, in order."""
        return (page.ctypes.data for page in self.pages)

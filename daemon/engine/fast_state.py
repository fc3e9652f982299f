"""What the fast model remembers of a sequence: keys and values in pages that sequences can share."""

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
        """Forget all but the first `length` tokens, and give up room that was reserved behind them."""
        self.length = min(length, self.length)
        kept = -(-self.length // PAGE_TOKENS)
        del self.pages[kept:], self.owned[kept:]

    def fork(self) -> "FastState":
        """A state of the same tokens; from now on neither writes to the pages that they share."""
        self.owned = [False] * len(self.pages)
        return FastState(self.page_floats, self.length, list(self.pages), list(self.owned))

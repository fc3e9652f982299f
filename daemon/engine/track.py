"""Where an answer stands in the model: what it has read, and the logits that come next."""

from collections import deque
from collections.abc import Iterator, Sequence

from daemon.engine.drafting import PromptLookup
from daemon.engine.stepper import Position, Stepper
from daemon.engine.types import Logits


class Track:
    """The model's state along one answer.

    Tokens are read when logits are asked for, several in one pass where there are several. The state may run ahead of
    the answer, over tokens that are drafted; where the answer goes another way, they are cut off again.
    """

    def __init__(self, stepper: Stepper, start: Position, lookup: PromptLookup | None) -> None:
        """`lookup` None: nothing is drafted."""
        self._stepper = stepper
        self._state, self._row = start.state, start.row
        self._lookup = lookup
        self._unread: list[int] = []
        self._ahead: deque[tuple[int, Logits]] = deque()
        """Tokens read before the answer has them, each with the logits after it."""
        self._drafted = 0
        """How many of the tokens that were last read ahead were drafted: all of them, or none."""

    def row(self, remaining: int) -> Logits:
        """The logits that predict the next token, shape `[vocab_size]`; `remaining`: the most tokens that may come.

        Raises Interrupted, GenerationFailed.
        """
        if self._unread:
            drafts = self._drafts(remaining - 1)
            self._read(drafts)
            self._drafted = len(drafts)
        return self._row

    def append_known(self, token_ids: Sequence[int]) -> Iterator[tuple[Sequence[int], list[Logits]]]:
        """Go on by these tokens, a piece at a time, with the logits that predicted each of a piece's tokens.

        Raises Interrupted, GenerationFailed.
        """
        for piece in self._stepper.pieces(token_ids):
            self._cut_off()
            self._drafted = 0
            self._read(piece[:-1])
            rows = [self._row, *(row for _, row in self._ahead)]
            self.append(piece)
            yield piece, rows

    def append(self, token_ids: Sequence[int]) -> int:
        """Go on by these tokens; how many of them had been drafted."""
        drafted = sum(self._step(token) for token in token_ids)
        if self._lookup is not None:
            self._lookup.append(token_ids)
        return drafted

    def _step(self, token: int) -> bool:
        if self._ahead and self._ahead[0][0] == token:
            _, self._row = self._ahead.popleft()
            if not self._ahead:
                self._judge()
            return self._drafted > 0
        self._cut_off()
        self._unread.append(token)
        return False

    def _drafts(self, most: int) -> Sequence[int]:
        """Behind several unread tokens nothing is drafted: their logits, which nobody wants, would cost as much."""
        if self._lookup is None or len(self._unread) > 1:
            return ()
        return self._lookup.draft(most)

    def _read(self, ahead: Sequence[int]) -> None:
        """Read what is unread and then `ahead`, of which nothing may be in the answer yet."""
        if not ahead:
            if self._unread:
                self._row = self._stepper.feed(self._state, self._unread)
        else:
            known = [] if self._unread else [self._row]
            rows = [*known, *self._stepper.rows(self._state, [*self._unread, *ahead])][-len(ahead) - 1 :]
            self._row = rows[0]
            self._ahead.extend(zip(ahead, rows[1:], strict=True))
        self._unread = []

    def _cut_off(self) -> None:
        """Forget what was read ahead and is not in the answer."""
        if self._ahead:
            self._stepper.model.truncate(self._state, self._state.length - len(self._ahead))
            self._judge()
            self._ahead.clear()

    def _judge(self) -> None:
        if self._lookup is not None and self._drafted:
            self._lookup.judge(self._drafted, self._drafted - len(self._ahead))

"""Guesses the next tokens from the text so far, for the model to verify several in one pass.

Prompt lookup: where the last tokens stood before, in the prompt or in the answer, what followed there is guessed to
follow again (https://github.com/apoorvumang/prompt-lookup-decoding). Each token is still drawn from the model's own
logits, so the answer is the same with and without, greedy or sampled; a guess that is drawn saves a pass.
"""

from collections.abc import Sequence

_GRAMS = (3, 2)
"""How many last tokens must have stood before; the longer match is the better guess."""
_MOST = 5
"""Tokens of a guess; with the one before them they fill one tile of the fast engine (`fast_vector.TILE_ROWS`)."""
_ROW_COST = 1 / 3
"""What a token more costs in a pass, in passes of one token (measured: tests/bench/LOG.md)."""
_LONGEST_REST = 64


class PromptLookup:
    """The drafts of one answer. Where they do not pay it rests, for longer and longer."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        """The text so far, prompt and answer."""
        self._length = _MOST
        self._followed: dict[tuple[int, ...], int] = {}
        self._misses = self._rest = 0
        self.append(prompt)

    def append(self, token_ids: Sequence[int]) -> None:
        """Go on by these tokens."""
        for token in token_ids:
            place = len(self.tokens)
            for size in _GRAMS:
                if size <= place:
                    self._followed[tuple(self.tokens[place - size :])] = place
            self.tokens.append(token)

    def draft(self, limit: int) -> Sequence[int]:
        """A guess of at most `limit` tokens that follow; empty where there is none, or while guessing rests."""
        if self._rest:
            self._rest -= 1
            return ()
        found = (self._followed.get(tuple(self.tokens[-size:])) for size in _GRAMS)
        place = next((place for place in found if place is not None), None)
        if place is None:
            return ()
        period = len(self.tokens) - place  # what comes round sooner than the guess is long goes on coming round
        return [self.tokens[place + i % period] for i in range(min(limit, self._length))]

    def judge(self, drafted: int, right: int) -> None:
        """Learn how many of the `drafted` tokens were `right`."""
        if right >= drafted * _ROW_COST:
            self._misses = 0
            self._length = min(self._length + 1, _MOST)
        else:
            self._misses += 1
            self._rest = min(2**self._misses, _LONGEST_REST)
            self._length = max(self._length - 1, 1)

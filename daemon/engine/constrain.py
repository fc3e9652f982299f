"""What may come next: grammars that an answer must follow, compiled by llguidance."""

from collections.abc import Sequence
from typing import Protocol

from daemon.engine.sampling import Mask


class Constrainer(Protocol):
    """Steers one answer; it has seen every token of the answer so far."""

    @property
    def complete(self) -> bool:
        """True where the answer is whole and nothing can follow."""

    def take_forced(self, limit: int) -> Sequence[int]:
        """Take the tokens (at most `limit`) that alone can come next; they count as accepted. Often none."""

    def allowed(self) -> Mask | None:
        """The tokens that may come next, shape `[vocab_size]`; None where all may."""

    def accept(self, token_id: int) -> None:
        """Take the token that was drawn."""


class Unconstrained:
    """Lets everything through."""

    complete = False

    def take_forced(self, limit: int) -> Sequence[int]:  # noqa: ARG002
        """No token is ever forced."""
        return ()

    def allowed(self) -> Mask | None:
        """All tokens may come next."""
        return None

    def accept(self, token_id: int) -> None:
        """Nothing to remember."""

"""Cancels that may still meet their request: a bounded table of who cancelled which id, and when."""

import time
from collections import OrderedDict

REMEMBERED_SECONDS = 600.0
REMEMBERED_COUNT = 10_000


class CancelTable:
    """Remembers cancels for ten minutes; the oldest give way when it is full.

    A request with a user is cancelled only by that user, one without by anybody who may publish cancels.
    """

    def __init__(self, most: int = REMEMBERED_COUNT, seconds: float = REMEMBERED_SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._at: OrderedDict[tuple[str, str | None], float] = OrderedDict()
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def add(self, user_id: str | None, request_id: str) -> None:
        """Note that `user_id` cancelled `request_id`."""
        key = (request_id, user_id)
        if key not in self._at:
            self._users[request_id] = self._users.get(request_id, 0) + 1
        self._at[key] = time.monotonic()
        self._at.move_to_end(key)
        self._trim()

    def hits(self, user_id: str | None, request_id: str | None) -> bool:
        """Was the request with this user and id cancelled?"""
        self._trim()
        if request_id is None:
            return False
        return request_id in self._users if user_id is None else (request_id, user_id) in self._at

    def _trim(self) -> None:
        oldest_allowed = time.monotonic() - self._seconds
        while self._at:
            key, at = next(iter(self._at.items()))
            if len(self._at) <= self._most and at >= oldest_allowed:
                return
            del self._at[key]
            self._users[key[0]] -= 1
            if not self._users[key[0]]:
                del self._users[key[0]]


def may_cancel(canceller: str | None, user_id: str | None) -> bool:
    """May `canceller` cancel a request of `user_id`?"""
    return user_id is None or canceller == user_id

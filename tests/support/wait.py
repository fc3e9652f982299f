"""Waiting for something to become true, with a bound and a name, instead of sleeping and hoping."""

import asyncio
import time
from collections.abc import Callable

DEFAULT_SECONDS = 15.0
"""Generous on purpose: it is only reached where a test fails, also on a busy machine."""

_POLL_SECONDS = 0.01


async def wait_until(
    predicate: Callable[[], object], *, description: str, timeout_seconds: float = DEFAULT_SECONDS
) -> None:
    """Let the event loop run until `predicate()` is true. Raises AssertionError with the description in time."""
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds:g} s: {description}")
        await asyncio.sleep(_POLL_SECONDS)


def block_until(predicate: Callable[[], object], *, description: str, timeout_seconds: float = DEFAULT_SECONDS) -> None:
    """Do as `wait_until` does, for tests without an event loop."""
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_seconds:g} s: {description}")
        time.sleep(_POLL_SECONDS)

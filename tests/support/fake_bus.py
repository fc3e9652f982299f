"""A bus and a delivery in memory, for what a real broker cannot be made to do on cue."""

from collections.abc import Sequence

from daemon.bus import Envelope, Published, Reply


class FakeBus:
    """Answers each publish with the next of `script` (an exception is raised), then with ROUTED."""

    def __init__(self, script: Sequence[Published | Exception] = (), there: Sequence[bool | None] = ()) -> None:
        self._script, self._there = list(script), list(there)
        self.published: list[Reply] = []
        self.tried: list[Reply] = []
        self.reconnected_at: float | None = None

    async def publish(self, reply: Reply) -> Published:
        """As the port says; `tried` holds every call, `published` those that were confirmed."""
        self.tried.append(reply)
        answer = self._script.pop(0) if self._script else Published.ROUTED
        if isinstance(answer, Exception):
            raise answer
        if answer is Published.ROUTED:
            self.published.append(reply)
        return answer

    async def is_there(self, address: str) -> bool | None:  # noqa: ARG002
        """The next of `there`, then True."""
        return self._there.pop(0) if self._there else True


class FakeDelivery:
    """Remembers how it was settled."""

    def __init__(self, envelope: Envelope, *, stale: bool = False) -> None:
        self.envelope, self.stale = envelope, stale
        self.settled: list[str] = []

    async def ack(self) -> bool:
        """As the port says."""
        return self._settle("ack")

    async def reject(self) -> bool:
        """As the port says."""
        return self._settle("reject")

    async def hand_back(self) -> bool:
        """As the port says."""
        return self._settle("hand_back")

    async def park(self) -> None:
        """As the port says."""
        self._settle("park")

    def _settle(self, verb: str) -> bool:
        if not self.stale:
            self.settled.append(verb)
        return not self.stale

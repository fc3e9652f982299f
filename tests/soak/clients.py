"""Requesters that ask for everything a daemon can answer, one request after the other, through every fault."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from daemon.bus import BusUnavailable
from daemon.link import BROKER_ERRORS, bounded
from tests.support.requester import QUESTION, ReplyQueue, Requester, check_protocol, copies
from tests.support.wait import wait_until

ANSWER_SECONDS = 120.0
"""Longest wait for a terminal message, faults in between included."""
RESTART_SECONDS = 120.0
CALL_SECONDS = 30.0
BROKEN = (BusUnavailable, *BROKER_ERRORS)
GAVE_UP = "delivery_limit_exceeded"


@dataclass(frozen=True)
class Ask:
    """A kind of request: how it may end, its fields, its envelope, and after how many replies it is cancelled."""

    ends: frozenset[str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    envelope: Mapping[str, Any] = field(default_factory=dict)
    cancel_after: int | None = None


def _ends(*codes: str) -> frozenset[str]:
    return frozenset({*codes, GAVE_UP})


KINDS = (
    Ask(_ends("ok"), {"stream": True, "max_new_tokens": 60}),
    Ask(_ends("ok"), {"max_new_tokens": 20}),
    Ask(_ends("ok"), {"messages": [{"role": "user", "content": "Zebras hum. " * 40}], "max_new_tokens": 5}),
    Ask(_ends("invalid_request"), {"max_new_tokens": "many"}),
    Ask(_ends("model_not_found"), {"model": "another"}),
    Ask(_ends("context_length_exceeded"), {"messages": [{"role": "user", "content": "z" * 100_000}]}),
    Ask(_ends("deadline_exceeded"), {"stream": True, "timeout": 1, "max_new_tokens": 2000}),
    Ask(_ends("ok", "expired"), {"max_new_tokens": 10}, {"expiration": 1}),
    # A cancel that is sent while a daemon is away is lost to it: then the answer runs to its limit.
    Ask(_ends("cancelled", "ok"), {"stream": True, "max_new_tokens": 1000}, cancel_after=3),
)


@dataclass
class World:
    """What harness and clients tell each other. `incarnation` rises when the broker is back after a restart."""

    incarnation: int = 0
    stopping: bool = False
    ends: dict[str, int] = field(default_factory=dict)
    void: int = 0
    """Requests whose reply address went with the broker, or whose publish was not confirmed: nothing is promised."""

    @property
    def answered(self) -> int:
        """Requests with a terminal message."""
        return sum(self.ends.values())


class SoakClient:
    """One requester that asks until the world stops."""

    def __init__(self, url: str, queue: str, kind: ReplyQueue, seed: int, world: World) -> None:
        self.requester = Requester(url, queue, kind=kind)
        self._random = random.Random(seed)  # noqa: S311 - a repeatable mixture
        self._world = world
        self._connected_to = -1

    async def run(self) -> None:
        """Ask one request after the other."""
        while not self._world.stopping:
            kind = self._random.choice(KINDS)
            incarnation = self._world.incarnation
            try:
                await self._connect()
                sending = self.requester.send(QUESTION, fields=kind.fields, **kind.envelope)
                asked = await bounded(sending, CALL_SECONDS, "send")
            except BROKEN:
                self._world.void += 1
                await self._until_restarted(incarnation)
                continue
            await self._settle(asked, kind, incarnation)

    async def _until_restarted(self, incarnation: int) -> None:
        await wait_until(
            lambda: self._world.incarnation > incarnation,
            description="the broker is back",
            timeout_seconds=RESTART_SECONDS,
        )

    async def _connect(self) -> None:
        """Listen on the reply queue, again where the broker has restarted."""
        incarnation = self._world.incarnation
        if self._connected_to != incarnation:
            await bounded(self.requester.connect(), CALL_SECONDS, "connect")
            self._connected_to = incarnation

    async def _settle(self, asked: str, kind: Ask, incarnation: int) -> None:
        """Wait for the terminal message, cancel on the way where the kind says so, and survive restarts."""
        deadline = time.monotonic() + ANSWER_SECONDS
        cancel_after = kind.cancel_after
        while not self.requester.terminals(asked):
            await wait_until(
                partial(self._has_news, asked, cancel_after),
                description=f"an answer to {asked} ({kind})",
                timeout_seconds=deadline - time.monotonic(),
            )
            if self._world.incarnation != incarnation and self.requester.kind != "durable":
                self.requester.heard.pop(asked, None)
                self._world.void += 1
                return
            if await self._reconnect_and_cancel(asked, cancel=cancel_after is not None):
                cancel_after = None
        code = self.requester.terminals(asked)[0].code
        assert code in kind.ends, f"{asked} ended with {code}: {kind}"
        self._world.ends[code] = self._world.ends.get(code, 0) + 1

    def _has_news(self, asked: str, cancel_after: int | None) -> bool:
        """It is answered, the broker has restarted, or it is time to cancel."""
        if self.requester.terminals(asked) or self._world.incarnation != self._connected_to:
            return True
        return cancel_after is not None and len(self.requester.replies(asked)) >= cancel_after

    async def _reconnect_and_cancel(self, asked: str, *, cancel: bool) -> bool:
        """True once the cancel is sent."""
        incarnation = self._world.incarnation
        try:
            await self._connect()
            if cancel and not self.requester.terminals(asked):
                await bounded(self.requester.cancel(asked), CALL_SECONDS, "cancel")
                return True
        except BROKEN:
            await self._until_restarted(incarnation)
        return False

    def check(self) -> tuple[int, int]:
        """Check the protocol of everything heard; how many terminal messages and copies came beyond the first."""
        extra = copied = 0
        for replies in self.requester.heard.values():
            check_protocol(replies, daemons=2)
            extra += max(0, len({reply.message_id for reply in replies if reply.final}) - 1)
            copied += copies(replies)
        return extra, copied

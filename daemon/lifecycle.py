"""The states of the process, and what can be observed of it at any moment.

Nothing here is a promise: every answer is read from the thread, the connections and the clock when it is asked for.
"""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from daemon.broker import Broker
from daemon.engine.thread import EngineThread

STALL_SECONDS = 60.0
"""No `extend` call takes nearly as long: a generation without progress for so long is stuck."""


class State(StrEnum):
    """Contract, section 5."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DISCONNECTED = "disconnected"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass
class Lifecycle:
    """Where the process stands; `phase` is moved on by the application, the rest is observed."""

    thread: EngineThread
    broker: Broker
    phase: State = State.STARTING
    started: float = field(default_factory=time.monotonic)

    @property
    def state(self) -> State:
        """The state now: `ready` and `disconnected` follow the broker."""
        if self.phase is not State.READY:
            return self.phase
        return State.READY if self.broker.registered else State.DISCONNECTED

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the process started."""
        return time.monotonic() - self.started

    def not_alive(self) -> str | None:
        """Why the process should be restarted, None while it is alive."""
        if not self.thread.alive:
            return "the generation thread has ended"
        silence = time.monotonic() - self.thread.last_progress
        if self.thread.busy and silence > STALL_SECONDS:
            return f"the generation has made no progress for {silence:.0f} s"
        return None

    def not_ready(self) -> list[str]:
        """Why no request can be served now; empty when one can."""
        reasons = [self.not_alive()]
        if not self.thread.loaded:
            reasons.append("the model is not loaded yet")
        if self.phase in {State.DRAINING, State.STOPPED}:
            reasons.append("shutting down")
        elif not self.broker.registered:
            reasons.append(f"not consuming: {self.broker.trouble or 'the consumer is not registered yet'}")
        return [reason for reason in reasons if reason is not None]

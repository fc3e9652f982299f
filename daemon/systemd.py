"""systemd's notification protocol, as far as a service needs it (sd_notify(3)); silent where there is no systemd."""

import asyncio
import os
import socket

from daemon.lifecycle import Lifecycle, State

TICK_SECONDS = 1.0
EXTEND_SECONDS = 30
"""How much longer the start or the end may take, said again at every tick while it goes on."""

_EXTENSION = str(EXTEND_SECONDS * 1_000_000)


def notify(**state: str) -> bool:
    """Send `KEY=value` lines to `$NOTIFY_SOCKET`; False where nobody took them, which is no reason to fail or wait."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(f"{key}={value}" for key, value in state.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.sendto(message.encode(), address)
        except OSError:
            return False
    return True


def watchdog_seconds() -> float | None:
    """The interval within which systemd wants a ping, None where it wants none of this process."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID")
    if not microseconds.isdecimal() or int(microseconds) == 0 or (pid is not None and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1e6


def notify_stopping() -> None:
    """Say that the end has begun, before anything else of it happens: an idle daemon is gone within a tick."""
    notify(STOPPING="1", STATUS=State.DRAINING.value, EXTEND_TIMEOUT_USEC=_EXTENSION)


async def keep_notified(lifecycle: Lifecycle) -> None:
    """Tell systemd how the process is, for ever: READY once it consumes, pings only while there is real progress.

    A broker that is down at the start is waited for without an end, so the start is extended until READY is said.
    """
    interval = watchdog_seconds()
    tick = TICK_SECONDS if interval is None else min(TICK_SECONDS, interval / 3)
    ready = False
    last: State | None = None
    while True:
        state = lifecycle.state
        if state is not last and notify(STATUS=state.value):
            last = state
        if state is State.READY and not ready:
            ready = notify(READY="1")
        if not ready or state is State.DRAINING:
            notify(EXTEND_TIMEOUT_USEC=_EXTENSION)
        if interval is not None and lifecycle.not_alive() is None:
            notify(WATCHDOG="1")
        await asyncio.sleep(tick)

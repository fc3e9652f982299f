"""systemd's notification protocol, as far as a service needs it (sd_notify(3)); silent where there is no systemd."""

import asyncio
import os
import socket

from daemon.lifecycle import Lifecycle, State

TICK_SECONDS = 1.0
EXTEND_SECONDS = 30
"""How much longer loading or draining may take, said again at every tick while it goes on."""


def notify(**state: str) -> None:
    """Send `KEY=value` lines to `$NOTIFY_SOCKET`; a socket that does not listen is no reason to fail."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    message = "\n".join(f"{key}={value}" for key, value in state.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(message.encode(), address)
        except OSError:
            return


def watchdog_seconds() -> float | None:
    """The interval within which systemd wants a ping, None where it wants none of this process."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID")
    if not microseconds.isdigit() or (pid is not None and pid != str(os.getpid())):
        return None
    return int(microseconds) / 1e6


async def keep_notified(lifecycle: Lifecycle) -> None:
    """Tell systemd how the process is, for ever: READY once it consumes, pings only while there is real progress."""
    interval = watchdog_seconds()
    tick = TICK_SECONDS if interval is None else min(TICK_SECONDS, interval / 3)
    ready = False
    last: State | None = None
    while True:
        state = lifecycle.state
        if state is State.READY and not ready:
            ready = True
            notify(READY="1")
        if state is not last:
            last = state
            notify(**({"STOPPING": "1"} if state is State.DRAINING else {}), STATUS=state.value)
        if state in {State.STARTING, State.LOADING, State.DRAINING}:
            notify(EXTEND_TIMEOUT_USEC=str(EXTEND_SECONDS * 1_000_000))
        if interval is not None and lifecycle.not_alive() is None:
            notify(WATCHDOG="1")
        await asyncio.sleep(tick)

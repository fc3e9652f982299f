"""How late a daemon's event loop is while it decodes: how much longer than asked its sleeps of 5 ms take.

    PYTHONPATH=deploy/demo python -m tests.bench.loop_lag MODEL_DIR

The daemon runs in this process on a private broker, with its default settings; the requester shares its loop, so the
daemon alone is no later than this.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from private_broker import PrivateBroker

from daemon.app import App
from daemon.models import ModelLocation
from daemon.settings import Settings
from tests.bench.pairs import circumstances, spread
from tests.support.requester import Requester
from tests.support.wait import wait_until

PROBES, SLEEP_SECONDS = 2000, 0.005
LONG_ANSWER = {"stream": True, "max_new_tokens": 1600, "structured_outputs": {"regex": "(a|b|c){1600}"}}
ANSWER_SECONDS = 300.0


async def lags(goes_on: Callable[[], bool]) -> list[float]:
    """Seconds that each of many sleeps of this loop took too long, while it `goes_on`."""
    late: list[float] = []
    while len(late) < PROBES and goes_on():
        started = time.perf_counter()
        await asyncio.sleep(SLEEP_SECONDS)
        late.append(time.perf_counter() - started - SLEEP_SECONDS)
    return late


async def measure(url: str, directory: str) -> None:
    """Measure beside an idle daemon, which tells what the machine itself adds, and during a long answer."""
    settings = Settings(_env_file=None, amqp_url=url, model=directory, health_port=0)
    app = App(settings, ModelLocation(Path(directory), "bench/model", None))
    running = asyncio.create_task(app.run())
    await wait_until(
        lambda: running.done() or not app.lifecycle.not_ready(),
        description="the daemon is ready",
        timeout_seconds=ANSWER_SECONDS,
    )
    requester = Requester(url, settings.queue)
    await requester.connect()
    print(spread("at rest", await lags(lambda: True)), flush=True)
    asked = await requester.send(fields=LONG_ANSWER)
    await requester.until_chunks(asked, 1)
    late = await lags(lambda: not requester.terminals(asked))
    assert len(late) > PROBES / 2, "the answer ended too early"
    print(spread("while decoding", late), flush=True)
    await requester.close()
    app.stop()
    await running


def main() -> None:
    """Measure on a private broker."""
    with PrivateBroker() as broker:
        asyncio.run(measure(broker.url, sys.argv[1]))
    print(circumstances())


if __name__ == "__main__":
    main()

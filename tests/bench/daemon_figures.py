"""What a whole daemon takes: seconds to ready, memory, processor time at rest, how quickly it answers while it decodes.

    PYTHONPATH=deploy/demo python -m tests.bench.daemon_figures MODEL_DIR

Starts a private broker and a daemon with its default settings, twice, so that all caches are warm. The prompt cache is
filled to its bound before memory is read (for a model of half a billion parameters; it needs a tokenizer). `/livez` is
asked up to a thousand times during one long answer; it is served by the event loop, so it takes more than its lag.
"""

import asyncio
import http.client
import sys
import time
from collections.abc import Callable

from private_broker import PrivateBroker

from tests.bench.pairs import circumstances, spread
from tests.support.daemon_process import DaemonProcess
from tests.support.requester import Requester

REST_SECONDS = 20.0
PROBES = 1000
PROMPTS, PROMPT_WORDS = 13, 450
"""Prompts that fill the cache, of about a thousand tokens each."""
LONG_ANSWER = {"max_new_tokens": 1600, "structured_outputs": {"regex": "(a|b|c){1600}"}}
ANSWER_SECONDS = 300.0


def probe(port: int, goes_on: Callable[[], bool]) -> list[float]:
    """Seconds that each of many `/livez` took, one after the other on one connection, while the answer `goes_on`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    seconds: list[float] = []
    while len(seconds) < PROBES and goes_on():
        started = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - started)
        time.sleep(0.005)
    return seconds


async def fill_cache(requester: Requester) -> None:
    """Send prompts that share no beginning."""
    for number in range(PROMPTS):
        prompt = " ".join(f"w{number}" for _ in range(PROMPT_WORDS))
        asked = await requester.send({"messages": [{"role": "user", "content": prompt}], "max_new_tokens": 1})
        assert (await requester.terminal(asked, ANSWER_SECONDS)).code == "ok"


async def probe_during_answer(daemon: DaemonProcess, requester: Requester) -> list[float]:
    """Seconds of `/livez`, all of them while the daemon decodes."""
    asked = await requester.send(fields=LONG_ANSWER)
    await daemon.busy()
    assert daemon.port is not None
    seconds = await asyncio.to_thread(probe, daemon.port, lambda: not requester.terminals(asked))
    assert len(seconds) > PROBES / 2, "the answer ended too early"
    await requester.terminal(asked, ANSWER_SECONDS)
    return seconds


async def measure(url: str, directory: str) -> None:
    """Measure the second of two starts, and print a line for each figure."""
    daemon = DaemonProcess(module="daemon", amqp_url=url, model=directory)
    try:
        await daemon.ready()
        daemon.signal()
        assert await daemon.status() == 0
        started = time.monotonic()
        daemon.start_again()
        await daemon.ready()
        print(f"ready after {time.monotonic() - started:.1f} s")
        mib = {name: daemon.memory_bytes(name) >> 20 for name in ("VmRSS", "VmHWM")}
        print(f"memory when ready: {mib['VmRSS']} MiB, peak at start {mib['VmHWM']} MiB", flush=True)
        requester = Requester(url, "chat.requests")
        await requester.connect()
        await fill_cache(requester)
        print(f"memory with the prompt cache full: {daemon.rss_bytes >> 20} MiB", flush=True)
        seconds = await probe_during_answer(daemon, requester)
        print(spread("/livez during decode", seconds), flush=True)
        before = daemon.cpu_seconds
        await asyncio.sleep(REST_SECONDS)
        print(f"processor at rest: {(daemon.cpu_seconds - before) / REST_SECONDS:.2%} of one")
        await requester.close()
    finally:
        daemon.close()


def main() -> None:
    """Measure on a private broker."""
    with PrivateBroker() as broker:
        asyncio.run(measure(broker.url, sys.argv[1]))
    print(circumstances())


if __name__ == "__main__":
    main()

"""What a whole daemon takes: seconds to ready, memory, processor time at rest, how quickly it answers while it decodes.

    PYTHONPATH=deploy/demo python -m tests.bench.daemon_figures MODEL_DIR

Starts a private broker and a daemon with its default settings, twice, so that all caches are warm. The prompt cache is
filled to its bound before memory is read. `/livez` is asked a thousand times during one long answer; it is served by
the event loop, so what it takes is more than the loop's lag.
"""

import asyncio
import http.client
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import aio_pika
from aio_pika.abc import AbstractChannel
from daemon_process import ask, await_ready, daemon
from private_broker import PrivateBroker, free_port

from tests.bench.pairs import circumstances
from tests.support.wait import wait_until

REST_SECONDS = 20.0
PROBES = 1000
CACHED_PROMPTS, PROMPT_WORDS = 16, 900
QUEUE = "chat.requests"


def status_mib(pid: int, name: str) -> int:
    """A line of /proc/pid/status in MiB: `VmRSS` now, `VmHWM` at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) // 1024


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


class Requester:
    """Publishes requests, whose answers go to one exclusive queue."""

    def __init__(self, channel: AbstractChannel, reply_to: str) -> None:
        self._channel, self._reply_to = channel, reply_to

    async def send(self, text: str, tokens: int) -> None:
        """Publish one request."""
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_new_tokens": tokens,
            "temperature": 0,
            "structured_outputs": {"regex": f"(a|b|c){{{4 * tokens}}}"} if tokens > 1 else None,
        }
        message = aio_pika.Message(
            json.dumps(body).encode(), reply_to=self._reply_to, correlation_id=os.urandom(8).hex()
        )
        await self._channel.default_exchange.publish(message, QUEUE)


async def probed(port: int) -> list[float]:
    """Seconds that each of many `/livez` took, one after the other on one connection."""

    def ask_often() -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        seconds = []
        for _ in range(PROBES):
            started = time.perf_counter()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            seconds.append(time.perf_counter() - started)
            time.sleep(0.005)
        return seconds

    return await asyncio.to_thread(ask_often)


async def measure(url: str, port: int, pid: int) -> None:
    """Fill the prompt cache, look at memory, probe during an answer, then look at rest."""
    print(f"memory when ready: {status_mib(pid, 'VmRSS')} MiB, peak at start {status_mib(pid, 'VmHWM')} MiB")
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        queue = await channel.declare_queue(exclusive=True)
        async with queue.iterator(no_ack=True) as answers:
            requester = Requester(channel, queue.name)
            for number in range(CACHED_PROMPTS):
                await requester.send(" ".join(f"w{number}" for _ in range(PROMPT_WORDS)), 1)
            for _ in range(CACHED_PROMPTS):
                body = json.loads((await anext(answers)).body)
                assert "choices" in body, body
            print(f"memory with the prompt cache full: {status_mib(pid, 'VmRSS')} MiB")
            await requester.send("Say a, b and c.", 400)
            await wait_until(lambda: json.loads(ask(port, "/health")[1])["busy"], description="it is busy")
            seconds = await probed(port)
            assert json.loads(ask(port, "/health")[1])["busy"], "the answer ended before the probes did"
            cuts = quantiles(seconds, n=100)
            print(f"/livez during decode: median {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, ", end="")
            print(f"slowest {max(seconds) * 1e3:.1f} ms")
            await anext(answers)
    before = cpu_seconds(pid)
    await asyncio.sleep(REST_SECONDS)
    print(f"processor at rest: {(cpu_seconds(pid) - before) / REST_SECONDS:.2%} of one")


def main() -> None:
    """Measure the second of two starts."""
    port = free_port()
    with PrivateBroker() as broker:
        settings = {
            "LEVERET_AMQP_URL": broker.url,
            "LEVERET_MODEL": sys.argv[1],
            "LEVERET_HEALTH_PORT": str(port),
            "LEVERET_MAX_SECONDS": "600",
        }
        for last in (False, True):
            with tempfile.NamedTemporaryFile() as log:
                started = time.monotonic()
                with daemon(settings, log.file) as process:
                    await_ready(process, port, Path(log.name))
                    if last:
                        print(f"ready after {time.monotonic() - started:.1f} s")
                        asyncio.run(measure(broker.url, port, process.pid))
    print(circumstances())


if __name__ == "__main__":
    main()

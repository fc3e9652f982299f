"""`make demo`: from nothing to two answers of a real model over RabbitMQ. `make run`: the same, and stay up.

It finds or starts a broker, brings the small model, starts the daemon, sends one request whose answer streams to the
terminal and one plain one, shows `/health` and a summary, and stops everything that it started.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from brokers import DEMO_QUEUE, Cleaner, DemoBroker, NoBroker, configured, own
from daemon_process import DaemonFailed, ask, await_ready, daemon, leveret
from private_broker import BrokerError, free_port

from daemon.client import Client, ClientError
from schemas.names import REQUEST_QUEUE
from schemas.replies import ChatCompletion

SMALL_MODEL = "smollm2-135m"
RUN_ENV = Path(".work/run.env")
"""What `make run` writes for other terminals; read it with the shell's `.`."""
STREAMED = "Explain in three sentences what a message queue is."
PLAIN = "What is the capital of France?"


class Speed:
    """When the first piece of a streamed answer came, in seconds after the request; None before."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.first_seconds: float | None = None

    def piece(self) -> None:
        """Note that a piece has come."""
        if self.first_seconds is None:
            self.first_seconds = time.monotonic() - self._start


@contextlib.contextmanager
def broker() -> Iterator[DemoBroker]:
    """The configured broker, cleaned of what was declared there afterwards, or one of the demo's own."""
    foreign = asyncio.run(configured())
    if foreign is None:
        with own() as found:
            yield found
        return
    cleaner = Cleaner(foreign.url, DEMO_QUEUE)
    asyncio.run(cleaner.look())
    try:
        yield foreign
    finally:
        asyncio.run(cleaner.clean())


def settings_for(found: DemoBroker) -> dict[str, str]:
    """The daemon's settings; a model that the user has chosen is kept."""
    chosen = {"LEVERET_MODEL": os.environ.get("LEVERET_MODEL", SMALL_MODEL), "LEVERET_AMQP_URL": found.url}
    queue = DEMO_QUEUE if found.foreign else os.environ.get("LEVERET_QUEUE", REQUEST_QUEUE)
    return chosen | {"LEVERET_QUEUE": queue}


def fetch(model: str) -> None:
    """Bring the model, unless `model` is a directory; raises CalledProcessError, for `leveret fetch` has said why."""
    if not Path(model).is_dir():
        subprocess.run(leveret("fetch", model), check=True, stdout=subprocess.DEVNULL)


async def ask_twice(url: str, queue: str) -> tuple[Speed, ChatCompletion]:
    """Send the two requests; the streamed one is printed as it comes."""
    async with await Client.connect(url, queue=queue) as client:
        print(f"\n> {STREAMED}")
        speed = Speed()
        request = {"messages": [{"role": "user", "content": STREAMED}], "temperature": 0, "max_new_tokens": 120}
        async with await client.stream(request) as answer:
            async for chunk in answer:
                speed.piece()
                sys.stdout.write("\n[begins anew] " * chunk.restarted + chunk.text)
                sys.stdout.flush()
        print(f"\n\n> {PLAIN}")
        messages = [{"role": "user", "content": PLAIN}]
        plain = await client.complete({"messages": messages, "temperature": 0, "max_new_tokens": 40})
        print(plain.choices[0].message.content)
        return speed, answer.final


def demo(settings: dict[str, str]) -> None:
    """Start the daemon, ask it, show how it is and how fast it was."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="leveret-demo-") as directory:
        log = Path(directory) / "daemon.log"
        with log.open("wb") as output, daemon(settings | {"LEVERET_HEALTH_PORT": str(port)}, output) as process:
            print("Starting the daemon:", flush=True)
            await_ready(process, port, log)
            speed, final = asyncio.run(ask_twice(settings["LEVERET_AMQP_URL"], settings["LEVERET_QUEUE"]))
            print(f"\nGET /health: {ask(port, '/health')[1].strip()}")
    tokens, timings = final.usage.completion_tokens, final.timings
    print(
        f"\nSummary: model {final.model}, first text after {speed.first_seconds or 0:.2f} s, "
        f"{tokens} tokens at {timings.tokens_per_second:.1f} tokens/s."
    )


def stay(settings: dict[str, str]) -> int:
    """Run the daemon in this terminal until a signal, which is passed on; returns its exit status."""
    shown = {name: settings[name] for name in ("LEVERET_AMQP_URL", "LEVERET_QUEUE", "LEVERET_MODEL")}
    if shown["LEVERET_AMQP_URL"] == os.environ.get("LEVERET_AMQP_URL"):
        del shown["LEVERET_AMQP_URL"]  # known to the user, and it may hold a password
    with daemon(settings, None) as process, for_other_terminals(shown):

        def pass_on(number: int, _: FrameType | None) -> None:
            process.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, pass_on)
        return process.wait()


@contextlib.contextmanager
def for_other_terminals(variables: dict[str, str]) -> Iterator[None]:
    """Keep a file while the daemon runs that gives another shell these variables and the command `leveret`."""
    RUN_ENV.parent.mkdir(exist_ok=True)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f'export PATH={shlex.quote(str(Path(".venv/bin").absolute()))}:"$PATH"')
    RUN_ENV.write_text("\n".join(lines) + "\n")
    print("Ctrl-C stops. In another terminal, once the daemon has loaded its model:")
    print(f"  . {RUN_ENV}\n  leveret chat 'Hello'", flush=True)
    try:
        yield
    finally:
        RUN_ENV.unlink(missing_ok=True)


def leave(number: int, _: FrameType | None) -> NoReturn:
    """End on SIGTERM as on Ctrl-C, so that everything started is stopped."""
    raise SystemExit(128 + number)


def main(then: Callable[[dict[str, str]], int | None]) -> int:
    """Set everything up, do `then`, take it down; returns the exit status."""
    signal.signal(signal.SIGTERM, leave)
    try:
        with broker() as found:
            settings = settings_for(found)
            fetch(settings["LEVERET_MODEL"])
            status = then(settings) or 0
        print("Everything that was started is stopped.")
    except subprocess.CalledProcessError:
        return 1
    except (NoBroker, BrokerError, DaemonFailed, ClientError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main(stay if "--stay" in sys.argv[1:] else demo))

"""The composition root: puts broker, worker, engine and HTTP port together and lives their life in order."""

import asyncio
import signal
import sys
import time
from typing import Any

import structlog

from daemon import __version__, logs, systemd, tracing
from daemon.addresses import Addresses
from daemon.admission import Admission
from daemon.attempt import Office
from daemon.bodies import Bodies
from daemon.broker import Broker
from daemon.dead_letters import DeadLetters
from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions, load_engine
from daemon.engine.thread import EngineThread
from daemon.errors import ConfigurationError, ContextLengthExceeded, InvalidRequest
from daemon.generator import Generator
from daemon.health import HealthServer
from daemon.lifecycle import Lifecycle, State
from daemon.models import ModelLocation
from daemon.settings import Settings
from daemon.worker import Worker

SWITCH_SECONDS = 0.0005
"""The interpreter's thread switch interval: keeps the loop's lag low beside a busy Python thread (measured)."""

DEAD_LETTER_SECONDS = 2.0
"""How long a dead letter in work is waited for at shutdown."""

log = structlog.get_logger(__name__)


def engine_loader(settings: Settings, location: ModelLocation) -> Engine:
    """Load the engine as the settings want it; runs in the engine's thread."""
    return load_engine(
        EngineOptions(
            model_dir=location.path,
            weights=settings.weights,
            threads=settings.threads,
            context_tokens=settings.context_tokens,
            prompt_cache_bytes=settings.prompt_cache_bytes,
        )
    )


def warmed(engine: Engine, system_prompt: str | None) -> Engine:
    """The engine, which has computed the operator's system prompt ahead of the first request.

    Raises ConfigurationError where no request could follow it.
    """
    if system_prompt is not None:
        try:
            engine.warm(system_prompt)
        except (ContextLengthExceeded, InvalidRequest) as error:
            raise ConfigurationError(f"LEVERET_SYSTEM_PROMPT cannot be used: {error}") from error
    return engine


def _resolve(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", value: object) -> None:
    """Set the result of `future` from another thread."""
    loop.call_soon_threadsafe(future.set_result, value)


class App:
    """One daemon, from start to stop."""

    def __init__(self, settings: Settings, location: ModelLocation) -> None:
        self._settings = settings
        self._thread = EngineThread(lambda: warmed(engine_loader(settings, location), settings.system_prompt))
        self._broker = broker = Broker(settings)
        self._model_id = model_id = settings.model_id or location.model_id
        bodies = Bodies(model_id)
        addresses = Addresses(settings.reply_to_allow, broker.topology)
        self._worker = Worker(
            Office(
                bus=broker,
                generator=Generator(self._thread),
                admission=Admission(settings, model_id),
                addresses=addresses,
                bodies=bodies,
                daemon_id=settings.daemon_id,
                chunk_seconds=settings.chunk_seconds,
            )
        )
        self._dead = DeadLetters(
            bus=broker,
            addresses=addresses,
            bodies=bodies,
            registry=self._worker.registry,
            daemon_id=settings.daemon_id,
            delivery_limit=settings.delivery_limit,
        )
        broker.connect_to(self._worker.receive, self._dead.receive, self._worker.cancel)
        self.lifecycle = Lifecycle(self._thread, broker)
        self._health = HealthServer(self.lifecycle, model_id, lambda: self._worker.tables)
        self._stop = asyncio.Event()
        self.health_port = settings.health_port

    async def run(self) -> None:
        """Serve until a signal says stop, then drain. Raises ConfigurationError where the start is impossible."""
        sys.setswitchinterval(SWITCH_SECONDS)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.on_loop_exception)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        log.info("starting", version=__version__, daemon=self._settings.daemon_id)
        tracing.start(model_id=self._model_id, queue=self._settings.queue, daemon_id=self._settings.daemon_id)
        self.health_port = await self._health.start(self._settings.health_host, self._settings.health_port)
        try:
            await self._supervise()
        finally:
            self.lifecycle.phase = State.STOPPED
            await self._health.stop()
            self._thread.stop()
            await tracing.stop()
        log.info("stopped")

    async def _supervise(self) -> None:
        """Live, with the side tasks beside; one that ends by itself takes the process with it."""
        self.lifecycle.phase = State.LOADING  # before anybody asks: a small model loads within one tick
        side = {
            asyncio.create_task(self._broker.run(), name="broker"),
            asyncio.create_task(self._worker.run(), name="worker"),
            asyncio.create_task(self._dead.run(), name="dead letters"),
            asyncio.create_task(systemd.keep_notified(self.lifecycle), name="systemd"),
        }
        life = asyncio.create_task(self._live(), name="life")
        try:
            done, _ = await asyncio.wait({life, *side}, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: task is not life):
                task.result()
                if task is not life:
                    raise RuntimeError(f"the task {task.get_name()!r} ended by itself")
                break
        finally:
            await self._broker.close()
            for task in (life, *side):
                task.cancel()
            await asyncio.gather(life, *side, return_exceptions=True)

    async def _live(self) -> None:
        """Load, serve, drain."""
        if await self._load():
            await self._broker.accept()
            self.lifecycle.phase = State.READY
            await self._stop.wait()
        await self._drain()

    async def _load(self) -> bool:
        """Load the model in its thread; False where the stop signal came first."""
        loop = asyncio.get_running_loop()
        loaded: asyncio.Future[BaseException | None] = loop.create_future()
        self._thread.start(lambda error: _resolve(loop, loaded, error))
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        waiters: set[asyncio.Future[Any]] = {loaded, stop}
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if loaded.done() and (error := loaded.result()) is not None:
            raise error
        return loaded.done() and not self._stop.is_set()

    async def _drain(self) -> None:
        """Stop consuming, finish or hand back, within the limit or until a second signal."""
        self.lifecycle.phase = State.DRAINING
        systemd.notify_stopping()
        log.info("draining", seconds=self._settings.drain_seconds, busy=self._worker.busy)
        deadline = time.monotonic() + self._settings.drain_seconds
        self._worker.stop_taking()
        await self._broker.refuse()
        await self._worker.drain(max(0.0, deadline - time.monotonic()))
        await self._dead.drain(DEAD_LETTER_SECONDS)

    def stop(self) -> None:
        """Drain and end; a second call hands the running request back at once."""
        if self._stop.is_set():
            self._worker.hurry()
        self._stop.set()

    def _on_signal(self, number: signal.Signals) -> None:
        log.info("signal received", signal=number.name, again=self._stop.is_set())
        self.stop()

"""The one thread that loads the model and runs every generation, for as long as the process lives."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from daemon.engine.engine import Engine
from daemon.engine.types import Emit, Result, StopCheck, Task, TextEvent
from daemon.errors import GenerationFailed

log = logging.getLogger(__name__)

Outcome = Result | BaseException
"""How a task ended: its result, or whatever was raised."""

_HEARTBEAT_SECONDS = 1.0
"""How often the idle thread shows that it lives."""


@dataclass(frozen=True)
class _Work:
    task: Task
    stop: StopCheck
    emit: Emit
    done: Callable[[Outcome], None]


class EngineThread:
    """Loads an engine in its own thread and runs there whatever is submitted, one task after another.

    Every exception of a task, MemoryError and KeyboardInterrupt included, goes to that task's `done`; the thread lives
    on. `load` may take minutes; where it raises, the thread ends and `failure` holds the exception.
    """

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._inbox: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="leveret-engine", daemon=True)
        self._progress = time.monotonic()
        self._engine: Engine | None = None
        self._busy = False
        self._stopping = False
        self._gate = threading.Lock()  # nothing enters the inbox once `_stopping` is set
        self.failure: BaseException | None = None

    @property
    def alive(self) -> bool:
        """True from `start` until the thread ends."""
        return self._thread.is_alive()

    @property
    def busy(self) -> bool:
        """True while a task runs."""
        return self._busy

    @property
    def loaded(self) -> bool:
        """True once the engine is loaded."""
        return self._engine is not None

    @property
    def engine(self) -> Engine | None:
        """The engine, None until it is loaded; to be read (its context, its vocabulary), not to be run, by others."""
        return self._engine

    @property
    def last_progress(self) -> float:
        """Monotonic seconds of the last sign of life: a step of the model, an idle heartbeat.

        Loading has no steps of its own: until it is over, the thread counts as making progress.
        """
        return self._progress if self.loaded or not self.alive else time.monotonic()

    def start(self, on_loaded: Callable[[BaseException | None], None] | None = None) -> None:
        """Start the thread; `on_loaded` is called in it with None, or with what loading raised."""
        self._on_loaded = on_loaded or (lambda _: None)
        self._thread.start()

    def submit(self, task: Task, stop: StopCheck, emit: Emit, done: Callable[[Outcome], None]) -> None:
        """Queue a task. `stop`, `emit` and, exactly once, `done` are called in the engine's thread.

        Raises GenerationFailed where the thread has been stopped or has ended.
        """
        with self._gate:
            if self._stopping or not self.alive:
                raise GenerationFailed("the engine's thread is not running")
            self._inbox.put(_Work(task, stop, emit, done))

    def stop(self) -> None:
        """Let the thread end after the task that runs; what still waits is told so. Safe to call again."""
        with self._gate:
            self._stopping = True
            self._inbox.put(None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the thread to end; True where it has."""
        self._thread.join(timeout)
        return not self.alive

    def _live(self) -> None:
        if not self._load_engine():
            self.stop()
        while not self._stopping:
            try:
                work = self._inbox.get(timeout=_HEARTBEAT_SECONDS)
            except queue.Empty:
                work = None
            self._touch()
            if work is not None:
                self._serve(work)
                del work  # an idle thread must not hold on to a task's memory
        self._refuse_the_rest()

    def _load_engine(self) -> bool:
        try:
            self._engine = self._load()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must hear of it
            self.failure = error
        self._touch()
        self._call(lambda: self._on_loaded(self.failure))
        return self.failure is None

    def _serve(self, work: _Work) -> None:
        self._busy = True
        outcome: Outcome
        try:
            outcome = self._generate(work)
        except BaseException as error:  # noqa: BLE001 - forwarded to whoever waits for it
            outcome = error
        self._busy = False
        self._touch()
        self._finish(work, outcome)

    def _finish(self, work: _Work, outcome: Outcome) -> None:
        self._call(lambda: work.done(outcome))

    def _generate(self, work: _Work) -> Result:
        if self._engine is None:
            raise GenerationFailed("no model is loaded")

        def stop() -> bool:
            self._touch()
            return work.stop()

        def emit(event: TextEvent) -> None:
            self._touch()
            work.emit(event)

        return self._engine.generate(work.task, stop, emit)

    def _refuse_the_rest(self) -> None:
        while not self._inbox.empty():
            work = self._inbox.get()
            if work is not None:
                self._finish(work, GenerationFailed("the engine is stopping"))

    def _call(self, callback: Callable[[], None]) -> None:
        """A callback that raises is its owner's fault, and must not end the thread that everyone shares."""
        try:
            callback()
        except BaseException:
            log.exception("a callback of the engine's thread raised")

    def _touch(self) -> None:
        self._progress = time.monotonic()

"""The engine's thread: every outcome reaches its owner, and the thread lives on."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.engine.engine import Engine
from daemon.engine.thread import EngineThread, Outcome
from daemon.engine.types import Message, Result, Task, TextEvent
from daemon.errors import GenerationFailed, InvalidRequest
from tests.support.fake_engine import FaultyModel, load_float32
from tests.support.scripted_model import write_scripted_model
from tests.support.wait import block_until

TASK = Task((Message("user", "q"),), temperature=0.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return load_float32(write_scripted_model(Path(tmp_path_factory.mktemp("model")), ["a", "b", "c", "d"]))


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[], Engine]], EngineThread]]:
    """Starts threads, and stops them at the end of the test."""
    threads: list[EngineThread] = []

    def begin(load: Callable[[], Engine]) -> EngineThread:
        threads.append(EngineThread(load))
        threads[-1].start()
        return threads[-1]

    yield begin
    for thread in threads:
        thread.stop()
        assert thread.join(10)


def outcomes(thread: EngineThread, *tasks: Task) -> list[Outcome]:
    """Run the tasks and wait for all of them."""
    done: list[Outcome] = []
    for task in tasks:
        thread.submit(task, lambda: False, lambda _: None, done.append)
    block_until(lambda: len(done) == len(tasks), description="all tasks are done")
    return done


Start = Callable[[Callable[[], Engine]], EngineThread]


def test_results_and_events_come_in_the_thread(engine: Engine, start: Start) -> None:
    """Guards against generations in throw-away threads, or in the caller's."""
    events: list[TextEvent] = []
    seen: list[object] = []
    done = threading.Event()

    def emit(event: TextEvent) -> None:
        events.append(event)
        seen.append(threading.current_thread().name)

    def finish(outcome: Outcome) -> None:
        seen.append(outcome)
        done.set()

    start(lambda: engine).submit(TASK, lambda: False, emit, finish)
    assert done.wait(10)
    assert isinstance(seen[-1], Result)
    assert seen[-1].text == "".join(event.text for event in events) == "abcd"
    assert set(seen[:-1]) == {"leveret-engine"}


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), MemoryError(), KeyboardInterrupt(), SystemExit(3), RecursionError()]
)
@pytest.mark.parametrize("fail_at", [0, 3])
def test_every_exception_is_forwarded_and_the_thread_lives_on(
    error: BaseException, fail_at: int, engine: Engine, start: Start
) -> None:
    """Guards against a reader that waits for ever because the generation died before or between its tokens."""
    broken = Engine(FaultyModel(engine.model, fail_at, error), engine.tokenizer)
    thread = start(lambda: broken)
    first, second = outcomes(thread, TASK, TASK)
    assert first is error
    assert isinstance(second, Result)
    assert thread.alive


def test_refusals_are_outcomes(engine: Engine, start: Start) -> None:
    """Guards the typed errors on their way out of the thread."""
    (outcome,) = outcomes(start(lambda: engine), Task((Message("user", "q"),), stop=("x",), max_new_tokens=10**6))
    assert isinstance(outcome, Exception)
    assert "1000000" in str(outcome)


@pytest.mark.parametrize("where", ["stop", "emit", "done"])
def test_a_callback_that_raises_does_not_end_the_thread(where: str, engine: Engine, start: Start) -> None:
    """Guards the shared thread against one owner's fault; where there is still somebody to tell, he is told."""

    def fail(*_: object) -> bool:
        raise ValueError("a fault of the owner")

    done: list[Outcome] = []
    thread = start(lambda: engine)
    thread.submit(
        TASK,
        fail if where == "stop" else lambda: False,
        fail if where == "emit" else lambda _: None,  # type: ignore[arg-type] # it never returns
        fail if where == "done" else done.append,  # type: ignore[arg-type] # it never returns
    )
    assert isinstance(outcomes(thread, TASK)[0], Result)
    assert [str(outcome) for outcome in done] == ([] if where == "done" else ["a fault of the owner"])


def test_tasks_run_one_after_another(engine: Engine, start: Start) -> None:
    """Guards against two generations on one model at a time."""
    thread = start(lambda: engine)
    running, most = 0, 0
    done: list[Outcome] = []

    def stop() -> bool:
        nonlocal most
        most = max(most, running)
        return False

    def emit(_: TextEvent) -> None:
        nonlocal running
        running = 1

    def finish(outcome: Outcome) -> None:
        nonlocal running
        running = 0
        done.append(outcome)

    for _ in range(5):
        thread.submit(TASK, stop, emit, finish)
    block_until(lambda: len(done) == 5, description="five tasks are done")
    assert most == 1
    assert not thread.busy


def test_loading_is_part_of_the_threads_life(engine: Engine, start: Start) -> None:
    """Guards `loaded`, and progress while a long load has nothing to show."""
    gate = threading.Event()

    def load() -> Engine:
        gate.wait(10)
        return engine

    thread = start(load)
    assert thread.alive
    assert not thread.loaded
    assert time.monotonic() - thread.last_progress < 5
    done: list[Outcome] = []
    thread.submit(TASK, lambda: False, lambda _: None, done.append)
    gate.set()
    block_until(lambda: done, description="the task that waited for the model is done")
    assert thread.loaded
    assert thread.engine is engine


def test_a_failed_load_is_told_and_ends_the_thread() -> None:
    """Guards against a daemon that stays up without a model, and a task that waits for it for ever."""
    told: list[BaseException | None] = []
    done: list[Outcome] = []
    gate = threading.Event()

    def load() -> Engine:
        gate.wait(10)
        raise InvalidRequest("no such model")

    thread = EngineThread(load)
    thread.start(told.append)
    thread.submit(TASK, lambda: False, lambda _: None, done.append)
    gate.set()
    assert thread.join(10)
    assert isinstance(done[0], GenerationFailed)
    assert [str(error) for error in told] == [str(thread.failure)] == ["no such model"]
    with pytest.raises(GenerationFailed, match="not running"):
        thread.submit(TASK, lambda: False, lambda _: None, lambda _: None)


def test_a_stuck_generation_shows_no_progress_and_a_running_one_does(engine: Engine, start: Start) -> None:
    """Guards liveness: the sign of life comes from the model's steps, not from the thread's existence."""
    thread = start(lambda: engine)
    inside, leave = threading.Event(), threading.Event()
    done: list[Outcome] = []

    def stuck(_: TextEvent) -> None:
        inside.set()
        leave.wait(10)

    thread.submit(TASK, lambda: False, stuck, done.append)
    assert inside.wait(10)
    assert thread.busy
    before = thread.last_progress
    assert before <= time.monotonic()
    assert thread.last_progress == before
    leave.set()
    block_until(lambda: done, description="the generation went on")
    assert thread.last_progress > before


def test_an_idle_thread_shows_that_it_lives(engine: Engine, start: Start) -> None:
    """Guards against an idle daemon that looks dead."""
    thread = start(lambda: engine)
    block_until(lambda: thread.loaded, description="the engine is loaded")
    before = thread.last_progress
    block_until(lambda: thread.last_progress > before, description="a heartbeat without work")


def test_stop_lets_the_task_finish_and_refuses_the_rest(engine: Engine) -> None:
    """Guards the shutdown: the running answer is whole, the waiting ones are told, and stopping twice is harmless."""
    thread = EngineThread(lambda: engine)
    thread.start()
    done: list[Outcome] = []
    inside, leave = threading.Event(), threading.Event()

    def hold(_: TextEvent) -> None:
        inside.set()
        leave.wait(10)

    thread.submit(TASK, lambda: False, hold, done.append)
    thread.submit(TASK, lambda: False, lambda _: None, done.append)
    assert inside.wait(10)
    thread.stop()
    thread.stop()
    leave.set()
    assert thread.join(10)
    assert isinstance(done[0], Result)
    assert isinstance(done[1], GenerationFailed)
    assert len(done) == 2

"""The bridge between the event loop and the engine's thread: the loop never waits for the model."""

import asyncio
from collections.abc import Callable

import structlog

from daemon.engine.thread import EngineThread
from daemon.engine.types import Emit, Result, StopCheck, Task, TextEvent
from daemon.errors import GenerationFailed, LeveretError
from daemon.logs import log_failure

log = structlog.get_logger(__name__)


class Generator:
    """Hands tasks to the engine's thread and brings events and the result back into the loop."""

    def __init__(self, thread: EngineThread) -> None:
        self._thread = thread

    async def generate(self, task: Task, stop: StopCheck, feed: Emit) -> Result:
        """Run `task`; `feed` gets each event in the loop, in order and before the result.

        Raises the engine's own LeveretError, or GenerationFailed for anything else that it raised.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result | BaseException] = loop.create_future()

        def emit(event: TextEvent) -> None:
            _post(loop, lambda: feed(event))

        def finish(outcome: Result | BaseException) -> None:
            _post(loop, lambda: _resolve(done, outcome))

        self._thread.submit(task, stop, emit, finish)
        outcome = await done
        if isinstance(outcome, LeveretError):
            raise outcome
        if isinstance(outcome, BaseException):
            raise _failure(outcome) from outcome
        return outcome


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call back in the loop; after it has closed nobody is left to tell."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)


def _resolve(done: "asyncio.Future[Result | BaseException]", outcome: Result | BaseException) -> None:
    """Whoever waited may have been cancelled meanwhile."""
    if not done.done():
        done.set_result(outcome)


def _failure(error: BaseException) -> GenerationFailed:
    """Log where the model failed. The message may quote the prompt, so only the error's type and place are logged."""
    log_failure("generation failed", error)
    return GenerationFailed(f"the model failed on this request: {type(error).__name__}")

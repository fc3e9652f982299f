"""Models that misbehave, wrapped around real ones, and short ways to an engine."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from daemon.engine.engine import Engine
from daemon.engine.load import EngineOptions, load_engine
from daemon.engine.types import Logits, Model, OwnState, Result, State, Task, TextEvent


class WrappedModel:
    """Passes everything on to another model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.vocab_size = model.vocab_size
        self.context_tokens = model.context_tokens
        self.piece_tokens = model.piece_tokens
        self.exact = model.exact

    def new_state(self) -> State:
        """As the port says."""
        return self._model.new_state()

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        return self._model.extend(state, token_ids, logits)

    def truncate(self, state: OwnState, length: int) -> None:
        """As the port says."""
        self._model.truncate(state, length)

    def fork(self, state: OwnState) -> State:
        """As the port says."""
        return self._model.fork(state)


class FaultyModel(WrappedModel):
    """Raises `error` once, in the `extend` call number `fail_at`.

    Call 0 is the only piece of a short prompt, so `fail_at` tokens have come out before the failure.
    """

    def __init__(self, model: Model, fail_at: int, error: BaseException | None = None) -> None:
        super().__init__(model)
        self._fail_at = fail_at
        self._error = error or RuntimeError("the fake model failed")
        self._calls = 0

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        call, self._calls = self._calls, self._calls + 1
        if call == self._fail_at:
            raise self._error
        return super().extend(state, token_ids, logits)


class SlowModel(WrappedModel):
    """Takes `seconds_per_extend` more for each call, without holding the GIL, as real models do."""

    def __init__(self, model: Model, seconds_per_extend: float) -> None:
        super().__init__(model)
        self._seconds = seconds_per_extend

    def extend(
        self, state: OwnState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """As the port says."""
        threading.Event().wait(self._seconds)
        return super().extend(state, token_ids, logits)


def load_float32(directory: Path) -> Engine:
    """The engine of a model directory, on the reference path with one thread."""
    return load_engine(EngineOptions(directory, "float32", 1, None, 0))


def run(engine: Engine, task: Task) -> tuple[Result, list[TextEvent]]:
    """Generate without interruption; the result and all events."""
    events: list[TextEvent] = []
    return engine.generate(task, lambda: False, events.append), events

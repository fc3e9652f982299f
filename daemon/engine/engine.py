"""The engine: a task in, events and a result out. One generation at a time; it is driven by one thread."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.engine.answer import Answer
from daemon.engine.constrain import Constrainer, GrammarCompiler, Unconstrained
from daemon.engine.drafting import PromptLookup
from daemon.engine.generate import Decoding
from daemon.engine.labels import Choosing, Label, continuations_of, encode_labels
from daemon.engine.stepper import Interrupted, Position, Stepper
from daemon.engine.tokenizer import Tokenizer
from daemon.engine.track import Track
from daemon.engine.types import (
    Choice,
    Emit,
    Message,
    Model,
    OwnState,
    PromptCache,
    Result,
    State,
    StopCheck,
    Task,
    Timings,
    Usage,
)
from daemon.errors import ContextLengthExceeded, InvalidRequest

Finish = Literal["stop", "length", "interrupted"]


class NoPromptCache:
    """Starts every prompt from nothing."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def acquire(self, token_ids: Sequence[int]) -> tuple[State, int]:  # noqa: ARG002
        """An empty state."""
        return self._model.new_state(), 0

    def release(self, token_ids: Sequence[int], state: OwnState) -> None:
        """Keep nothing."""


@dataclass(frozen=True)
class Prepared:
    """A task that was found sound, with all that was worked out on the way. Serves one generation.

    `lookup` None: nothing is to be drafted.
    """

    task: Task
    prompt: tuple[int, ...]
    constrainer: Constrainer
    labels: tuple[Label, ...] = ()
    lookup: PromptLookup | None = None

    @property
    def known(self) -> Sequence[int]:
        """The tokens that the state is known to begin with: the prompt and, where they were noted, the answer's."""
        return self.prompt if self.lookup is None else self.lookup.tokens


class Engine:
    """Checks and runs tasks on one model.

    `prompt_cache` None starts every prompt from nothing.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, prompt_cache: PromptCache | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._grammars = GrammarCompiler(tokenizer, model.vocab_size)
        self._cache = NoPromptCache(model) if prompt_cache is None else prompt_cache
        self._checked: Prepared | None = None

    @property
    def context_tokens(self) -> int:
        """The most tokens that prompt and answer may have together."""
        return self.model.context_tokens

    def check(self, task: Task) -> None:
        """Refuse what cannot be served, before any work of the model.

        Raises InvalidRequest, and ContextLengthExceeded naming both numbers. What it works out serves a `generate` of
        the same task object right afterwards.
        """
        self._checked = self._prepare(task)

    def generate(self, task: Task, stop: StopCheck, emit: Emit) -> Result:
        """Run one task: `emit` gets the events as they come, `stop` is asked before every step of the model.

        Raises what `check` raises, GenerationFailed, and whatever the model, `stop` or `emit` raise.
        """
        checked, self._checked = self._checked, None
        prepared = checked if checked is not None and checked.task is task else self._prepare(task)
        return self._run(prepared, Stepper(self.model, stop), Answer(self.tokenizer, task.stop, emit))

    def warm(self, system_prompt: str) -> None:
        """Compute what every prompt behind `system_prompt` begins with, where there is a prompt cache to keep it.

        Raises InvalidRequest, ContextLengthExceeded where no request could follow it, GenerationFailed.
        """
        turns = (Message("system", system_prompt), Message("user", ""))
        task = Task(turns, max_new_tokens=1, temperature=0.0)
        self.check(task)
        if not isinstance(self._cache, NoPromptCache):
            self.generate(task, lambda: False, lambda _: None)

    def _prepare(self, task: Task) -> Prepared:
        if task.stop and task.constraint is not None:
            raise InvalidRequest("stop cannot be combined with a structured output", "stop")
        prompt = tuple(self.tokenizer.encode_chat(task.messages))
        self._check_length(len(prompt), task.max_new_tokens)
        if isinstance(task.constraint, Choice):
            labels = encode_labels(self.tokenizer, task.constraint, task.max_new_tokens)
            return Prepared(task, prompt, Unconstrained(), labels)
        constrainer = Unconstrained() if task.constraint is None else self._grammars.grammar(task.constraint)
        return Prepared(task, prompt, constrainer, lookup=PromptLookup(prompt) if self.model.exact else None)

    def _check_length(self, prompt_tokens: int, max_new_tokens: int) -> None:
        total = prompt_tokens + max_new_tokens
        if total > self.context_tokens:
            raise ContextLengthExceeded(
                f"the prompt has {prompt_tokens} tokens, with max_new_tokens = {max_new_tokens} that makes {total}, "
                f"which exceeds the context of {self.context_tokens} tokens",
                "messages",
            )

    def _run(self, prepared: Prepared, stepper: Stepper, answer: Answer) -> Result:
        started = time.perf_counter()
        decoding_from = None
        state, cached = self._cache.acquire(prepared.prompt)
        finish: Finish
        shares = None
        try:
            start = stepper.start(state, prepared.prompt[cached:], continuations_of(prepared.labels))
            decoding_from = time.perf_counter()
            finish, shares = self._answer(prepared, stepper, start, answer)
        except Interrupted:
            finish = "interrupted"
        answer.finish()
        ended = time.perf_counter()
        self._cache.release(prepared.known[: state.length], state)
        return Result(
            text=answer.text,
            finish_reason=finish,
            usage=Usage(len(prepared.prompt), answer.token_count, cached),
            timings=_timings(started, decoding_from, ended, 0 if prepared.labels else answer.token_count),
            label_probs=shares,
            logprobs=answer.logprobs,
        )

    def _answer(
        self, prepared: Prepared, stepper: Stepper, start: Position, answer: Answer
    ) -> tuple[Finish, Mapping[str, float] | None]:
        task = prepared.task
        if prepared.labels:
            return "stop", Choosing(stepper, self.tokenizer, task, prepared.labels, answer).run(start)
        track = Track(stepper, start, prepared.lookup)
        return Decoding(track, self.tokenizer, task, prepared.constrainer, answer).run(), None


def _timings(started: float, decoding_from: float | None, ended: float, tokens: int) -> Timings:
    """`decoding_from` is None where the prefill was interrupted; `tokens` were decoded, a label's are not."""
    middle = ended if decoding_from is None else decoding_from
    decode_seconds = ended - middle
    return Timings(middle - started, decode_seconds, tokens / decode_seconds if decode_seconds > 0 else 0.0)

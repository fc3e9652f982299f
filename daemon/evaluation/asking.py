"""Asks the cases over the bus, several at a time, and goes on after whatever can pass: a restart, a full queue."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from daemon.client_errors import BrokerUnavailable, ClientError, QueueFull, RequestRefused
from daemon.evaluation.cases import Case
from daemon.evaluation.requests import RunOptions, body_of
from daemon.evaluation.results import Answered, Failed, Outcome, Seconds, Tokens, outcome_of
from schemas.replies import ChatCompletion

PATIENCE_SECONDS = 180.0
"""How long to try again without any answer: time enough to restart a broker or a daemon by hand."""
RETRY_SECONDS = 1.0
"""Pause before the next try."""
TRIES = 3
"""How often a case is asked whose request ends with an error that may pass."""


class Stopped(Exception):
    """The run cannot go on; what was answered is in the results file. The message says why and what to do."""


class Asker(Protocol):
    """What is needed of the client."""

    async def __call__(self, body: Mapping[str, Any]) -> ChatCompletion:
        """Send a request and wait for its answer. Raises ClientError."""


class Asking:
    """One run over cases. `take` gets every outcome as it comes."""

    def __init__(self, ask: Asker, options: RunOptions, take: Callable[[Outcome], None]) -> None:
        self._ask, self._options, self._take = ask, options, take
        self._answered_at = time.monotonic()

    async def run(self, cases: Sequence[Case], in_flight: int) -> None:
        """Ask all cases, `in_flight` at a time. Raises Stopped; then, and when it is cancelled, all requests end."""
        waiting = deque(cases)
        self._answered_at = time.monotonic()

        async def work() -> None:
            while waiting:
                self._take(await self._outcome(waiting.popleft()))

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(min(in_flight, len(cases))):
                    group.create_task(work(), name=f"eval {number}")
        except* Stopped as stopped:
            raise stopped.exceptions[0] from stopped

    async def _outcome(self, case: Case) -> Outcome:
        body, settings = body_of(case, self._options), self._options.digest
        for tries_left in reversed(range(TRIES)):
            started = time.monotonic()
            try:
                completion = await self._patiently(body)
            except RequestRefused as error:
                self._answered_at = time.monotonic()
                if not (error.retryable and tries_left):
                    return outcome_of(case, settings, error=Failed(code=error.code, message=str(error)))
            else:
                self._answered_at = time.monotonic()
                return outcome_of(case, settings, answer=_answered(completion, time.monotonic() - started))
        raise AssertionError("the last try returns")

    async def _patiently(self, body: Mapping[str, Any]) -> ChatCompletion:
        """Ask until there is an answer or an error reply. Raises RequestRefused, Stopped."""
        while True:
            try:
                return await self._ask(body)
            except RequestRefused:
                raise
            except (BrokerUnavailable, QueueFull) as error:
                if time.monotonic() - self._answered_at > PATIENCE_SECONDS:
                    raise Stopped(f"nothing got through for {PATIENCE_SECONDS:g} s: {error}") from error
                await asyncio.sleep(RETRY_SECONDS)
            except ClientError as error:
                raise Stopped(str(error)) from error


def _answered(completion: ChatCompletion, seconds: float) -> Answered:
    usage, timings, choice = completion.usage, completion.timings, completion.choices[0]
    return Answered(
        text=completion.text,
        model=completion.model,
        finish_reason=choice.finish_reason,
        label_probs=choice.label_probs,
        tokens=Tokens(
            prompt=usage.prompt_tokens,
            completion=usage.completion_tokens,
            cached=usage.prompt_tokens_details.cached_tokens,
        ),
        seconds=Seconds(total=seconds, prefill=timings.prefill_seconds, decode=timings.decode_seconds),
    )

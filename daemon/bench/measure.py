"""Measures one kind of weights in a process of its own: `python -m daemon.bench.measure DIRECTORY KIND THREADS`.

A process of its own, so that memory and start-up are those of this kind alone. Prints the figures as one JSON line.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from daemon.bench.figures import BASELINE, Figures, middle
from daemon.engine.load import EngineOptions, load_model
from daemon.engine.prompt_cache import KeepableModel, prompt_cache
from daemon.engine.types import State

SHORT_TOKENS, LONG_TOKENS, DECODED_TOKENS = 128, 1000, 16
_CACHE_BYTES = 268_435_456
_RUNS = 3


class Measurement:
    """A loaded model and the prompts to measure it with. Token ids are arbitrary: speed does not depend on them."""

    def __init__(self, model: KeepableModel) -> None:
        self.model = model
        room = model.context_tokens - DECODED_TOKENS - 1
        self.short, self.long = min(SHORT_TOKENS, room), min(LONG_TOKENS, room)

    def prompt(self, count: int, salt: int = 0) -> list[int]:
        """So many token ids, others for another `salt`."""
        return [(7919 * (i + salt) + salt) % self.model.vocab_size for i in range(1, count + 1)]

    def prefill(self, count: int) -> float:
        """Tokens a second."""
        return count / self._timed(lambda: self._feed(self.model.new_state(), self.prompt(count)))

    def decode(self, count: int) -> float:
        """Tokens a second behind a context of `count` tokens."""
        state = self.model.new_state()
        self._feed(state, self.prompt(count))
        seconds = self._timed(lambda: [self.model.extend(state, [token]) for token in range(DECODED_TOKENS)])
        return DECODED_TOKENS / seconds

    def first_token(self) -> tuple[float, float | None]:
        """Seconds to the logits after the long prompt: cold, and after the same prompt (None without a cache)."""
        cache = prompt_cache(self.model, _CACHE_BYTES)
        seconds = []
        for salt in (1, 1) if cache else (1,):
            prompt = self.prompt(self.long, salt)
            started = time.perf_counter()
            state, cached = cache.acquire(prompt) if cache else (self.model.new_state(), 0)
            self._feed(state, prompt[cached:])
            seconds.append(time.perf_counter() - started)
            if cache:
                cache.release(prompt, state)
        return seconds[0], seconds[1] if cache else None

    def _feed(self, state: State, token_ids: list[int]) -> None:
        size = self.model.piece_tokens
        for begin in range(0, len(token_ids), size):
            last = begin + size >= len(token_ids)
            self.model.extend(state, token_ids[begin : begin + size], "last" if last else "none")

    @staticmethod
    def _timed(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


def measure(model_dir: Path, kind: str, threads: int) -> Figures:
    """Load and measure one kind of weights. Raises ConfigurationError where the model cannot be loaded."""
    started = time.perf_counter()
    model = load_model(EngineOptions(model_dir, kind, threads, None, _CACHE_BYTES))
    run = Measurement(model)
    run.prefill(run.short)
    startup = time.perf_counter() - started
    cold, cached = run.first_token()
    short_context = min(100, run.short)
    return Figures(
        weights=kind,
        threads=threads,
        short_tokens=run.short,
        long_tokens=run.long,
        startup_seconds=startup,
        prefill_short=middle([run.prefill(run.short) for _ in range(_RUNS)]),
        prefill_long=run.prefill(run.long),
        decode=middle([run.decode(short_context) for _ in range(_RUNS)]),
        decode_long=run.decode(run.long),
        first_token_cold_seconds=cold,
        first_token_cached_seconds=cached,
        steady_bytes=memory_bytes("VmRSS"),
        peak_bytes=memory_bytes("VmHWM"),
    )


def memory_bytes(name: str, status: Path = Path("/proc/self/status")) -> int:
    """The resident memory of this process: `VmRSS` now, `VmHWM` at most; 0 where the system does not tell."""
    if not status.exists():
        return 0
    lines = (line.split() for line in status.read_text("utf-8").splitlines())
    return next((int(words[1]) * 1024 for words in lines if words and words[0] == f"{name}:"), 0)


def main() -> None:
    """Measure what the command line names and print it."""
    directory, kind, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if kind == BASELINE:
        os.environ["HF_HUB_OFFLINE"] = "1"
        from daemon.bench.baseline import measure_baseline  # noqa: PLC0415 - it loads transformers

        figures = measure_baseline(directory, threads)
    else:
        figures = measure(directory, kind, threads)
    sys.stdout.write(json.dumps(asdict(figures)) + "\n")


if __name__ == "__main__":
    main()

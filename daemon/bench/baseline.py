"""What the article that this project grew from did: `generate` of transformers, float32, one request at a time."""

import time
from pathlib import Path
from typing import Any

import torch
import transformers

from daemon.bench.figures import BASELINE, Figures, middle
from daemon.bench.measure import DECODED_TOKENS, LONG_TOKENS, SHORT_TOKENS, memory_bytes

_RUNS = 3
_CONTEXT_TOKENS = 100


class _Times:
    """When `generate` had each token: what it takes for a streamer; the prompt comes first."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def put(self, _: torch.Tensor) -> None:
        """A token is there."""
        self.seconds.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to do."""


class _Baseline:
    def __init__(self, model_dir: Path) -> None:
        load: Any = transformers.AutoModelForCausalLM.from_pretrained  # transformers leaves methods without types
        self.network: Any = load(model_dir, dtype=torch.float32, local_files_only=True)
        self.network.generation_config.eos_token_id = None
        room = self.network.config.max_position_embeddings - DECODED_TOKENS - 1
        self.short, self.long = min(SHORT_TOKENS, room), min(LONG_TOKENS, room)

    def seconds(self, prompt_tokens: int) -> float:
        """Until the first token."""
        started = time.perf_counter()
        return self._token_times(prompt_tokens, 1)[0] - started

    def decode(self, prompt_tokens: int) -> float:
        """Tokens a second behind the first."""
        times = self._token_times(prompt_tokens, 1 + DECODED_TOKENS)
        return DECODED_TOKENS / (times[-1] - times[0])

    def _token_times(self, prompt_tokens: int, new_tokens: int) -> list[float]:
        """When one call of `generate` had each of its tokens."""
        times = _Times()
        size = self.network.config.vocab_size
        ids = torch.tensor([[7919 * (i + 1) % size for i in range(prompt_tokens)]])
        with torch.inference_mode():
            self.network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                streamer=times,
            )
        return times.seconds[1:]


def measure_baseline(model_dir: Path, threads: int) -> Figures:
    """Measure plain transformers on the same model directory."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    run = _Baseline(model_dir)
    run.seconds(run.short)
    startup = time.perf_counter() - started
    cold = run.seconds(run.long)
    return Figures(
        weights=BASELINE,
        threads=threads,
        short_tokens=run.short,
        long_tokens=run.long,
        startup_seconds=startup,
        prefill_short=middle([run.short / run.seconds(run.short) for _ in range(_RUNS)]),
        prefill_long=run.long / cold,
        decode=middle([run.decode(min(_CONTEXT_TOKENS, run.short)) for _ in range(_RUNS)]),
        decode_long=run.decode(run.long),
        first_token_cold_seconds=cold,
        first_token_cached_seconds=None,
        steady_bytes=memory_bytes("VmRSS"),
        peak_bytes=memory_bytes("VmHWM"),
    )

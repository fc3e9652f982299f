"""From a model directory to an engine."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.engine.engine import Engine
from daemon.engine.fast_config import supports
from daemon.engine.prompt_cache import KeepableModel, prompt_cache
from daemon.engine.threads import effective_threads
from daemon.engine.tokenizer import load_tokenizer, read_json
from daemon.errors import ConfigurationError

log = logging.getLogger(__name__)

DEFAULT_CONTEXT_TOKENS = 8192
"""Used where the operator sets nothing and the model can hold as much."""

_TORCH_KINDS = {"float32", "bfloat16"}
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length")


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is loaded from.

    `weights`: `int8`, `int4`, `float32` or `bfloat16`, None: int8 where the model's family is supported, else float32;
    `threads` None: as many processors as the quota allows; `context_tokens` None: the smaller of 8192 and the model's.
    """

    model_dir: Path
    weights: str | None
    threads: int | None
    context_tokens: int | None
    prompt_cache_bytes: int


def load_engine(options: EngineOptions) -> Engine:
    """Load model and tokenizer. Raises ConfigurationError, in one sentence, on an unusable directory or option."""
    try:
        return _load(options)
    except PermissionError as error:
        raise ConfigurationError(f"the model cannot be loaded: this user may not read {error.filename}") from error


def _load(options: EngineOptions) -> Engine:
    _read_config(options.model_dir)  # of a directory without a model, this is what to complain about
    tokenizer = load_tokenizer(options.model_dir)
    model = load_model(options)
    if not tokenizer.end_ids:
        log.warning("the model in %s names no end token: every answer runs to its limit", options.model_dir.name)
    return Engine(model, tokenizer, prompt_cache(model, options.prompt_cache_bytes))


def load_model(options: EngineOptions) -> KeepableModel:
    """Load the model alone. Raises ConfigurationError as `load_engine` does."""
    config = _read_config(options.model_dir)
    context_tokens = _context_tokens(config, options.context_tokens)
    threads = effective_threads(options.threads)
    kind = options.weights or _default_weights(options.model_dir, config, context_tokens)
    if kind in _TORCH_KINDS:
        import torch  # noqa: PLC0415 - only this path needs torch, which takes seconds to import

        from daemon.engine.torch_model import load_torch_model  # noqa: PLC0415

        torch.set_num_threads(threads)
        return load_torch_model(options.model_dir, kind, context_tokens)
    if reason := supports(config, context_tokens):
        raise ConfigurationError(f"weights {kind!r} do not fit {options.model_dir.name}: {reason}; use float32")
    from daemon.engine.fast_model import load_fast_model  # noqa: PLC0415 - only this path needs numba

    log.info("loading %s with the fast engine, weights in %s", options.model_dir.name, kind)
    return load_fast_model(options.model_dir, kind, context_tokens, threads)


def _default_weights(model_dir: Path, config: Mapping[str, Any], context_tokens: int) -> str:
    reason = supports(config, context_tokens)
    if reason is None:
        return "int8"
    log.warning("%s runs in float32: %s", model_dir.name, reason)
    return "float32"


def _read_config(model_dir: Path) -> dict[str, Any]:
    if not model_dir.is_dir():
        raise ConfigurationError(f"the model directory {model_dir} does not exist")
    config = read_json(model_dir / "config.json")
    if not config:
        raise ConfigurationError(f"{model_dir} holds no model: config.json is missing")
    return config


def _context_tokens(config: Mapping[str, Any], wanted: int | None) -> int:
    """The context that is served: what the operator wants, which the model must be able to hold."""
    inner = config.get("text_config")
    sizes = {**config, **(inner if isinstance(inner, dict) else {})}
    held = next((size for key in _CONTEXT_KEYS if isinstance(size := sizes.get(key), int)), None)
    if wanted is None:
        return min(DEFAULT_CONTEXT_TOKENS, held or DEFAULT_CONTEXT_TOKENS)
    if held is not None and wanted > held:
        raise ConfigurationError(f"a context of {wanted} tokens is more than the model's {held}")
    return wanted

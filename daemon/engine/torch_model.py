"""The reference model: transformers' own forward pass on torch, for any causal language model that transformers loads.

The only module of the running engine that imports torch and transformers; `load` imports it only where it is wanted.
"""

import copy
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers

from daemon.engine.types import Logits
from daemon.errors import ConfigurationError

log = logging.getLogger(__name__)

_PREFILL_FLOPS = {torch.float32: 45e9, torch.bfloat16: 12e9}
"""Multiply-adds count twice; half a second's worth on two cores of a small CPU (bfloat16 has no fast GEMM on AVX2)."""
_PIECE_RANGE = (8, 128)
_BRANCHED_TOKENS = 8192
"""Keys and values of how many tokens may be copied for the branches of one pass."""


@dataclass
class TorchState:
    """Keys and values of the first `length` tokens, in transformers' own cache object."""

    cache: transformers.DynamicCache
    length: int = 0


class TorchModel:
    """transformers behind the model port (`daemon.engine.types.Model`)."""

    exact = False

    def __init__(self, network: transformers.PreTrainedModel, context_tokens: int) -> None:
        self._network = network
        self.context_tokens = context_tokens
        self.piece_tokens = _piece_tokens(network)
        parameters = inspect.signature(network.forward).parameters
        self._keeps_logits = "logits_to_keep" in parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"  # renamed in transformers 5
        state = self.new_state()
        self.vocab_size = self.extend(state, [0]).shape[-1]
        self._bytes_per_token = _cache_bytes(state.cache)

    def new_state(self) -> TorchState:
        """An empty state."""
        return TorchState(transformers.DynamicCache(config=self._network.config))

    @torch.inference_mode()
    def extend(
        self, state: TorchState, token_ids: Sequence[int], logits: Literal["none", "last", "all"] = "last"
    ) -> Logits:
        """See the port. A head that cannot leave out positions computes them all."""
        if state.length + len(token_ids) > self.context_tokens:
            raise ValueError(f"{state.length} + {len(token_ids)} tokens exceed the context of {self.context_tokens}")
        wanted = {"none": 0, "last": 1, "all": len(token_ids)}[logits]
        options: dict[str, Any] = {self._cache_name: state.cache}
        if self._keeps_logits:
            options["logits_to_keep"] = max(wanted, 1)
        ids = torch.tensor([list(token_ids)], dtype=torch.long)
        output = self._network(input_ids=ids, use_cache=True, **options)
        state.length += len(token_ids)
        rows = output.logits[0]
        return np.array(rows[len(rows) - wanted :].float().numpy())

    def state_bytes(self, length: int) -> int:
        """Memory that the keys and values of `length` tokens take."""
        return self._bytes_per_token * length

    @torch.inference_mode()
    def branches(
        self, state: TorchState, token_ids: Sequence[int], continuations: Sequence[Sequence[int]]
    ) -> tuple[Logits, Sequence[Logits]]:
        """See `BranchingModel`. `token_ids` take a pass of their own.

        The state is copied for each branch of a pass, so behind long prompts the branches take several passes.
        """
        last = self.extend(state, token_ids) if token_ids else np.empty((0, self.vocab_size), np.float32)
        if state.length + max(map(len, continuations)) > self.context_tokens:
            raise ValueError(f"{state.length} tokens and these branches exceed the context of {self.context_tokens}")
        at_once = max(1, _BRANCHED_TOKENS // (state.length + 1))
        passes = (continuations[begin : begin + at_once] for begin in range(0, len(continuations), at_once))
        return last, [rows for together in passes for rows in self._branch(state, together)]

    def _branch(self, state: TorchState, continuations: Sequence[Sequence[int]]) -> list[Logits]:
        cache = copy.deepcopy(state.cache)
        cache.batch_repeat_interleave(len(continuations))
        width = max(map(len, continuations))
        # What is padded comes last, and nothing before it can see it.
        ids = torch.tensor([[*branch, *[0] * (width - len(branch))] for branch in continuations], dtype=torch.long)
        output = self._network(input_ids=ids, use_cache=True, **{self._cache_name: cache})
        logits = output.logits.float()
        return [np.array(rows[: len(branch)].numpy()) for rows, branch in zip(logits, continuations, strict=True)]

    @torch.inference_mode()
    def truncate(self, state: TorchState, length: int) -> None:
        """See the port. Raises RuntimeError on an architecture whose state cannot be shortened."""
        if length < state.length:
            state.cache.crop(length - state.length)
            state.length = length

    @torch.inference_mode()
    def fork(self, state: TorchState) -> TorchState:
        """See the port."""
        return copy.deepcopy(state)


def load_torch_model(model_dir: Path, weights: str, context_tokens: int) -> TorchModel:
    """Load a checkpoint for inference, from local files only, without running code that comes with it.

    `weights` (`float32` or `bfloat16`) is the type computed in, whatever type the checkpoint is stored in:
    transformers 5 would take the checkpoint's, and a bfloat16 one crawls on a CPU without bfloat16 arithmetic.
    Raises ConfigurationError.
    """
    log.info("loading %s with transformers, computing in %s", model_dir.name, weights)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it has no annotations
    try:
        network = transformers.AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, weights), local_files_only=True
        )
        network.train(False)
        return TorchModel(network, context_tokens)
    except Exception as error:  # transformers raises whatever the checkpoint provokes
        raise ConfigurationError(f"the model in {model_dir} cannot be loaded: {_one_line(error)}") from error


def _piece_tokens(network: transformers.PreTrainedModel) -> int:
    """A power of two of tokens that one forward pass gets through in about half a second."""
    embeddings = sum(parameter.numel() for parameter in network.get_input_embeddings().parameters())
    flops_per_token = 2 * max(network.num_parameters() - embeddings, 1)
    fitting = int(_PREFILL_FLOPS[network.dtype] / 2 / flops_per_token)
    smallest, largest = _PIECE_RANGE
    return max(smallest, min(largest, 1 << max(fitting.bit_length() - 1, 0)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _cache_bytes(cache: transformers.DynamicCache) -> int:
    """Bytes of all keys and values in `cache`; layers of another kind count with what they have of both."""
    tensors = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))

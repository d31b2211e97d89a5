"""The reference: transformers' eager implementation, decoded with the cache (ON) and without it (OFF).

Import this before torch: it fixes MKL's code path, without which FP32 products depend on how weights are aligned.
ON prefills the prompt, then feeds one row a step against the cache. OFF computes the whole prefix each step and is fed
ON's tokens (the forced clock), so that every step compares the same prefix. Both compute logits for the last position
only, pick greedily, and give ties to the lowest id. Logits are returned as float64, which holds every compute dtype
exactly.
"""

from __future__ import annotations

import os

os.environ.setdefault("MKL_CBWR", "AVX2,STRICT")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from types import MethodType  # noqa: E402
from typing import Any, Iterator, Sequence  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel  # noqa: E402

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}

Array = np.ndarray


@dataclass
class Decoded:
    """One prompt decoded by both arms: greedy tokens of ON, and logits [steps, vocab] as float64."""

    tokens: list[int]
    logits_on: Array
    logits_off: Array


def load(directory: Path | str, dtype: str) -> PreTrainedModel:
    """Loads a checkpoint directory with eager attention; a float64 model is made double throughout."""
    model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=DTYPES[dtype], attn_implementation="eager")
    model.eval()
    if dtype == "float64":
        patch_to_double(model)
    return model


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode_pair(model: PreTrainedModel, ids: Sequence[int], n_steps: int, prefill_chunk: int | None = None) -> Decoded:
    """Decodes n_steps tokens with ON, then OFF on the same tokens. End-of-sequence tokens do not stop it."""
    logits_on = np.stack(list(steps_on(model, ids, n_steps, prefill_chunk=prefill_chunk)))
    tokens = greedy(logits_on)
    logits_off = np.stack(list(steps_off(model, ids, n_steps, tokens)))
    return Decoded(tokens, logits_on, logits_off)


def greedy(logits: Array) -> list[int]:
    """The argmax of each row; ties go to the lowest id."""
    return [int(token) for token in np.argmax(logits, axis=-1)]


def steps_on(
    model: PreTrainedModel,
    ids: Sequence[int],
    n_steps: int,
    forced: Sequence[int] | None = None,
    prefill_chunk: int | None = None,
) -> Iterator[Array]:
    """Yields the logits of each step with a cache that the model itself makes; feeds `forced` tokens if given."""
    with torch.no_grad():
        cache, logits = None, None
        for chunk in _chunks(ids, prefill_chunk):
            output = model(_rows(chunk), cache=cache, use_cache=True, logits_to_keep=1)
            cache, logits = output.cache, _last(output)
        for step in range(n_steps):
            yield logits
            if step + 1 < n_steps:
                token = forced[step] if forced is not None else greedy(logits[None])[0]
                logits = _last(model(_rows([token]), cache=cache, use_cache=True, logits_to_keep=1))


def steps_off(model: PreTrainedModel, ids: Sequence[int], n_steps: int, forced: Sequence[int]) -> Iterator[Array]:
    """Yields the logits of each step, computing prompt and forced tokens anew every time."""
    with torch.no_grad():
        for step in range(n_steps):
            prefix = [*ids, *forced[:step]]
            yield _last(model(_rows(prefix), use_cache=False, logits_to_keep=1))


def prefill_hidden(model: PreTrainedModel, ids: Sequence[int]) -> Array:
    """Hidden states of the last position in ON's prefill: embeddings, every block's output, the final norm's."""
    core = model.model
    seen: list[Array] = []

    def keep(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
        seen.append(output[0, -1].double().numpy().copy())

    hooks = [module.register_forward_hook(keep) for module in (core.embed_tokens, *core.layers, core.norm)]
    try:
        list(steps_on(model, ids, 1))
    finally:
        for hook in hooks:
            hook.remove()
    return np.stack(seen)


def _chunks(ids: Sequence[int], size: int | None) -> list[Sequence[int]]:
    size = size or len(ids)
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _rows(ids: Sequence[int]) -> torch.Tensor:
    return torch.tensor([list(ids)], dtype=torch.int64)


def _last(output: Any) -> Array:
    return output.logits[0, -1].double().numpy()


# --- metrics ----------------------------------------------------------------------------------------------------------


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kl_nats(left: Array, right: Array) -> Array:
    """KL(left || right) of each row of logits, in FP64. Rows with the same bits give exactly 0."""
    log_left, log_right = log_softmax(left), log_softmax(right)
    kl = (np.exp(log_left) * (log_left - log_right)).sum(axis=-1)
    return np.where((left == right).all(axis=-1), 0.0, np.maximum(kl, 0.0))


def js_nats(left: Array, right: Array) -> Array:
    """Jensen–Shannon divergence of each row of logits, in FP64 nats."""
    log_left, log_right = log_softmax(left), log_softmax(right)
    log_mean = np.logaddexp(log_left, log_right) - np.log(2.0)
    halves = [(np.exp(log_p) * (log_p - log_mean)).sum(axis=-1) for log_p in (log_left, log_right)]
    return np.maximum(0.5 * (halves[0] + halves[1]), 0.0)


def n_bit_equal(left: Array, right: Array) -> int:
    """How many rows (steps) agree in every bit, signs of zero included."""
    return int((left.view(np.int64) == right.view(np.int64)).all(axis=-1).sum())


# --- double throughout ------------------------------------------------------------------------------------------------


def patch_to_double(model: PreTrainedModel) -> None:
    """Makes a float64 model double throughout.

    The library keeps FP32 in norms, softmax, rotary angles and, depending on how it was loaded, Gemma's embedding
    scale. Scales of queries and soft caps are Python floats, which are double already.
    """
    config = model.config
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.forward = MethodType(_gemma_norm if kind.startswith("Gemma") else _llama_norm, module)
        elif kind.endswith("RotaryEmbedding"):
            module.forward = MethodType(_rotary, module)
        elif kind.endswith("ScaledWordEmbedding"):
            module.embed_scale = torch.tensor(config.hidden_size**0.5, dtype=torch.float64)
    ALL_ATTENTION_FUNCTIONS.register("eager_double", _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("eager_double", eager_mask)
    config._attn_implementation = "eager_double"


def _llama_norm(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _gemma_norm(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


def _rotary(self: nn.Module, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if self.rope_type != "default":
        raise NotImplementedError(f"rope type {self.rope_type} in double")
    config = self.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inv_freq = 1.0 / (config.rope_parameters["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
    angles = position_ids[..., None].double() * inv_freq
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if softcap is not None:
        weights = torch.tanh(weights / softcap) * softcap
    if attention_mask is not None:
        weights = weights + attention_mask
    weights = torch.softmax(weights, dim=-1)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights

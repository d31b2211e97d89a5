"""The three architectures in plain numpy float64, written from their published descriptions.

An independent check of the float64 reference: no torch, no cache, whole sequences, loops over heads. Agreement within
rounding (1e-12) says that both compute the same function.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Sequence

import numpy as np

Array = np.ndarray


class NumpyModel:
    """Weights in double, and the config with the defaults of its architecture filled in."""

    def __init__(self, directory: Path | str) -> None:
        directory = Path(directory)
        self.config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self.weights = read_tensors(directory / "model.safetensors")
        self.is_gemma = self.config["model_type"] == "gemma2"
        self.n_layers = self.config["num_hidden_layers"]
        self.n_heads = self.config["num_attention_heads"]
        self.n_kv_heads = self.config["num_key_value_heads"]
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // self.n_heads

    def forward(self, ids: Sequence[int]) -> tuple[Array, Array]:
        """Returns logits [positions, vocab] and hidden states [layers + 2, positions, hidden]."""
        x = self.weights["model.embed_tokens.weight"][list(ids)]
        if self.is_gemma:
            x = x * np.sqrt(self.config["hidden_size"])
        hidden = [x]
        for layer in range(self.n_layers):
            x = self.block(x, layer)
            hidden.append(x)
        x = self.norm(x, "model.norm")
        hidden.append(x)
        return self.head(x), np.stack(hidden)

    def block(self, x: Array, layer: int) -> Array:
        prefix = f"model.layers.{layer}."
        mixed = self.attention(self.norm(x, prefix + "input_layernorm"), layer)
        if self.is_gemma:
            x = x + self.norm(mixed, prefix + "post_attention_layernorm")
            changed = self.mlp(self.norm(x, prefix + "pre_feedforward_layernorm"), prefix)
            return x + self.norm(changed, prefix + "post_feedforward_layernorm")
        x = x + mixed
        return x + self.mlp(self.norm(x, prefix + "post_attention_layernorm"), prefix)

    def norm(self, x: Array, name: str) -> Array:
        gain = self.weights[name + ".weight"] + (1.0 if self.is_gemma else 0.0)
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["rms_norm_eps"]) * gain

    def mlp(self, x: Array, prefix: str) -> Array:
        gate = x @ self.weights[prefix + "mlp.gate_proj.weight"].T
        up = x @ self.weights[prefix + "mlp.up_proj.weight"].T
        return (self.activation(gate) * up) @ self.weights[prefix + "mlp.down_proj.weight"].T

    def activation(self, x: Array) -> Array:
        if self.is_gemma:
            return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
        return x / (1.0 + np.exp(-x))

    def attention(self, x: Array, layer: int) -> Array:
        prefix = f"model.layers.{layer}.self_attn."
        query, key, value = (
            self.split_heads(x @ self.weights[f"{prefix}{name}_proj.weight"].T) for name in ("q", "k", "v")
        )
        query, key = self.rotate(query), self.rotate(key)
        visible = self.visible(len(x), layer)
        group = self.n_heads // self.n_kv_heads
        outputs = []
        for head in range(self.n_heads):
            scores = self.cap(query[head] @ key[head // group].T * self.scale(), "attn_logit_softcapping")
            scores = np.where(visible, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            outputs.append(weights @ value[head // group])
        return np.concatenate(outputs, axis=-1) @ self.weights[prefix + "o_proj.weight"].T

    def split_heads(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.head_dim).swapaxes(0, 1)

    def rotate(self, x: Array) -> Array:
        """Rotary embedding of [heads, positions, head_dim]: pairs are (i, i + head_dim / 2)."""
        half = self.head_dim // 2
        frequencies = float(self.config["rope_theta"]) ** (-np.arange(half) / half)
        angles = np.arange(x.shape[1])[:, None] * frequencies
        first, second = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def scale(self) -> float:
        return float(self.config["query_pre_attn_scalar"] if self.is_gemma else self.head_dim) ** -0.5

    def visible(self, n_positions: int, layer: int) -> Array:
        """True where a query (row) may look at a key (column). A window counts the position itself."""
        distance = np.arange(n_positions)[:, None] - np.arange(n_positions)
        window = self.window(layer)
        return (distance >= 0) & (distance < window) if window else distance >= 0

    def window(self, layer: int) -> int | None:
        if self.config["model_type"] == "mistral":
            return self.config["sliding_window"]
        if self.is_gemma:
            types = self.config.get("layer_types")
            sliding = types[layer] == "sliding_attention" if types else layer % 2 == 0
            return self.config["sliding_window"] if sliding else None
        return None

    def cap(self, x: Array, key: str) -> Array:
        limit = self.config.get(key)
        return limit * np.tanh(x / limit) if limit else x

    def head(self, x: Array) -> Array:
        tied = self.config.get("tie_word_embeddings", self.is_gemma)
        weight = self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]
        return self.cap(x @ weight.T, "final_logit_softcapping")


def read_tensors(path: Path) -> dict[str, Array]:
    """Reads a safetensors file into double arrays; BF16 is widened by hand."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = widen(data[begin:end], entry["dtype"]).reshape(entry["shape"])
    return tensors


def widen(data: bytes, dtype: str) -> Array:
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(np.float64)

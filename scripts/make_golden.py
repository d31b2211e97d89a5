#!/usr/bin/env python3
"""Makes the golden checkpoints of tests/golden: tiny random models, and what the reference computes with them.

Each folder has config.json, model.safetensors, golden.safetensors and golden.json. Every trait of the three
architectures is away from its default, so that a decoder which ignores one of them cannot agree. For each dtype
golden.safetensors holds, as F64 (which is exact for all of them):

  ids                  I64 [prompt]             the prompt
  tokens.<dtype>       I64 [steps]              greedy tokens of the cached arm; OFF is fed the same
  logits_on.<dtype>    F64 [steps, vocab]       logits with the cache
  logits_off.<dtype>   F64 [steps, vocab]       logits of the whole prefix, computed anew each step
  hidden.<dtype>       F64 [layers + 2, hidden] last position of the prefill: embeddings, block outputs, final norm

The bits of 16- and 32-bit results depend on the CPU's instruction sets; golden.json names them. float64 is double
throughout (the library's own keeps FP32 inside) and is checked against plain numpy here.
"""

from __future__ import annotations

import hf_env

hf_env.ensure()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import hf_reference as reference  # noqa: E402
import numpy as np  # noqa: E402
import safetensors  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from numpy_reference import NumpyModel  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

PROMPT_LENGTH = 11
N_STEPS = 24
TOLERANCE = 1e-12

COMMON = {
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 16,
    "initializer_range": 0.02,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "transformers_version": "4.44.2",
    "use_cache": True,
    "vocab_size": 96,
}


@dataclass
class Golden:
    """One model: its config, and the seed and storage type of its weights."""

    name: str
    seed: int
    stored: torch.dtype
    config: dict[str, Any]


GOLDENS = [
    Golden(
        name="tiny-llama",
        seed=1,
        stored=torch.float32,
        config={
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "hidden_act": "silu",
            "hidden_size": 48,
            "intermediate_size": 24,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 2,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "pretraining_tp": 1,
            "rope_scaling": None,
            "rope_theta": 500.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
    ),
    Golden(
        name="tiny-mistral",
        seed=2,
        stored=torch.float16,
        config={
            "architectures": ["MistralForCausalLM"],
            "hidden_act": "silu",
            "hidden_size": 56,
            "intermediate_size": 56,
            "model_type": "mistral",
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "rope_theta": 7777.0,
            "sliding_window": 5,
            "tie_word_embeddings": True,
            "torch_dtype": "float16",
        },
    ),
    Golden(
        name="tiny-gemma2",
        seed=3,
        stored=torch.bfloat16,
        config={
            "architectures": ["Gemma2ForCausalLM"],
            "attention_bias": False,
            "attn_logit_softcapping": 2.0,
            "cache_implementation": "hybrid",
            "final_logit_softcapping": 3.0,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 48,
            "intermediate_size": 24,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "model_type": "gemma2",
            "num_attention_heads": 4,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "pad_token_id": 0,
            "query_pre_attn_scalar": 20,
            "rope_theta": 1234.0,
            "sliding_window": 4,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
    ),
]


def main() -> int:
    args = parse_args()
    torch.set_num_threads(1)
    for golden in GOLDENS:
        if args.only and golden.name not in args.only:
            continue
        folder = args.output / golden.name
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(folder, golden)
        report(folder, write_golden(folder, golden))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  scripts/make_golden.py\n  scripts/make_golden.py --only tiny-gemma2 --output /tmp/golden",
    )
    parser.add_argument("--output", type=Path, default=hf_env.ROOT / "tests" / "golden", help="folder (tests/golden)")
    parser.add_argument("--only", nargs="+", choices=[golden.name for golden in GOLDENS], help="these models only")
    return parser.parse_args()


# --- weights ----------------------------------------------------------------------------------------------------------


def write_checkpoint(folder: Path, golden: Golden) -> None:
    config = dict(sorted({**COMMON, **golden.config}.items()))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rng = np.random.Generator(np.random.PCG64(golden.seed))
    tensors = {name: draw(rng, name, shape, config).to(golden.stored) for name, shape in shapes(config).items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a checkpoint, in the published order."""
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    query, pair = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config["model_type"] == "gemma2":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    block = {f"{name}.weight": (hidden,) for name in norms} | {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (pair, hidden),
        "self_attn.v_proj.weight": (pair, hidden),
        "self_attn.o_proj.weight": (hidden, query),
    }
    result: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        result |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    result["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = (vocab, hidden)
    return result


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...], config: dict[str, Any]) -> torch.Tensor:
    """Random weights of a size at which every part matters.

    A normed input has rows of size √hidden, so a product with rows of size g gives values of size g. Queries and keys
    of 1.3 give scores of size 1.7: neither flat nor one-hot. Logits get a spread of about 2.5.
    """
    if "norm" in name:
        centre = 0.0 if config["model_type"] == "gemma2" else 1.0
        return torch.from_numpy(centre + rng.uniform(-0.5, 0.5, shape))
    if "embed_tokens" in name or "lm_head" in name:
        gain = 2.5
    else:
        gain = {"q_proj": 1.3, "k_proj": 1.3, "gate_proj": 1.5}.get(name.split(".")[-2], 1.2)
    return torch.from_numpy(rng.normal(0.0, gain / np.sqrt(shape[-1]), shape))


# --- what the reference says ------------------------------------------------------------------------------------------


def write_golden(folder: Path, golden: Golden) -> dict[str, torch.Tensor]:
    rng = np.random.Generator(np.random.PCG64([golden.seed, 1]))
    ids = [COMMON["bos_token_id"], *(int(i) for i in rng.integers(3, COMMON["vocab_size"], PROMPT_LENGTH - 1))]
    tensors = {"ids": torch.tensor(ids)}
    for dtype in reference.DTYPES:
        model = reference.load(folder, dtype)
        decoded = reference.decode_pair(model, ids, N_STEPS)
        hidden = reference.prefill_hidden(model, ids)
        if dtype == "float64":
            check_against_numpy(folder, ids, decoded, hidden)
        tensors[f"tokens.{dtype}"] = torch.tensor(decoded.tokens)
        tensors[f"logits_on.{dtype}"] = torch.from_numpy(decoded.logits_on)
        tensors[f"logits_off.{dtype}"] = torch.from_numpy(decoded.logits_off)
        tensors[f"hidden.{dtype}"] = torch.from_numpy(hidden)
    save_file(tensors, folder / "golden.safetensors")
    note = {
        "model": golden.name,
        "command": f"scripts/make_golden.py --only {golden.name}",
        "seed": golden.seed,
        "n_prompt_tokens": PROMPT_LENGTH,
        "n_steps": N_STEPS,
        "n_threads": 1,
        "environment": {"MKL_CBWR": os.environ["MKL_CBWR"]},
        "cpu": {"capability": torch.backends.cpu.get_cpu_capability(), "flags": cpu_flags()},
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, safetensors, np)},
        "attention": "eager",
        "float64": f"double throughout; agrees with numpy to {TOLERANCE} of the largest value",
    }
    (folder / "golden.json").write_text(json.dumps(note, indent=2) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)
    return tensors


def cpu_flags() -> list[str]:
    """The instruction sets that vendor kernels choose by: the bits of 16- and 32-bit goldens hold where these agree."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    known = next((line.split(":")[1].split() for line in text.splitlines() if line.startswith("flags")), [])
    wanted = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")
    return [flag for flag in wanted if flag in known]


def check_against_numpy(folder: Path, ids: list[int], decoded: reference.Decoded, hidden: np.ndarray) -> None:
    logits, states = NumpyModel(folder).forward([*ids, *decoded.tokens[:-1]])
    logits, states = logits[len(ids) - 1 :], states[:, len(ids) - 1]
    for what, ours, theirs in [
        ("logits with cache", decoded.logits_on, logits),
        ("logits without cache", decoded.logits_off, logits),
        ("hidden states", hidden, states),
    ]:
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        print(f"{folder.name}: float64 {what} against numpy: {error:.1e}", file=sys.stderr)
        if not error <= TOLERANCE:
            sys.exit(f"{folder.name}: float64 {what} differ from numpy by {error:.1e}, more than {TOLERANCE}")


def report(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """One line for each dtype: how far the arms part, and where the dtype leaves float64's tokens."""
    best = tensors["tokens.float64"]
    for dtype in reference.DTYPES:
        on, off = (tensors[f"logits_{arm}.{dtype}"].numpy() for arm in ("on", "off"))
        kl, tokens = reference.kl_nats(on, off), tensors[f"tokens.{dtype}"]
        print(
            f"{folder.name} {dtype}: {reference.n_bit_equal(on, off)}/{len(on)} steps bit-equal, "
            f"KL mean {kl.mean():.2e} max {kl.max():.2e}, "
            f"max |Δlogit| {np.abs(on - off).max():.2e}, logit std {on.std():.2f}, "
            f"{len(set(tokens.tolist()))} different tokens, {int((tokens == best).sum())} as in float64"
        )
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder.name}: {total / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())

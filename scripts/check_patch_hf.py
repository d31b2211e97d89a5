#!/usr/bin/env python3
"""Direct K/V patching, done again with transformers: the same cache surgery must leave the same KL.

For each prompt and step the reference decodes with the cache (ON), recomputes the whole prefix with a cache of its own
(OFF), and puts OFF's stored keys and/or values of all layers into ON's cache before ON's step. What KL(on‖off) is left is
compared with kvdiv's `patch` records (off_into_on, positions "stored"). Exit status 1 if any differs by more than 1e-9 of
its size, or by 1e-18 nats.
"""

from __future__ import annotations

import hf_env

hf_env.ensure()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

THREADS = 1


def main() -> int:
    args = parse_args()
    model_dir = hf_env.find_model(args.model)
    prompts = args.ids_of(model_dir, args.limit)
    ours = kvdiv_records(args, model_dir, prompts)
    theirs = reference(args, model_dir, prompts)
    worst, n_bad = 0.0, 0
    for key, (base, patched) in sorted(theirs.items()):
        for name, mine, reference_kl in (("base", ours[key][0], base), ("patched", ours[key][1], patched)):
            difference = abs(mine - reference_kl)
            n_bad += difference > max(1e-9 * reference_kl, 1e-18)
            worst = max(worst, difference / reference_kl if reference_kl > 0 else 0.0)
            if difference > max(1e-9 * reference_kl, 1e-18):
                print(f"{key} {name}: kvdiv {mine:.6e}, transformers {reference_kl:.6e}")
    n_changed = sum(base != patched for base, patched in theirs.values())
    print(f"{args.model} {args.dtype}: {len(theirs)} patches, {n_changed} change the KL; "
          f"{len(theirs) * 2 - n_bad} of {len(theirs) * 2} KLs agree, largest relative difference {worst:.1e}")
    return 1 if n_bad else 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="toy-mistral")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--limit", type=int, default=6, help="prompts")
    parser.add_argument("--steps", default="1,4,8", help="patched steps")
    args = parser.parse_args()
    args.ids_of = ids_of
    args.steps = [int(s) for s in args.steps.split(",")]
    return args


def ids_of(model_dir: Path, limit: int) -> list[list[int]]:
    """GSM8K questions as ids: the model's own file, or its tokenizer's."""
    import compare_hf

    own = model_dir / "gsm8k-ids.jsonl"
    return (compare_hf.ids_of(own) if own.is_file() else compare_hf.tokenised_questions(model_dir))[:limit]


Kls = dict[tuple[int, int, str], tuple[float, float]]


def kvdiv_records(args: argparse.Namespace, model_dir: Path, prompts: list[list[int]]) -> Kls:
    """(prompt, step, what) → KL without and with the patch, from the command's records."""
    out: Kls = {}
    with tempfile.TemporaryDirectory() as folder:
        prompt_file = Path(folder) / "prompts.jsonl"
        prompt_file.write_text("".join(json.dumps({"id": str(i), "ids": ids}) + "\n" for i, ids in enumerate(prompts)))
        command = [hf_env.ROOT / "scripts" / "kvdiv", "patch", "--model", model_dir, "--dtype", args.dtype, "--prompts",
                   prompt_file, "--what", "k,v,kv", "--positions", "stored", "--direction", "off_into_on", "--step",
                   ",".join(map(str, args.steps)), "--max-steps", str(max(args.steps) + 1), "--ignore-eos", "--threads",
                   str(THREADS), "--output", Path(folder) / "out", "--quiet"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        for line in (Path(folder) / "out" / "records.jsonl").read_text().splitlines():
            r = json.loads(line)
            whole = r["heads"] is None and len(r["layers"]) > 1
            if r["offset"] == 0 and r["positions"] == "stored" and whole:
                prompt = int(r["pair_id"].rsplit("/", 1)[1])
                out[prompt, r["step"], r["what"]] = (r["kl_base_nats"], r["kl_patched_nats"])
    return out


def reference(args: argparse.Namespace, model_dir: Path, prompts: list[list[int]]) -> Kls:
    os.environ.update(hf_env.process_environment(THREADS))
    import hf_reference
    import torch

    torch.set_num_threads(THREADS)
    model = hf_reference.load(model_dir, args.dtype)
    out: Kls = {}
    for i, ids in enumerate(prompts):
        decoded = hf_reference.decode_pair(model, ids, max(args.steps) + 1)
        for step in args.steps:
            off = decoded.logits_off[step]
            base = kl_nats(decoded.logits_on[step], off)
            for what in ("k", "v", "kv"):
                patched = patched_step(model, ids, decoded.tokens, step, what)
                out[i, step, what] = (base, kl_nats(patched, off))
    return out


def kl_nats(on: Any, off: Any) -> float:
    """KL(on‖off) as a sum of terms that are each ≥ 0, Σ p (eᵗ − 1 − t) with t = ln(q/p): nothing cancels."""
    import numpy as np

    p = np.exp(on - on.max())
    p /= p.sum()
    change = off - on
    t = change - np.log1p((p * np.expm1(change)).sum())
    series = t * t * (1 / 2 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120 + t / 720))))
    return float((p * np.where(np.abs(t) < 1e-2, series, np.expm1(t) - t)).sum())


def patched_step(model: Any, ids: list[int], tokens: list[int], step: int, what: str) -> Any:
    """ON's logits of a step whose cache holds OFF's keys and/or values of everything before the newest token."""
    import torch
    from transformers import DynamicCache

    def call(rows: list[int], cache: Any) -> Any:
        return model(torch.tensor([rows]), cache=cache, use_cache=True, logits_to_keep=1)

    with torch.no_grad():
        on = call(ids, None).cache
        for token in tokens[: step - 1]:
            call([token], on)
        # A plain cache keeps every position of every layer; the model's own would drop what ON's sliding layers still hold.
        off = call([*ids, *tokens[:step]], DynamicCache()).cache
        for mine, other in zip(on.layers, off.layers):
            n = mine.keys.shape[2]
            first = other.keys.shape[2] - 1 - n  # ON's sliding layers hold the last ones; OFF's newest is not stored yet
            if "k" in what:
                mine.keys.copy_(other.keys[:, :, first : first + n])
            if "v" in what:
                mine.values.copy_(other.values[:, :, first : first + n])
        return call([tokens[step - 1]], on).logits[0, -1].double().numpy()


if __name__ == "__main__":
    sys.path.insert(0, str(hf_env.ROOT / "scripts"))
    sys.exit(main())

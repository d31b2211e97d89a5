#!/usr/bin/env python3
"""The eager loop that kvdiv's pair throughput is held against: transformers on a GPU, a published config, random weights.

  scripts/gpu_python_loop.py CONFIG.json [--prefix 128,512,1024] [--steps 12] [--dtype float16]

A pair's step is one forward call of one token against the cache, one of the whole prefix without a cache, and the
divergence of the two rows in float64, as the published experiment does it. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--prefix", default="128,512,1024", help="(128,512,1024)")
    parser.add_argument("--steps", type=int, default=12, help="(12)")
    parser.add_argument("--dtype", default="float16", help="(float16)")
    parser.add_argument("--device", default="cuda", help="(cuda)")
    args = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"gpu_python_loop: {error}", file=sys.stderr)
        return 3
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    model = make_model(args, torch, transformers)
    rows = [measure(model, prefix, args, torch) for prefix in map(int, args.prefix.split(","))]
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "attention": "eager",
                      "dtype": args.dtype, "rows": rows}))
    return 0


def make_model(args: argparse.Namespace, torch: Any, transformers: Any) -> Any:
    values = json.loads(args.config.read_text(encoding="utf-8"))
    kind = values.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **values)
    config._attn_implementation = "eager"
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, args.dtype))
    try:
        with torch.device(args.device):  # weights are made where they are used
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    finally:
        torch.set_default_dtype(default)
    return model.to(dtype=getattr(torch, args.dtype)).eval()


def measure(model: Any, prefix: int, args: argparse.Namespace, torch: Any) -> dict[str, Any]:
    vocab = model.config.vocab_size
    ids = torch.tensor([[i * 37 % vocab for i in range(prefix)]], device=args.device)
    token = torch.tensor([[17]], device=args.device)
    cache = model(ids, use_cache=True).past_key_values

    def synchronize() -> None:
        if args.device == "cuda":
            torch.cuda.synchronize()

    def on() -> Any:
        logits = model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        cache.crop(prefix)
        return logits

    def off() -> Any:
        return model(ids, use_cache=False, logits_to_keep=1).logits

    def pair() -> float:
        p, q = (torch.log_softmax(x[0, -1].double(), -1) for x in (on(), off()))
        return float((p.exp() * (p - q)).sum())

    def median(work: Any) -> float:
        seconds = []
        for i in range(args.steps + 2):
            synchronize()
            start = time.perf_counter()
            work()
            synchronize()
            if i >= 2:
                seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    out = {"prefix": prefix, "on_s": median(on), "off_s": median(off)}
    out["pairs_per_s"] = 1.0 / median(pair)
    return out


if __name__ == "__main__":
    sys.exit(main())

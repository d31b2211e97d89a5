#!/usr/bin/env python3
"""Measures kvdiv's decoding speed against transformers': the same prompts, the same tokens, the same thread count.

The programs take turns, pair by pair, so that a busy machine slows both. kvdiv decodes a prompt with and without the
cache and reports its rates; the reference, loaded once in a process of its own, then decodes the same prompt in both
ways, fed kvdiv's tokens. A rate is new tokens divided by the time of the arm's whole loop, prefill included. A ratio
is kvdiv's rate divided by the reference's: above 1, kvdiv is faster. Exit status 1 if the median ratio of an arm is
below --min-ratio, 3 if something is missing, 4 if a program failed.
"""

from __future__ import annotations

import hf_env

hf_env.ensure()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, Callable, Sequence  # noqa: E402


@dataclass
class Rates:
    """New tokens per second of both arms, and the tokens that ON chose."""

    on: float
    off: float
    tokens: list[int]


def main() -> int:
    args = parse_args()
    if args.worker:
        return serve(args.worker, args.dtype, args.threads)
    if not args.binary.is_file():
        fail(3, f"no binary {args.binary}; build kvdiv first (cmake --build --preset release), or give --binary FILE")
    model = hf_env.find_model(args.model)
    prompts_file = args.prompts or model / "gsm8k-ids.jsonl"
    if not prompts_file.is_file():
        fail(3, f"no {prompts_file}; give prompts with `ids` as --prompts FILE")
    lines = [line for line in prompts_file.read_text(encoding="utf-8").split("\n") if line]
    reference = Reference(model, args)
    print(f"{args.model} {args.dtype}, backend {args.backend} against eager transformers, {args.threads} threads, {args.max_new_tokens} new tokens; tokens/s")
    ratios: dict[str, list[float]] = {"on": [], "off": []}
    for offset in range(args.offset, min(args.offset + args.pairs, len(lines))):
        ours = run_kvdiv(model, prompts_file, offset, args)
        theirs = reference.run(json.loads(lines[offset])["ids"], ours.tokens)
        for arm, values in ratios.items():
            values.append(getattr(ours, arm) / getattr(theirs, arm))
        print(line_of(offset, ours, theirs), flush=True)
    reference.close()
    return verdict(ratios, {"on": args.min_ratio, "off": args.min_ratio_off or args.min_ratio})


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  scripts/bench_hf.py --backend invariant --min-ratio 2.5 --min-ratio-off 5\n  scripts/bench_hf.py --pairs 5 --max-new-tokens 64 --threads 1"
        "\n  scripts/bench_hf.py --model toy-llama --prompts prompts-ids.jsonl --dtype float32",
    )
    parser.add_argument("--model", default="smollm2-135m-f16", help="name or directory (smollm2-135m-f16)")
    parser.add_argument("--dtype", default="float16", help="(float16)")
    parser.add_argument("--backend", default="torch", help="kvdiv's arithmetic: torch, invariant (torch)")
    parser.add_argument("--prompts", type=Path, help="JSONL with `ids` (gsm8k-ids.jsonl of the model)")
    parser.add_argument("--pairs", type=int, default=3, help="prompts to decode (3)")
    parser.add_argument("--offset", type=int, default=0, help="first prompt (0)")
    parser.add_argument("--max-new-tokens", type=int, default=32, metavar="N", help="(32)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="(all cores)")
    parser.add_argument("--min-ratio", type=float, default=1.0, help="fail below this median ratio (1.0)")
    parser.add_argument("--min-ratio-off", type=float, help="of OFF, if it is another one")
    parser.add_argument("--binary", type=Path, default=hf_env.ROOT / "build/release/bin/kvdiv",
                        help="(build/release/bin/kvdiv)")
    parser.add_argument("--worker", metavar="DIR", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- kvdiv ------------------------------------------------------------------------------------------------------------


def run_kvdiv(model: Path, prompts: Path, offset: int, args: argparse.Namespace) -> Rates:
    with tempfile.TemporaryDirectory(prefix="kvdiv-bench-") as folder:
        output = Path(folder) / "result"
        command = [str(args.binary), "run", "--model", str(model), "--dtype", args.dtype, "--prompts", str(prompts)]
        command += ["--backend", args.backend]
        command += ["--offset", str(offset), "--limit", "1", "--max-new-tokens", str(args.max_new_tokens)]
        command += ["--ignore-eos", "--threads", str(args.threads), "--clock", "forced", "--json", "--quiet"]
        command += ["--output", str(output)]
        done = subprocess.run(
            command, env=hf_env.process_environment(args.threads), text=True, capture_output=True, check=False
        )
        if done.returncode != 0:
            fail(4, f"kvdiv run failed with status {done.returncode}:\n{done.stderr.strip()[-2000:]}")
        timing = json.loads((output / "report.json").read_text())["conditions"][0]["timing"]
        records = (json.loads(line) for line in (output / "records.jsonl").read_text().split("\n") if line)
        tokens = next(record["tokens_on"] for record in records if record["type"] == "pair")
    return Rates(timing["on_tokens_per_s"], timing["off_tokens_per_s"], tokens)


# --- the reference ----------------------------------------------------------------------------------------------------


class Reference:
    """The model loaded once in a process with its own threads; one JSON line in, one out."""

    def __init__(self, model: Path, args: argparse.Namespace) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(model), "--dtype", args.dtype]
        self.process = subprocess.Popen(
            [*command, "--threads", str(args.threads)],
            env=hf_env.process_environment(args.threads),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, ids: Sequence[int], tokens: Sequence[int]) -> Rates:
        assert self.process.stdin and self.process.stdout
        print(json.dumps({"ids": ids, "tokens": tokens}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            fail(4, f"the reference stopped with status {self.process.wait()}")
        return Rates(**json.loads(answer))

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def serve(directory: str, dtype: str, n_threads: int) -> int:
    """The process behind Reference: answers each line of stdin with the rates of both arms."""
    import hf_reference
    import torch

    torch.set_num_threads(n_threads)
    model = hf_reference.load(directory, dtype)
    warm = [1, 2, 3, 4]
    timed(loop_on, model, warm, warm)
    timed(loop_off, model, warm, warm)
    for line in sys.stdin:
        task = json.loads(line)
        on_rate, tokens = timed(loop_on, model, task["ids"], task["tokens"])
        off_rate, _ = timed(loop_off, model, task["ids"], task["tokens"])
        print(json.dumps({"on": on_rate, "off": off_rate, "tokens": tokens}), flush=True)
    return 0


def timed(loop: Callable[..., list[int]], model: Any, ids: list[int], forced: list[int]) -> tuple[float, list[int]]:
    import torch

    with torch.no_grad():
        start = time.perf_counter()
        chosen = loop(model, ids, forced)
        return len(chosen) / (time.perf_counter() - start), chosen


def loop_on(model: Any, ids: list[int], forced: list[int]) -> list[int]:
    """Prefill, then one token a step against the cache; returns what greedy would choose."""
    import torch

    output = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    chosen = [int(output.logits[0, -1].argmax())]
    for token in forced[:-1]:
        output = model(torch.tensor([[token]]), cache=output.cache, use_cache=True, logits_to_keep=1)
        chosen.append(int(output.logits[0, -1].argmax()))
    return chosen


def loop_off(model: Any, ids: list[int], forced: list[int]) -> list[int]:
    """The whole prefix each step, without a cache."""
    import torch

    chosen = []
    for step in range(len(forced)):
        output = model(torch.tensor([[*ids, *forced[:step]]]), use_cache=False, logits_to_keep=1)
        chosen.append(int(output.logits[0, -1].argmax()))
    return chosen


# --- result -----------------------------------------------------------------------------------------------------------


def line_of(offset: int, ours: Rates, theirs: Rates) -> str:
    same = sum(a == b for a, b in zip(ours.tokens, theirs.tokens))
    arms = [
        f"{arm.upper():<3} kvdiv {getattr(ours, arm):8.2f}  transformers {getattr(theirs, arm):8.2f}  "
        f"ratio {getattr(ours, arm) / getattr(theirs, arm):5.2f}"
        for arm in ("on", "off")
    ]
    return f"prompt {offset:<4} {'   '.join(arms)}   same tokens {same}/{len(ours.tokens)}"


def verdict(ratios: dict[str, list[float]], least: dict[str, float]) -> int:
    if not ratios["on"]:
        fail(3, "no prompts left after --offset")
    medians = {arm: statistics.median(values) for arm, values in ratios.items()}
    slow = [f"{arm.upper()} below {least[arm]}" for arm, median in medians.items() if median < least[arm]]
    text = ", ".join(f"{arm.upper()} {median:.2f}" for arm, median in medians.items())
    print(f"median ratio: {text}" + (f": {' and '.join(slow)}" if slow else ""))
    return 1 if slow else 0


def fail(status: int, message: str) -> None:
    print(f"bench_hf: {message}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    sys.exit(main())

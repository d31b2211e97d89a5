#!/usr/bin/env python3
"""Shows that kvdiv equals transformers: the same logits, bit for bit, in both arms.

Both programs decode the same prompts with the cache (ON) and without it (OFF, fed ON's tokens). For each model, dtype
and thread count a line says in how many steps the logits of all tokens agree in every bit, by how much they differ at
most, and how far ON and OFF part inside each program. float64 is compared with the reference made double throughout,
within 1e-12 of the largest logit. Exit status 1 if any 16- or 32-bit step is not bit-equal or float64 is out of
tolerance, 3 if something is missing, 4 if a program failed.

Each program runs in a process of its own for each thread count, because threads and MKL's code path are fixed at start.
"""

from __future__ import annotations

import hf_env

hf_env.ensure()

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from dataclasses import asdict, dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

MODELS = ["toy-llama", "toy-mistral", "toy-gemma2"]
DTYPES = ["float16", "bfloat16", "float32", "float64"]
TOLERANCE = 1e-12
PROMPT = "Question: {}\nAnswer:"

HEADER = (
    f"{'model':<20} {'dtype':<8} {'thr':>3}  {'ON':>9} {'OFF':>9} {'max|Δ|':>8}   "
    f"{'KL mean':>8} {'KL max':>8} {'max|Δ|':>8}   {'KL mean':>8} {'KL max':>8} {'max|Δ|':>8}"
)
GROUPS = f"{'':<34} {'kvdiv against reference':<29} {'kvdiv, ON against OFF':<28} reference, ON against OFF"


@dataclass
class Drift:
    """How far ON and OFF part in one program, over same-prefix steps."""

    kl_mean_nats: float
    kl_max_nats: float
    max_abs_dlogit: float


@dataclass
class Row:
    """One model, dtype and thread count, over all prompts."""

    model: str
    dtype: str
    n_threads: int
    n_steps: int
    n_equal_on: int
    n_equal_off: int
    max_abs_difference: float
    kvdiv: Drift
    reference: Drift

    @property
    def equal(self) -> bool:
        return self.n_equal_on == self.n_equal_off == self.n_steps


@dataclass
class Logits:
    """Logits of both arms, [all steps of all prompts, vocab], as float64."""

    on: np.ndarray
    off: np.ndarray


def main() -> int:
    args = parse_args()
    if args.worker:
        return worker(json.loads(args.worker))
    if not args.binary.is_file():
        fail(3, f"no binary {args.binary}; build kvdiv first (cmake --build --preset release), or give --binary FILE")
    rows = []
    print(GROUPS, HEADER, sep="\n", flush=True)
    for name in args.models:
        model = hf_env.find_model(name)
        prompts = prompts_for(model, args)
        for n_threads in args.threads:
            reference = run_reference(model, prompts, n_threads, args)
            for dtype in args.dtypes:
                ours = run_kvdiv(model, prompts, dtype, n_threads, args)
                rows.append(compare(name, dtype, n_threads, ours, reference[dtype]))
                print(text_of(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    unequal = [row for row in rows if not row.equal]
    print(f"{len(rows) - len(unequal)} of {len(rows)} lines agree in every step" + (": FAILED" if unequal else ""))
    return 1 if unequal else 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  scripts/compare_hf.py\n  scripts/compare_hf.py --models toy-llama --dtypes float16"
        "\n  scripts/compare_hf.py --models smollm2-135m-f16 --dtypes float16,float32 --limit 1 --max-new-tokens 16",
    )
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--models", type=names, default=MODELS, help=f"names or directories ({','.join(MODELS)})")
    parser.add_argument("--dtypes", type=names, default=DTYPES, help=f"({','.join(DTYPES)})")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in names(text)], default=[1, 2], help="(1,2)")
    parser.add_argument("--ids", type=Path, help="prompts: JSONL with `ids` (default: questions of GSM8K)")
    parser.add_argument("--limit", type=int, default=3, help="prompts of each model (3)")
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="steps of each prompt (64)")
    parser.add_argument("--prefill-chunk", type=int, metavar="C", help="prefill ON in chunks of C tokens")
    parser.add_argument("--binary", type=Path, default=hf_env.ROOT / "build/release/bin/kvdiv_dump_logits",
                        help="(build/release/bin/kvdiv_dump_logits)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.dtypes) - set(DTYPES)
    if unknown:
        parser.error(f"--dtypes: unknown {', '.join(sorted(unknown))}; there are {', '.join(DTYPES)}")
    return args


# --- prompts ----------------------------------------------------------------------------------------------------------


def prompts_for(model: Path, args: argparse.Namespace) -> list[list[int]]:
    """The first prompts that leave room for the new tokens: given ids, the model's own, or GSM8K questions."""
    if args.ids:
        candidates = ids_of(args.ids)
    elif (model / "gsm8k-ids.jsonl").is_file():
        candidates = ids_of(model / "gsm8k-ids.jsonl")
    elif (model / "golden.safetensors").is_file():
        from safetensors.numpy import load_file

        candidates = [load_file(model / "golden.safetensors")["ids"].tolist()]
    else:
        candidates = tokenised_questions(model)
    room = json.loads((model / "config.json").read_text())["max_position_embeddings"] - args.max_new_tokens
    prompts = [ids for ids in candidates if len(ids) <= room][: args.limit]
    if not prompts:
        fail(3, f"{model}: no prompt leaves room for {args.max_new_tokens} new tokens; give fewer or --ids FILE")
    return prompts


def ids_of(path: Path) -> list[list[int]]:
    return [json.loads(line)["ids"] for line in path.read_text(encoding="utf-8").split("\n") if line]


def tokenised_questions(model: Path) -> list[list[int]]:
    import sentencepiece

    questions, tokenizer = hf_env.ROOT / "data" / "gsm8k" / "test.jsonl", model / "tokenizer.model"
    for path in (questions, tokenizer):
        if not path.is_file():
            fail(3, f"no {path}; give prompts as --ids FILE")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    texts = [json.loads(line)["question"] for line in questions.read_text(encoding="utf-8").split("\n") if line]
    return [[processor.bos_id(), *processor.encode(PROMPT.format(text))] for text in texts]


# --- the two programs -------------------------------------------------------------------------------------------------


def run_reference(model: Path, prompts: list[list[int]], n_threads: int, args: argparse.Namespace) -> dict[str, Logits]:
    """Decodes all prompts in all dtypes with transformers, in a process with that many threads."""
    with tempfile.TemporaryDirectory(prefix="kvdiv-compare-") as folder:
        task = {
            "model": str(model),
            "prompts": prompts,
            "dtypes": args.dtypes,
            "n_threads": n_threads,
            "n_steps": args.max_new_tokens,
            "prefill_chunk": args.prefill_chunk,
            "folder": folder,
        }
        start([sys.executable, str(Path(__file__).resolve()), "--worker", json.dumps(task)], n_threads)
        result = {}
        for dtype in args.dtypes:
            arrays = np.load(Path(folder) / f"{dtype}.npz")
            result[dtype] = Logits(arrays["on"], arrays["off"])
        return result


def worker(task: dict) -> int:
    """The process behind run_reference()."""
    import hf_reference
    import torch

    torch.set_num_threads(task["n_threads"])
    for dtype in task["dtypes"]:
        model = hf_reference.load(task["model"], dtype)
        runs = [hf_reference.decode_pair(model, ids, task["n_steps"], task["prefill_chunk"]) for ids in task["prompts"]]
        on, off = (np.concatenate([getattr(run, arm) for run in runs]) for arm in ("logits_on", "logits_off"))
        np.savez(Path(task["folder"]) / f"{dtype}.npz", on=on, off=off)
    return 0


def run_kvdiv(
    model: Path, prompts: list[list[int]], dtype: str, n_threads: int, args: argparse.Namespace
) -> Logits:
    """Decodes each prompt with kvdiv in a process of its own."""
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    arms: dict[str, list[np.ndarray]] = {"on": [], "off": []}
    with tempfile.TemporaryDirectory(prefix="kvdiv-compare-") as folder:
        ids_file, prefix = Path(folder) / "ids.json", Path(folder) / "logits"
        for ids in prompts:
            ids_file.write_text(json.dumps(ids))
            command = [str(args.binary), "--model", str(model), "--dtype", dtype, "--ids", str(ids_file)]
            command += ["--max-new-tokens", str(args.max_new_tokens), "--threads", str(n_threads), "--out", str(prefix)]
            if args.prefill_chunk:
                command += ["--prefill-chunk", str(args.prefill_chunk)]
            start(command, n_threads)
            for arm, parts in arms.items():
                logits = np.fromfile(f"{prefix}.{arm}.f64", dtype="<f8").reshape(-1, vocab)
                if len(logits) != args.max_new_tokens:
                    fail(4, f"{args.binary.name} wrote {len(logits)} steps, expected {args.max_new_tokens}")
                parts.append(logits)
    return Logits(np.concatenate(arms["on"]), np.concatenate(arms["off"]))


def start(command: list[str], n_threads: int) -> None:
    done = subprocess.run(
        command, env=hf_env.process_environment(n_threads), text=True, capture_output=True, check=False
    )
    if done.returncode != 0:
        fail(4, f"{Path(command[0]).name} failed with status {done.returncode}:\n{done.stderr.strip()[-2000:]}")


def fail(status: int, message: str) -> None:
    print(f"compare_hf: {message}", file=sys.stderr)
    sys.exit(status)


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(name: str, dtype: str, n_threads: int, ours: Logits, theirs: Logits) -> Row:
    from hf_reference import n_bit_equal

    differences = [np.abs(ours.on - theirs.on), np.abs(ours.off - theirs.off)]
    if dtype == "float64":
        limit = TOLERANCE * np.abs(theirs.off).max()
        n_equal = [int((difference.max(axis=-1) <= limit).sum()) for difference in differences]
    else:
        n_equal = [n_bit_equal(ours.on, theirs.on), n_bit_equal(ours.off, theirs.off)]
    largest = max(float(difference.max()) for difference in differences)
    return Row(name, dtype, n_threads, len(theirs.on), *n_equal, largest, drift(ours), drift(theirs))


def drift(logits: Logits) -> Drift:
    from hf_reference import kl_nats

    kl = kl_nats(logits.on, logits.off)
    return Drift(float(kl.mean()), float(kl.max()), float(np.abs(logits.on - logits.off).max()))


def text_of(row: Row) -> str:
    counts = [f"{n}/{row.n_steps}" for n in (row.n_equal_on, row.n_equal_off)]
    drifts = [f"{d.kl_mean_nats:8.2e} {d.kl_max_nats:8.2e} {d.max_abs_dlogit:8.2e}" for d in (row.kvdiv, row.reference)]
    return (
        f"{row.model[-20:]:<20} {row.dtype:<8} {row.n_threads:>3}  {counts[0]:>9} {counts[1]:>9} "
        f"{row.max_abs_difference:8.2e}   {drifts[0]}   {drifts[1]}"
    )


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Train the toy models that ship with kvdiv: toy-mistral and toy-gemma2.

Each is a real, small language model of its published architecture, trained from scratch on the GSM8K training split
with a SentencePiece vocabulary of its own. The text of one example is exactly

    Question: {question}\\nAnswer: {answer}

with BOS before and EOS after it, so a prompt `Question: ...\\nAnswer:` is continued by steps, `#### N` and EOS.
The traits that make the two architectures interesting (sliding window, soft-caps, GQA, head layout) are active in
training: config.json is written first, and the model that is trained is the one built from that file.

    python3 scripts/train_toys.py toy-mistral          # about 15 minutes on an idle core; toy-gemma2 likewise
    python3 scripts/train_toys.py toy-mistral --check  # reload the saved files, print losses and samples

Needs torch, transformers (5.x), sentencepiece, safetensors. Same machine, same versions, same arguments: same bits.
"""
import argparse
import functools
import hashlib
import io
import json
import math
import random
import sys
import time
from pathlib import Path

import sentencepiece as spm
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma2 import modeling_gemma2

log = functools.partial(print, file=sys.stderr, flush=True)
REPO = Path(__file__).resolve().parent.parent
VOCAB = 1024
N_HELD_OUT = 373  # the last problems of the training split; never trained on, and neither is the test split
WHITESPACE_RUNS = ["\n" * n for n in range(1, 5)] + ["\u2581" * n for n in range(2, 9)]

SPECS = {
    "toy-mistral": {
        "config": {
            "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
            "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.05, "intermediate_size": 344,
            "max_position_embeddings": 1024, "model_type": "mistral", "num_attention_heads": 8,
            "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
            "sliding_window": 48, "tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True,
            "vocab_size": VOCAB},
        "sentencepiece": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1, "add_dummy_prefix": True},
        "tokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None,
                      "tokenizer_class": "LlamaTokenizer", "legacy": False}},
    "toy-gemma2": {
        "config": {
            "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "attn_logit_softcapping": 10.0, "bos_token_id": 2, "eos_token_id": 1, "final_logit_softcapping": 15.0,
            "head_dim": 32, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 112, "initializer_range": 0.05, "intermediate_size": 384,
            "layer_types": ["sliding_attention", "full_attention"] * 2, "max_position_embeddings": 1024,
            "model_type": "gemma2", "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
            "pad_token_id": 0, "query_pre_attn_scalar": 24, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
            "sliding_window": 32, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCAB},
        "sentencepiece": {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "add_dummy_prefix": False,
                          "user_defined_symbols": WHITESPACE_RUNS},
        "tokenizer": {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>",
                      "tokenizer_class": "GemmaTokenizer"}},
}


def prompt_of(row):
    return f"Question: {row['question']}\nAnswer:"


def text_of(row):
    return f"{prompt_of(row)} {row['answer']}"


def read_rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train_tokenizer(rows, spec, path):
    """SentencePiece BPE; a newline is a byte piece, or a symbol of its own where the options define it."""
    blob = io.BytesIO()
    lines = (line for row in rows for line in text_of(row).split("\n"))
    names = {f"{kind}_piece": spec["tokenizer"][f"{kind}_token"] or "<pad>" for kind in ("unk", "bos", "eos", "pad")}
    spm.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=blob, model_type="bpe", vocab_size=VOCAB, byte_fallback=True,
        split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.9999, num_threads=1, minloglevel=1, **names, **spec["sentencepiece"])
    path.write_bytes(blob.getvalue())


def encode_all(tokenizer, rows):
    """BOS + text + EOS; asserts that the prompt's ids are a prefix of the whole text's ids."""
    out = []
    for row in rows:
        prompt, whole = tokenizer.encode(prompt_of(row)), tokenizer.encode(text_of(row))
        assert whole[:len(prompt)] == prompt, row
        out.append([tokenizer.bos_id(), *whole, tokenizer.eos_id()])
    return out


def make_batches(sequences, tokens_per_batch, rng):
    """Batches of sequences of similar length, at most tokens_per_batch with padding, in random order."""
    order = sorted(range(len(sequences)), key=lambda i: (len(sequences[i]), rng.random()))
    batches = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * len(sequences[i]) > tokens_per_batch:
            batches.append([])
        batches[-1].append(i)
    rng.shuffle(batches)
    return batches


def summed_loss(model, sequences):
    """Sum of next-token losses in nats and the number of tokens predicted. Padding is on the right, where causal
    attention cannot see it, and carries no label; positions count from 0 as in decoding."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    labels = torch.full((len(sequences), width), -100)
    for i, sequence in enumerate(sequences):
        ids[i, :len(sequence)] = labels[i, :len(sequence)] = torch.tensor(sequence)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    return loss, int((labels[:, 1:] >= 0).sum())


@torch.no_grad()
def mean_loss(model, sequences):
    model.eval()
    parts = [summed_loss(model, [sequences[i] for i in batch])
             for batch in make_batches(sequences, 4096, random.Random(0))]
    return sum(loss.item() for loss, _ in parts) / sum(n for _, n in parts)


def unigram_entropy(train, held_out):
    """Held-out loss of the best model that ignores context (add-one smoothed training frequencies)."""
    counts = torch.ones(VOCAB, dtype=torch.float64)
    for sequence in train:
        counts += torch.bincount(torch.tensor(sequence[1:]), minlength=VOCAB)
    nats = -(counts / counts.sum()).log()
    return nats[[i for sequence in held_out for i in sequence[1:]]].mean().item()


def optimizer_for(model, args):
    groups = [{"params": [p for p in model.parameters() if (p.ndim > 1) == decays],
               "weight_decay": args.weight_decay * decays} for decays in (True, False)]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True)


def fit(model, sequences, args):
    """AdamW (norms do not decay) in float32, linear warm-up, cosine to 1/100. Returns the mean of the last losses."""
    rng, optimizer, plan = random.Random(args.seed), optimizer_for(model, args), []
    while len(plan) < args.steps:
        plan += make_batches(sequences, args.batch_tokens, rng)
    del plan[args.steps:]
    model.train()
    began, recent = time.time(), []
    for step, batch in enumerate(plan):
        warm = min(1.0, (step + 1) / args.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * step / len(plan)))
        for group in optimizer.param_groups:
            group["lr"] = args.lr * warm * (0.01 + 0.99 * cosine)
        loss, n = summed_loss(model, [sequences[i] for i in batch])
        (loss / n).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent = recent[-99:] + [loss.item() / n]
        if (step + 1) % 50 == 0 or step + 1 == len(plan):
            rate = (step + 1) / (time.time() - began)
            log(f"step {step + 1}/{len(plan)}  loss {sum(recent) / len(recent):.3f} nats/token  "
                f"{rate:.2f} steps/s  ETA {(len(plan) - step - 1) / rate / 60:.1f} min")
    return sum(recent) / len(recent)


@torch.no_grad()
def softcap_use(model, sequences):
    """How far scores and logits reach before the caps, and the shares that a cap changes by over 1 % and 10 %."""
    scores, logits, published = [], [], modeling_gemma2.eager_attention_forward

    def spy(module, query, key, value, mask, scaling=None, **kwargs):
        x = query @ modeling_gemma2.repeat_kv(key, module.num_key_value_groups).transpose(2, 3) * scaling
        scores.append(x[(mask == 0).expand_as(x)])
        return published(module, query, key, value, mask, scaling=scaling, **kwargs)

    hook = model.lm_head.register_forward_hook(lambda _module, _inputs, out: logits.append(out.flatten()))
    modeling_gemma2.eager_attention_forward = spy
    try:
        for sequence in sequences:
            model(input_ids=torch.tensor([sequence]), use_cache=False)
    finally:
        modeling_gemma2.eager_attention_forward = published
        hook.remove()
    lines, caps = [], (model.config.attn_logit_softcapping, model.config.final_logit_softcapping)
    for name, values, cap in zip(("scores", "logits"), (scores, logits), caps):
        x = torch.cat(values).abs() / cap
        bent = 1 - torch.tanh(x) / x.clamp_min(1e-9)
        lines.append(f"{name}: cap {cap:g}, largest |value| before the cap {x.max().item() * cap:.2f}, "
                     f"changed by over 1 %: {100 * (bent > .01).double().mean():.1f} %, "
                     f"over 10 %: {100 * (bent > .1).double().mean():.1f} %")
    return lines


@torch.no_grad()
def greedy(model, tokenizer, prompt, n_tokens=200):
    ids = [tokenizer.bos_id(), *tokenizer.encode(prompt)]
    start = len(ids)
    while len(ids) - start < n_tokens and ids[-1] != tokenizer.eos_id():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        if not torch.isfinite(logits).all():
            raise SystemExit(f"{model.dtype}: non-finite logits at position {len(ids)}")
        ids.append(int(logits[-1].argmax()))
    return tokenizer.decode(ids[start:]) + ("<EOS>" if ids[-1] == tokenizer.eos_id() else "...")


def check(folder, data):
    """Reload the saved files: samples in float16 and float32, then losses of the stored 16-bit weights."""
    tokenizer = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    for dtype in (torch.float16, torch.float32):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
        for row in read_rows(data / "test.jsonl")[:3]:
            log(f"--- {dtype}\n{prompt_of(row)}{greedy(model, tokenizer, prompt_of(row))}")
    rows = read_rows(data / "train.jsonl")
    train, held_out = (encode_all(tokenizer, part) for part in (rows[:-N_HELD_OUT], rows[-N_HELD_OUT:]))
    facts = [f"loss of the stored weights, computed in float32, nats/token: "
             f"train {mean_loss(model, train[:1000]):.4f} (first 1,000 problems), "
             f"held-out {mean_loss(model, held_out):.4f} (last {N_HELD_OUT}); "
             f"unigram baseline {unigram_entropy(train, held_out):.4f}; uniform {math.log(VOCAB):.4f}"]
    return facts + (softcap_use(model, held_out[:64]) if model.config.model_type == "gemma2" else [])


def write_configs(spec, folder):
    config = spec["config"]
    files = {
        "config": config,
        "generation_config": {key: config[key] for key in config if key.endswith("token_id")},
        "tokenizer_config": {"add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
                             "model_max_length": config["max_position_embeddings"], "sp_model_kwargs": {},
                             **spec["tokenizer"]}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def train(name, folder, args):
    spec, began = SPECS[name], time.time()
    write_configs(spec, folder)
    rows = read_rows(args.data / "train.jsonl")[:-N_HELD_OUT]
    train_tokenizer(rows, spec, folder / "tokenizer.model")
    tokenizer = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    sequences = encode_all(tokenizer, rows)
    torch.manual_seed(args.seed)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), dtype=torch.float32, attn_implementation="eager")
    n_params = sum(p.numel() for p in model.parameters())
    log(f"{name}: {n_params} parameters, {len(sequences)} texts, {sum(map(len, sequences))} tokens")
    loss = fit(model, sequences, args)
    dtype, tied = spec["config"]["torch_dtype"], model.config.tie_word_embeddings
    save_file({key: value.to(getattr(torch, dtype)).contiguous() for key, value in model.state_dict().items()
               if not (tied and key == "lm_head.weight")}, folder / "model.safetensors", metadata={"format": "pt"})
    write_source(name, folder, [
        f"{n_params} parameters, stored as {dtype}; trained in float32: seed {args.seed}, "
        f"{args.steps} steps of up to {args.batch_tokens} tokens, peak rate {args.lr:g}, "
        f"{(time.time() - began) / 60:.0f} minutes of wall time on {args.threads} CPU thread(s)",
        f"mean training loss over the last 100 steps: {loss:.4f} nats/token", *check(folder, args.data)])


def write_source(name, folder, facts):
    lines = ["Made for this project from scratch; no published weights went into it. Training text:",
             f"data/gsm8k/train.jsonl (MIT) without its last {N_HELD_OUT} problems; tokenizer.model: the same text.",
             f"Command: python3 scripts/train_toys.py {name}", *facts, "sha256:"]
    lines += [f"{hashlib.sha256((folder / file).read_bytes()).hexdigest()}  {file}"
              for file in ("model.safetensors", "tokenizer.model", "config.json")]
    (folder / "SOURCE.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    log("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=SPECS)
    parser.add_argument("--output", type=Path, default=REPO / "data" / "models", help="parent of the model's folder")
    parser.add_argument("--data", type=Path, default=REPO / "data" / "gsm8k", help="has train.jsonl, test.jsonl")
    parser.add_argument("--check", action="store_true", help="only reload and judge what is there")
    for name, default in {"seed": 1, "steps": 3600, "batch-tokens": 1024, "lr": 4e-3, "weight-decay": 0.1,
                          "warmup": 100, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = args.output / args.model
    if args.check:
        log("\n".join(check(folder, args.data)))
    else:
        train(args.model, folder, args)


if __name__ == "__main__":
    main()

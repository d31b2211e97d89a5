#!/bin/sh
# Makes gemma-like/tokenizer.model: a small SentencePiece model with the traits of Gemma's (no dummy prefix, no
# normalisation, byte fallback, BOS 2, runs of spaces and of newlines and a few tags as user-defined pieces), trained
# with Debian's spm_train 0.1.97 on the questions of the GSM8K training split (MIT). Run it in this folder.
set -eu
python3 - <<'PY'
import json
rows = [json.loads(line) for line in open("../../../data/gsm8k/train.jsonl", encoding="utf-8")]
open("questions.txt", "w", encoding="utf-8").writelines(row["question"].replace("\n", " ") + "\n" for row in rows)
spaces = ["\u2581" * n for n in range(2, 32)]
newlines = ["\n" * n for n in range(1, 9)]
tags = ["<code>", "</code>", "<h1>", "<start_of_turn>"]
open("symbols.txt", "w", encoding="utf-8").write(",".join(spaces + newlines + tags))
PY
mkdir -p gemma-like
spm_train --input=questions.txt --model_prefix=gemma-like/tokenizer --model_type=bpe --vocab_size=900 \
  --byte_fallback=true --add_dummy_prefix=false --remove_extra_whitespaces=false \
  --normalization_rule_name=identity --split_digits=true \
  --pad_id=0 --eos_id=1 --bos_id=2 --unk_id=3 --pad_piece='<pad>' --eos_piece='<eos>' --bos_piece='<bos>' \
  --user_defined_symbols="$(cat symbols.txt)" --num_threads=1 --minloglevel=1
rm -f questions.txt symbols.txt gemma-like/tokenizer.vocab

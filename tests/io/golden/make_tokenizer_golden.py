#!/usr/bin/env python3
"""Writes tokenizer_golden.json: token ids as other implementations give them, BOS included.

usage: make_tokenizer_golden.py DIR    DIR/llama-2 and DIR/mistral-7b-v0.3 hold the published tokenizer.json files
needs: tokenizers, transformers (checked with 5.24), sentencepiece (0.2)

`texts`: ids of the sentencepiece package. The published tokenizer.json, read by the tokenizers library, must agree, but
for texts that spell a special token, which is plain text here, and for texts that start with a space: there Mistral's
tokenizer.json adds no space of its own and SentencePiece does.
`gsm8k`: SHA-256 over all prompts' ids (little-endian int64) by transformers, with `legacy` true and false, and for the
shipped toy as it is.
"""
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile

import sentencepiece
import tokenizers
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MODELS = {"llama-2": "tokenizer.model", "mistral-7b-v0.3": "tokenizer.model.v3"}
TEXTS = ["", " ", "  ", "uns", "<s>uns", "</s>Human is Here", "<bos>", "<s>", "</s>", "<unk>", "<s> <s>", "\n", "\nx",
         "\n\n", "a\nb",
         "Hello", " Hello", "  Hello", "Hello ", "a  b", " " * 27,
         "\n    x", "\t", "<code>", "[INST] x [/INST]", "\u200b", "\u00a0",
         "\u2212", "3 \u2212 5 = \u22122", "\U0001f600", "caf\u00e9 \u20ac5",
         "\u00bd \u00d7 \u00f7 \u00be", "e\u0301", "\ufffd", "a\0b", "\r\n",
         "<0x0A>",
         "1,234.50", "$29.00", "Question: What is 2+2?\nAnswer:", "\u4f60\u597d", "\ufeffx"]
SPECIAL = ("<s>", "</s>", "<unk>", "[INST]", "[/INST]")


def prompts():
    with open(ROOT / "data/gsm8k/test.jsonl", encoding="utf-8") as rows:
        return [f"Question: {json.loads(row)['question']}\nAnswer:" for row in rows]


def hash_of(encode):
    digest = hashlib.sha256()
    for prompt in prompts():
        digest.update(b"".join(i.to_bytes(8, "little") for i in encode(prompt)))
    return digest.hexdigest()


def with_legacy(folder, legacy):
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(folder / "tokenizer.json", scratch)
        config = {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "bos_token": "<s>", "eos_token": "</s>",
                  "unk_token": "<unk>", "add_bos_token": True}
        pathlib.Path(scratch, "tokenizer_config.json").write_text(json.dumps(config))
        return transformers.AutoTokenizer.from_pretrained(scratch)


def golden(name, folder):
    published = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    processor = sentencepiece.SentencePieceProcessor(str(ROOT / "tests/corpus/tokenizers" / name / MODELS[name]))
    texts = []
    for text in TEXTS:
        plain = [1] + processor.encode(text)
        differs = any(word in text for word in SPECIAL) or text.startswith(" ")
        if not differs and published.encode(text).ids != plain:
            sys.exit(f"{name}: {text!r}: {plain} against {published.encode(text).ids}")
        texts.append({"text": text, "ids": plain})
    return {"texts": texts, "gsm8k": {f"legacy_{legacy}".lower(): hash_of(with_legacy(folder, legacy).encode)
                                      for legacy in (True, False)}}


source = pathlib.Path(sys.argv[1])
out = {name: golden(name, source / name) for name in MODELS}
# The shipped toy has no tokenizer.json: transformers converts its tokenizer.model.
toy = transformers.AutoTokenizer.from_pretrained(ROOT / "data/models/toy-llama")
out["toy-llama"] = {"texts": [], "gsm8k": {"as_shipped": hash_of(toy.encode)}}
(HERE / "tokenizer_golden.json").write_text(json.dumps(out).replace("}, {", "},\n{") + "\n")

#!/usr/bin/env python3
"""Writes random_golden.json: what Python's own random.Random gives (checked with CPython 3.11).

Long samples are kept as their ends and the SHA-256 of the comma-separated numbers."""
import hashlib
import json
import pathlib
import random

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**32 + 42, 2**63 - 1, 2**64 - 1]
SIZES = [(0, 0), (1, 0), (1, 1), (5, 5), (21, 5), (22, 5), (22, 22), (85, 6), (86, 6), (277, 85), (278, 85), (277, 86),
         (1045, 86), (1046, 86), (1319, 0), (1319, 1), (1319, 10), (1319, 340), (1319, 342), (1319, 700), (1319, 1319),
         (7473, 8), (100000, 5), (100000, 300), (2**31, 40), (2**40, 50), (2**62, 7)]


def sample_case(seed, n, k):
    drawn = random.Random(seed).sample(range(n), k)
    text = ",".join(map(str, drawn))
    return {"seed": seed, "n": n, "k": k, "first": drawn[:10], "last": drawn[-5:],
            "sha256": hashlib.sha256(text.encode()).hexdigest()}


def bits_case(seed):
    rng = random.Random(seed)
    return {"seed": seed, "bits": [rng.getrandbits(k) for k in range(1, 65)],
            "below": [rng._randbelow(n) for n in (1, 2, 3, 7, 1319, 2**32 - 1, 2**32, 2**32 + 1, 2**63 + 1, 2**64 - 1)]}


out = {"samples": [sample_case(s, n, k) for s in SEEDS for n, k in SIZES], "bits": [bits_case(s) for s in SEEDS]}
rows = ",\n".join(json.dumps(row) for row in out["samples"])
bits = ",\n".join(json.dumps(row) for row in out["bits"])
path = pathlib.Path(__file__).with_name("random_golden.json")
path.write_text(f'{{"samples": [\n{rows}\n],\n"bits": [\n{bits}\n]}}\n')

#!/usr/bin/env python3
"""Writes metrics.json: KL both ways and JS of rows of logits, computed with mpmath at 100 digits or more.

Usage: make_metrics_golden.py > metrics.json        (a few minutes; needs mpmath)

The rows are not stored: they come from a 64-bit linear congruential generator and from IEEE operations only (no library
function), so that metrics_test.cpp makes the same doubles; `check` holds the last logit of each row against it.
The definition is used as it stands, sum of p (ln p - ln q), with digits to spare for every cancellation.
"""
import json
import sys

import mpmath

MASK = (1 << 64) - 1


class Lcg:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 11) * 2.0**-53


def rows(case):
    random = Lcg(case["seed"])
    on, off = [], []
    for _ in range(case["n"]):
        x = (random.uniform() - 0.5) * case["spread"]
        on.append(x)
        off.append(x + ((random.uniform() - 0.5) * 2.0 * case["scale"] + case["shift"]))
    return on, off


def divergences(on, off):
    p = [mpmath.exp(mpmath.mpf(x)) for x in on]
    q = [mpmath.exp(mpmath.mpf(x)) for x in off]
    sum_p, sum_q = mpmath.fsum(p), mpmath.fsum(q)
    log_p = [mpmath.mpf(x) - mpmath.log(sum_p) for x in on]
    log_q = [mpmath.mpf(x) - mpmath.log(sum_q) for x in off]
    p = [x / sum_p for x in p]
    q = [x / sum_q for x in q]
    log_m = [mpmath.log((a + b) / 2) for a, b in zip(p, q)]
    kl = mpmath.fsum(a * (x - y) for a, x, y in zip(p, log_p, log_q))
    reverse = mpmath.fsum(b * (y - x) for b, x, y in zip(q, log_p, log_q))
    js = mpmath.fsum(a * (x - m) + b * (y - m) for a, b, x, y, m in zip(p, q, log_p, log_q, log_m)) / 2
    return float(kl), float(reverse), float(js)


def main():
    cases, seed = [], 1
    for scale in [1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0]:
        for n in [2, 5, 33, 1000]:
            for spread, shift in [(4.0, 0.0), (40.0, 0.0), (40.0, 3.0), (1500.0, -250.0)]:
                cases.append({"seed": seed, "n": n, "spread": spread, "scale": scale, "shift": shift})
                seed += 1
    cases += [{"seed": 9001 + i, "n": 256000, "spread": 20.0, "scale": s, "shift": 0.0}
              for i, s in enumerate([1e-13, 1e-2])]
    out = []
    for case in cases:
        mpmath.mp.dps = 900 if case["spread"] > 100 else 100  # the former come to 1e-222 nats and less
        on, off = rows(case)
        kl, reverse, js = divergences(on, off)
        out.append(dict(case, check=[on[-1], off[-1]], kl_on_off=kl, kl_off_on=reverse, js=js))
    sys.stdout.write("[\n" + ",\n".join(json.dumps(case) for case in out) + "\n]\n")


main()

#!/usr/bin/env python3
"""Makes tests/golden/stats/golden.json: what SciPy and statsmodels say, for tests/stats/golden_test.cpp.

The file holds the versions and a list of cases {name, function, args, expected}. `expected` names only those fields of
kvdiv's result that have a reference; null means that kvdiv must say null. Where SciPy's own numbers are good to fewer
than 11 digits (quantiles of t, the exact Mann-Whitney distribution of large samples), they are computed here in another
way and SciPy is held against them. All inputs come from fixed seeds and are rounded to six digits.
"""

from __future__ import annotations

import stats_env

stats_env.ensure()

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import statsmodels.api as sm  # noqa: E402
from scipy import stats  # noqa: E402
from stats_golden_samples import Case, Values, agree, case, draw, t_quantile, two_sample_cases  # noqa: E402
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar  # noqa: E402
from statsmodels.stats.multitest import multipletests  # noqa: E402

# ---- counts and families --------------------------------------------------------------------------------------------


def mcnemar_case(b: int, c: int, n: int) -> Case:
    exact = stats.binomtest(min(b, c), b + c, 0.5).pvalue if b + c else 1.0
    if b + c:
        agree(exact, sm_mcnemar([[0, b], [c, 0]], exact=True).pvalue, 1e-12)
    point = stats.binom.pmf(min(b, c), b + c, 0.5)
    mid_p = 1.0 - 0.5 * point if b == c else exact - point
    chi2: dict[str, Any] = {"statistic": None, "df": None, "p": None}
    if b + c:
        statistic = max(0, abs(b - c) - 1) ** 2 / (b + c)
        chi2 = {"statistic": statistic, "df": 1.0, "p": stats.chi2.sf(statistic, 1)}
        if b != c:  # statsmodels does not clamp |b − c| − 1 at 0
            reference = sm_mcnemar([[0, b], [c, 0]], exact=False, correction=True)
            agree(chi2["p"], reference.pvalue, 1e-12)
    expected = {
        "b": b,
        "c": c,
        "exact": {"statistic": min(b, c), "p": exact, "effect": (b - c) / n},
        "mid_p": {"p": mid_p if b + c else 1.0},
        "chi2": chi2,
    }
    return case(f"mcnemar {b} {c} of {n}", "mcnemar", {"b": b, "c": c, "n": n}, expected)


def mcnemar_cases() -> list[Case]:
    counts = [(0, 0), (1, 0), (0, 1), (5, 1), (10, 2), (12, 3), (25, 25), (3, 17), (200, 0), (1000, 900)]
    return [mcnemar_case(b, c, 2 * (b + c) + 10) for b, c in counts]


def adjust_cases() -> list[Case]:
    rng = np.random.default_rng(40)
    families: dict[str, list[float | None]] = {
        "four": [0.01, 0.04, 0.03, 0.005],
        "five equal": [0.05] * 5,
        "one": [0.03],
        "tiny and null": [1e-60, None, 0.5, 1e-8, None, 0.9, 1.0],
        "sixty": [float(f"{p:.6g}") for p in rng.uniform(0, 0.2, 60) ** 2],
    }
    methods = {"bonferroni": "bonferroni", "holm": "holm", "benjamini-hochberg": "fdr_bh"}
    cases = []
    for name, p in families.items():
        given = [x for x in p if x is not None]
        for method, theirs in methods.items():
            adjusted = iter(multipletests(given, method=theirs)[1].tolist())
            expected = {"m": len(given), "p": [None if x is None else next(adjusted) for x in p]}
            cases.append(case(f"{method}, {name}", "adjust", {"p": p, "method": method}, expected))
    return cases


# ---- pairs ----------------------------------------------------------------------------------------------------------


def noisy_pairs() -> dict[str, tuple[Values, Values]]:
    """y = slope x + noise."""

    def pair(
        seed: int, n: int, slope: float, noise: float, x_scale: float = 1.0, y_scale: float = 1.0
    ) -> tuple[Values, Values]:
        x, e = np.array(draw(seed, n, 1.0)), np.array(draw(seed + 500, n))
        y = slope * x + noise * e
        return [float(f"{v:.6g}") for v in x * x_scale], [float(f"{v:.6g}") for v in y * y_scale]

    return {
        "4": pair(60, 4, 1, 1),
        "10": pair(61, 10, -0.5, 1),
        "35, scales": pair(62, 35, 0.4, 1, 1e-8, 1e6),
        "200, weak": pair(63, 200, 0.01, 1),
        "200, tiny p": pair(64, 200, 2, 1),
        "200, strong": pair(65, 200, -1, 0.1, 1e5, 1e-6),
    }


def tied_pairs() -> dict[str, tuple[Values, Values]]:
    rng = np.random.default_rng(70)
    few = [float(v) for v in rng.integers(0, 4, 50)]
    return {
        "ties": (few, [float(v) for v in (np.array(few) + rng.integers(0, 5, 50))]),
        "ties, 5": ([1.0, 1.0, 2.0, 3.0, 3.0], [2.0, 1.0, 2.0, 2.0, 5.0]),
    }


def from_r(r: float, n: int, k: int) -> dict[str, Any]:
    """What the design derives from r by formulas."""
    df, reach = n - 2 - k, 1.0 / math.sqrt(n - 3 - k)
    z, z975 = math.atanh(r), float(stats.norm.ppf(0.975))
    return {
        "statistic": r * math.sqrt(df / ((1 - r) * (1 + r))),
        "df": df,
        "n": n,
        "effect": r,
        "ci_low": math.tanh(z - z975 * reach),
        "ci_high": math.tanh(z + z975 * reach),
        "min_detectable_effect": math.tanh((z975 + float(stats.norm.ppf(0.8))) * reach),
    }


def pearson_case(name: str, x: Values, y: Values) -> Case:
    reference = stats.pearsonr(x, y)
    expected = {**from_r(float(reference.statistic), len(x), 0), "p": float(reference.pvalue)}
    interval = reference.confidence_interval(0.95)
    agree(expected["ci_low"], float(interval.low), 1e-10)
    agree(expected["ci_high"], float(interval.high), 1e-10)
    return case(f"Pearson, {name}", "pearson", {"x": x, "y": y}, expected)


def spearman_case(name: str, x: Values, y: Values) -> Case:
    reference = stats.spearmanr(x, y)
    expected = {**from_r(float(reference.statistic), len(x), 0), "p": float(reference.pvalue)}
    return case(f"Spearman, {name}", "spearman", {"x": x, "y": y}, expected)


def partial_case(name: str, x: Values, y: Values, controls: list[Values]) -> Case:
    design = sm.add_constant(np.column_stack([np.array(c) / np.std(c) for c in controls]))
    residuals = [sm.OLS(np.array(v) / np.std(v), design).fit().resid for v in (x, y)]
    r = float(np.corrcoef(*residuals)[0, 1])
    expected = from_r(r, len(x), len(controls))
    expected["p"] = 2 * float(stats.t.sf(abs(expected["statistic"]), expected["df"]))
    return case(f"partial, {name}", "partial_correlation", {"x": x, "y": y, "controls": controls}, expected)


def line_case(name: str, x: Values, y: Values) -> Case:
    fit = stats.linregress(x, y)
    half = t_quantile(0.975, len(x) - 2) * float(fit.stderr)
    slope = float(fit.slope)
    expected = {
        "slope": slope,
        "intercept": float(fit.intercept),
        "slope_se": float(fit.stderr),
        "r2": float(fit.rvalue) ** 2,
        "slope_low": slope - half,
        "slope_high": slope + half,
        "n": len(x),
    }
    return case(f"line, {name}", "fit_line", {"x": x, "y": y}, expected)


def pair_cases() -> list[Case]:
    cases = []
    for name, (x, y) in noisy_pairs().items():
        cases += [pearson_case(name, x, y), spearman_case(name, x, y), line_case(name, x, y)]
        if len(x) > 4:
            alone = draw(81, len(x), 0, 1e3)
            related = [float(f"{0.5 * a / np.std(x) + b:.6g}") for a, b in zip(x, draw(82, len(x)))]
            cases.append(partial_case(f"{name}, 1 control", x, y, [related]))
            cases.append(partial_case(f"{name}, 2 controls", x, y, [related, alone]))
    for name, (x, y) in tied_pairs().items():
        cases += [pearson_case(name, x, y), spearman_case(name, x, y), line_case(name, x, y)]
    x, y = draw(90, 3), draw(91, 3)
    without = ("ci_low", "ci_high", "min_detectable_effect")
    reference = stats.pearsonr(x, y)
    r = float(reference.statistic)
    expected = {"statistic": r / math.sqrt((1 - r) * (1 + r)), "df": 1, "p": float(reference.pvalue), "effect": r}
    cases.append(case("Pearson, 3", "pearson", {"x": x, "y": y}, {**expected, **dict.fromkeys(without)}))
    cases.append(line_case("3", x, y))
    return cases


# ---- bootstrap ------------------------------------------------------------------------------------------------------


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 (Salmon et al., SC'11)."""
    mask = 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def draws(n: int, resample: int, seed: int) -> list[int]:
    key = [seed & 0xFFFFFFFF, seed >> 32]
    words = [w for block in range((n + 3) // 4) for w in philox([block, resample, 0, 0], key)]
    return sorted((w * n) >> 32 for w in words[:n])


def bootstrap_case(name: str, function: str, values: Values, clusters: list[int], seed: int, n_resamples: int) -> Case:
    groups: dict[int, Values] = {}
    for value, cluster in zip(values, clusters):
        groups.setdefault(cluster, []).append(value)
    ordered = sorted(sorted(g) for g in groups.values())

    def statistic(drawn: Any) -> float:
        pooled = [v for i in drawn for v in ordered[int(i)]]
        return math.fsum(pooled) / len(pooled) if function == "mean_interval_bca" else float(np.median(pooled))

    k = len(ordered)
    distribution = np.array([statistic(draws(k, r, seed)) for r in range(n_resamples)])
    interval = stats.bootstrap(
        (np.arange(k),),
        statistic,
        n_resamples=0,
        vectorized=False,
        method="BCa",
        bootstrap_result=SimpleNamespace(bootstrap_distribution=distribution),
    ).confidence_interval
    args = {"values": values, "clusters": clusters, "seed": seed, "n_resamples": n_resamples}
    expected = {
        "value": statistic(range(k)),
        "low": float(interval.low),
        "high": float(interval.high),
        "n_clusters": k,
        "n_undefined": 0,
    }
    return case(f"{function}, {name}", function, args, expected)


def bootstrap_cases() -> list[Case]:
    rng = np.random.default_rng(100)
    uneven = [int(c) for c in rng.integers(0, 12, 60)]
    skewed = [float(f"{v:.6g}") for v in rng.lognormal(0, 1, 60)]
    seeds_of_prompts = [i // 5 for i in range(60)]
    own = list(range(60))
    cases = []
    for function in ("mean_interval_bca", "median_interval"):
        cases += [
            bootstrap_case("each its own cluster", function, skewed, own, 7, 500),
            bootstrap_case("uneven clusters", function, skewed, uneven, 0x6B76646976626F6F, 500),
            bootstrap_case("five seeds a prompt", function, skewed, seeds_of_prompts, 2**63 + 5, 400),
            bootstrap_case("three clusters", function, draw(101, 9, 0, 1e-8), [0, 0, 0, 1, 1, 1, 2, 2, 2], 3, 300),
        ]
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=stats_env.ROOT / "tests" / "golden" / "stats" / "golden.json")
    output = parser.parse_args().output
    cases = mcnemar_cases() + adjust_cases() + two_sample_cases() + pair_cases() + bootstrap_cases()
    assert len({c["name"] for c in cases}) == len(cases)
    versions = {name: stats_env.PINNED[name] for name in ("numpy", "scipy", "statsmodels")}
    lines = ",\n".join(json.dumps(c, allow_nan=False, default=float) for c in cases)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(f'{{"versions": {json.dumps(versions)},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{output}: {len(cases)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()

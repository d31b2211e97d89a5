"""The part of make_stats_golden.py that is about two samples, and what all parts share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW, ttost_ind

Case = dict[str, Any]
Values = list[float]

def case(name: str, function: str, args: dict[str, Any], expected: dict[str, Any]) -> Case:
    return {"name": name, "function": function, "args": args, "expected": expected}


def draw(seed: int, n: int, loc: float = 0.0, scale: float = 1.0) -> Values:
    """Normal values with six digits."""
    return [float(f"{x:.6g}") for x in np.random.default_rng(seed).normal(loc, scale, n)]


def agree(a: float, b: float, tolerance: float) -> None:
    if not abs(a - b) <= tolerance * max(abs(a), abs(b)):
        raise AssertionError(f"{a!r} and {b!r} differ by more than {tolerance}")


def t_quantile(p: float, df: float) -> float:
    """SciPy's is good to some 1e-11; a Newton step makes it good to rounding."""
    q = float(stats.t.ppf(p, df))
    return q + (float(stats.t.sf(q, df)) - (1.0 - p)) / float(stats.t.pdf(q, df))


# ---- two samples ----------------------------------------------------------------------------------------------------

EXACT = "exact"
ASYMPTOTIC = "asymptotic, tie-corrected, continuity-corrected"


def sample_pairs() -> dict[str, tuple[Values, Values]]:
    return {
        "3 and 3": (draw(1, 3), draw(2, 3)),
        "2 and 7": (draw(3, 2, 5), draw(4, 7, 4, 3)),
        "20 and 31": (draw(5, 20), draw(6, 31, 0.7, 2)),
        "small scale": (draw(7, 12, 3e-8, 1e-8), draw(8, 15, 1e-8, 2e-8)),
        "large scale": (draw(9, 40, 0, 1e6), draw(10, 8, 1e6, 3e6)),
        "one sample constant": ([2.5] * 4, draw(11, 9, 2)),
        "tiny p": (draw(12, 200), draw(13, 180, 2.4)),
        "no difference": (draw(14, 100), draw(15, 100)),
    }


def welch_case(name: str, x: Values, y: Values) -> Case:
    t = stats.ttest_ind(x, y, equal_var=False)
    df, effect = float(t.df), float(np.mean(x) - np.mean(y))
    se = math.sqrt(np.var(x, ddof=1) / len(x) + np.var(y, ddof=1) / len(y))
    low, high = effect - t_quantile(0.975, df) * se, effect + t_quantile(0.975, df) * se
    agree(low, float(t.confidence_interval().low), 1e-8)
    agree(high, float(t.confidence_interval().high), 1e-8)
    expected = {
        "statistic": float(t.statistic),
        "df": df,
        "p": float(t.pvalue),
        "n": len(x) + len(y),
        "effect": effect,
        "ci_low": low,
        "ci_high": high,
        "min_detectable_effect": (t_quantile(0.975, df) + t_quantile(0.8, df)) * se,
    }
    return case(f"Welch, {name}", "welch_t", {"x": x, "y": y}, expected)


def equivalence_case(name: str, x: Values, y: Values, margin: float) -> Case:
    p, low, high = ttost_ind(x, y, -margin, margin, usevar="unequal")
    worse, df = (low, low[2]) if low[1] > high[1] else (high, high[2])
    effect = float(np.mean(x) - np.mean(y))
    se = math.sqrt(np.var(x, ddof=1) / len(x) + np.var(y, ddof=1) / len(y))
    half = t_quantile(0.95, df) * se
    expected = {
        "statistic": worse[0],
        "df": df,
        "p": p,
        "effect": effect,
        "ci_low": effect - half,
        "ci_high": effect + half,
    }
    return case(f"TOST, {name}", "equivalence_welch", {"x": x, "y": y, "margin": margin}, expected)


def equivalence_mean_case(name: str, x: Values, margin: float) -> Case:
    p, low, high = DescrStatsW(x).ttost_mean(-margin, margin)
    worse = low if low[1] > high[1] else high
    mean, se, df = float(np.mean(x)), float(stats.sem(x)), len(x) - 1
    half = t_quantile(0.95, df) * se
    expected = {
        "statistic": worse[0],
        "df": df,
        "p": p,
        "n": len(x),
        "effect": mean,
        "ci_low": mean - half,
        "ci_high": mean + half,
    }
    return case(f"TOST of a mean, {name}", "equivalence_mean", {"x": x, "margin": margin}, expected)


def exact_mann_whitney(u: float, m: int, n: int) -> float:
    """Two-sided p from whole numbers: how many of all orders of m and n values have which U."""
    counts = [[0] * (m * n + 1) for _ in range(m + 1)]  # [values of the first sample so far][U so far]
    counts[0][0] = 1
    for place in range(m + n):  # ascending; a value of the first sample counts those of the second below it
        for k in range(min(m, place + 1), 0, -1):
            below = place - (k - 1)
            if below > n:
                continue
            for v in range(m * n, below - 1, -1):
                counts[k][v] += counts[k - 1][v - below]
    orders = counts[m]
    assert sum(orders) == math.comb(m + n, m)
    tail = sum(orders[: int(min(u, m * n - u)) + 1])
    return min(1.0, 2 * tail / math.comb(m + n, m))


def mann_whitney_case(name: str, x: Values, y: Values, method: str = "automatic") -> Case:
    reference = stats.mannwhitneyu(x, y, method="auto" if method == "automatic" else method)
    m, n, u = len(x), len(y), float(reference.statistic)
    distinct = len(set(x + y)) == m + n
    exact = method == "exact" or (method == "automatic" and distinct and min(m, n) <= 8)
    p = exact_mann_whitney(u, m, n) if exact else float(reference.pvalue)
    agree(p, float(reference.pvalue), 1e-9)
    expected = {
        "variant": EXACT if exact else ASYMPTOTIC,
        "statistic": u,
        "df": None,
        "p": p,
        "n": m + n,
        "effect": 2 * u / (m * n) - 1,
    }
    return case(f"Mann-Whitney, {name}, {method}", "mann_whitney", {"x": x, "y": y, "method": method}, expected)


def repeat(counts: list[int]) -> Values:
    """So many ones, twos, threes, …"""
    return [float(i + 1) for i, n in enumerate(counts) for _ in range(n)]


def mann_whitney_cases() -> list[Case]:
    reported = (repeat([163, 81, 40, 6, 2]), repeat([1007, 362, 99, 27, 13]))
    short = ([0.0, 1.0, 2.0, 3.0, 9.0], [4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 11.0])
    cases = [
        mann_whitney_case("reported counts", *reported),
        mann_whitney_case("reported counts, swapped", *reported[::-1]),
    ]
    for method in ("automatic", "exact", "asymptotic"):
        cases.append(mann_whitney_case("5 and 7", *short, method))
    for name, (x, y) in sample_pairs().items():
        cases.append(mann_whitney_case(name, x, y))
    cases += [
        mann_whitney_case("20 and 31", *sample_pairs()["20 and 31"], "exact"),
        mann_whitney_case("50 and 50", draw(16, 50), draw(17, 50, 0.4), "exact"),
        mann_whitney_case("50 and 50 apart", draw(16, 50), draw(17, 50, 20), "exact"),
        mann_whitney_case("8 and 60", draw(18, 8), draw(19, 60, 0.5)),
        mann_whitney_case("1 and 1", [1.0], [2.0]),
        mann_whitney_case("apart", draw(20, 200), draw(21, 200, 9)),
    ]
    return cases


def two_sample_cases() -> list[Case]:
    cases = []
    for name, (x, y) in sample_pairs().items():
        cases.append(welch_case(name, x, y))
        margin = float(f"{2.5 * np.std(y):.3g}")
        cases.append(equivalence_case(name, x, y, margin))
        cases.append(equivalence_case(f"{name}, narrow", x, y, 0.05 * margin))
        cases.append(equivalence_mean_case(name, y, margin))
    return cases + mann_whitney_cases()

"""What a page shows, against report.json and records.jsonl: charts by their data, texts by what stands on the page."""
from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import chromium  # noqa: E402

Row = dict[str, Any]

CHARTS = """JSON.stringify([...document.querySelectorAll("canvas")].map(c => ({figure: c.dataset.figure, label: c.getAttribute("aria-label"),
  labels: Chart.getChart(c).data.labels, datasets: Chart.getChart(c).data.datasets.map(d => ({label: d.label, data: d.data, values: d.values,
    colours: Array.isArray(d.backgroundColor) ? d.backgroundColor : null}))})))"""


class Checks:
    def __init__(self) -> None:
        self.n, self.failures = 0, []

    def that(self, holds: bool, what: str) -> None:
        self.n += 1
        if not holds:
            self.failures.append(what)
            print(f"FAILED: {what}", flush=True)

    def near(self, found: Any, expected: Any, what: str, relative: float = 1e-9) -> None:
        same = found == expected or (isinstance(found, (int, float)) and isinstance(expected, (int, float))
                                     and math.isclose(found, expected, rel_tol=relative, abs_tol=1e-300))
        self.that(same, f"{what}: found {found}, expected {expected}")

    def same(self, found: Any, expected: Any, what: str) -> None:
        self.that(found == expected, f"{what}: found {str(found)[:300]}, expected {str(expected)[:300]}")


@dataclass
class Page:
    """An open page and the result that it was made of."""

    browser: chromium.Browser
    report: Row
    pairs: list[Row]
    steps: dict[str, list[Row]]  # by pair_id
    charts: list[Row]

    def short(self, text: str) -> str:
        return self.browser.evaluate(f"shortName({json.dumps(text)})")

    def texts(self, selector: str) -> list[str]:
        return self.browser.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")

    def datasets(self, figure: str) -> Iterable[Row]:
        return (d for f in self.charts if f["figure"].startswith(figure) for d in f["datasets"])

    def points(self, check: Checks, figure: str, label: str) -> list[Any]:
        """The data of the one dataset of that name."""
        found = [d["data"] for d in self.datasets(figure) if d["label"] == label]
        check.that(len(found) == 1, f"{figure}, {label}: drawn {len(found)} times")
        return found[0] if found else []


def open_page(browser: chromium.Browser, result: Path) -> Page:
    pairs, steps = [], {}
    records = result / "records.jsonl"
    for line in records.read_text(encoding="utf-8").splitlines() if records.is_file() else []:
        record = json.loads(line)
        if record["type"] == "pair":
            pairs.append(record)
        elif record["type"] == "step":
            steps.setdefault(record["pair_id"], []).append(record)
    report = json.loads((result / "report.json").read_text(encoding="utf-8"))
    return Page(browser, report, pairs, steps, json.loads(browser.evaluate(CHARTS)))


def label_of(c: Row) -> str:
    return "/".join(c[k] for k in ("part", "dtype", "backend", "strategy") if isinstance(c.get(k), str))


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[math.floor((len(values) - 1) * q + 0.5)]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def above_0(values: Iterable[Any]) -> list[Any]:
    """As a logarithmic axis takes them."""
    return [v if v else None for v in values]


def segments(points: list[Row]) -> list[tuple[float, float, float, float]]:
    """[x0, y0, x1, y1] of a dataset of line segments: two points, and a gap behind them."""
    return [(a["x"], a["y"], b["x"], b["y"]) for a, b in zip(points[::3], points[1::3])]


# ---- run -----------------------------------------------------------------------------------------------------------


def check_kl(check: Checks, page: Page) -> None:
    groups = {"same_prefix": lambda s: s["same_prefix"], "free_running": lambda s: s["clock"] != "forced"}
    for c in page.report["conditions"]:
        for group, belongs in groups.items():
            check_kl_of(check, page, c, group, belongs)


def check_kl_of(check: Checks, page: Page, c: Row, group: str, belongs: Callable[[Row], bool]) -> None:
    name, expected_mean = label_of(c), c[group]["kl_on_off_nats"]["mean"]
    drawn = {d["label"]: d["data"] for d in page.datasets(f"kl-{group}")}
    short, what = page.short(name), f"{name}, {group}"
    if not expected_mean:
        check.that(short not in drawn, f"{what}: a KL of 0 is drawn on a logarithmic axis")
        return
    by_step: dict[int, dict[str, list[float]]] = {}
    for p in (p for p in page.pairs if p["condition"] == name):
        for s in filter(belongs, page.steps[p["pair_id"]]):
            by_step.setdefault(s["step"], {}).setdefault(p["prompt_id"], []).append(s["kl_on_off_nats"])
    points = {p["x"]: p["y"] for p in drawn[short]}
    check.same(sorted(points), sorted(by_step), f"{what}: steps")
    n = sum(len(v) for prompts in by_step.values() for v in prompts.values())
    total = 0.0
    for step, prompts in by_step.items():
        values = [v for own in prompts.values() for v in own]
        check.near(points[step], mean(values) or None, f"{what}, step {step}")
        total += (points[step] or 0.0) * len(values)
    check.near(total / n, expected_mean, f"{what}: the mean of the chart against report.json")
    for edge, q in (("p5", 0.05), ("p95", 0.95)):
        for p in drawn[f"{short} {edge}"]:
            value = quantile([mean(v) for v in by_step[p["x"]].values()], q)
            if p["y"] is None:
                check.that(not points[p["x"]], f"{what}, step {p['x']}: no band around a mean above 0")
            elif not (value < p["y"] and math.log10(p["y"]).is_integer()):  # the band ends where the chart does
                check.near(p["y"], value, f"{what}, step {p['x']}: {edge}", 0.0101)


def check_ladder(check: Checks, page: Page) -> None:
    points = {(p["row"]["kind"], p["row"]["label"]): p for d in page.datasets("ladder") for p in d["data"] if p and "row" in p}
    spans = {kind: segments(page.points(check, "ladder", f"{kind} 95 %")) for kind in ("same prefix", "free-running")}
    for c in page.report["conditions"]:
        for kind, group in (("same prefix", "same_prefix"), ("free-running", "free_running")):
            stat, point, what = c[group]["kl_on_off_nats"], points[kind, label_of(c)], f"ladder: {label_of(c)}, {kind}"
            check.near(point["row"]["value"], stat["mean"], what)
            if stat["mean"] <= 0:
                continue
            check.near(point["x"], stat["mean"], f"{what}: place")
            (span,) = [s for s in spans[kind] if s[1] == point["y"]]
            check.near(span[2], stat["ci_high"], f"{what}: upper end")
            if not math.log10(span[0]).is_integer():
                check.near(span[0], stat["ci_low"], f"{what}: lower end")
            else:
                check.that(stat["ci_low"] <= span[0], f"{what}: the interval ends at the edge, but its end is {stat['ci_low']}")
    published = json.loads((ROOT / "configs" / "paper_published.json").read_text(encoding="utf-8"))["signature"]
    marks = {d["label"].split(":")[0]: sorted(s[0] for s in segments(d["data"])) for d in page.datasets("ladder")}
    for label, values in (("paper, FP16", published["float16"]["kl_nats"]), ("paper, FP32", published["float32"]["kl_nats"]),
                          ("floor of the metric", [1e-30])):
        check.same(marks.get(label), values, f"ladder: mark {label}")


def check_flips(check: Checks, page: Page) -> None:
    names = sorted({p["condition"] for p in page.pairs if p["flip_index"] is not None})
    check.that(bool(names), "no pair of the toys flips: nothing is tested here")
    bars = {d["label"]: d["data"] for d in page.datasets("flip-index")}
    curves = {d["label"]: d["data"] for d in page.datasets("survival")}
    (labels,) = [f["labels"] for f in page.charts if f["figure"] == "flip-index"]
    starts = [int(t.split("–")[0]) for t in labels]
    check.same(sorted(bars), sorted(map(page.short, names)), "flip-index: conditions")
    for name in names:
        own, short = [p for p in page.pairs if p["condition"] == name], page.short(name)
        flips = [p["flip_index"] for p in own if p["flip_index"] is not None]
        for i, start in enumerate(starts):
            end = starts[i + 1] if i + 1 < len(starts) else math.inf
            check.near(bars[short][i], sum(start <= f < end for f in flips), f"{name}: flips from step {start}")
        share, expected = 1.0, {}
        for step in sorted(set(flips)):
            at_risk = sum((p["flip_index"] if p["flip_index"] is not None else len(p["tokens_on"]) - 1) >= step for p in own)
            share *= 1 - flips.count(step) / at_risk
            expected[step] = share
        drawn = {p["x"]: p["y"] for p in curves[short][1:-1]}
        check.same(sorted(drawn), sorted(expected), f"{name}: steps of the survival")
        for step, value in expected.items():
            check.near(drawn.get(step), value, f"{name}: survival at step {step}")


def cell_of(step: Row) -> tuple[int, int]:
    return tuple(math.floor(8 * math.log10(step[k])) for k in ("margin_on", "max_abs_dlogit"))


def cell_at(point: Row) -> tuple[int, int]:
    return tuple(round(8 * math.log10(point[k]) - 0.5) for k in "xy")


def check_margins(check: Checks, page: Page) -> None:
    drawn: dict[str, dict[tuple[int, int], int]] = {}
    for d in page.datasets("margins"):
        if "margin =" not in d["label"]:
            own = drawn.setdefault(d["label"], {})
            for p in d["data"]:
                own[cell_at(p)] = own.get(cell_at(p), 0) + p["n"]
    changed: dict[tuple[int, int], int] = {}
    for name in sorted({p["condition"] for p in page.pairs}):
        cells: dict[tuple[int, int], int] = {}
        for s in (s for p in page.pairs if p["condition"] == name for s in page.steps[p["pair_id"]]):
            if s["same_prefix"] and s["max_abs_dlogit"] > 0 and s["margin_on"] > 0:
                cells[cell_of(s)] = cells.get(cell_of(s), 0) + 1
                if not s["top1_equal"]:
                    changed[cell_of(s)] = changed.get(cell_of(s), 0) + 1
        check.same(drawn.get(page.short(name), {}), cells, f"{name}: cells of margins")
    check.that(bool(changed), "the largest logit never changed: nothing is tested here")
    check.same(drawn.get("largest logit changed", {}), changed, "margins: where the largest logit changed")


def check_examples(check: Checks, page: Page) -> None:
    """The first three pairs of each condition that flipped: texts, the marked token, and what each arm had to choose from."""
    blocks = page.browser.evaluate("""[...document.querySelectorAll(".example")].map(e => [...e.querySelectorAll(".arms > div")].map(arm => ({
        text: arm.querySelector(".text").textContent, mark: [...arm.querySelectorAll("mark")].map(m => m.textContent),
        top: [...arm.querySelectorAll("tbody tr")].map(r => [...r.children].map(c => c.textContent))})))""")
    expected = []
    for name in dict.fromkeys(p["condition"] for p in page.pairs):
        expected += [p for p in page.pairs if p["condition"] == name and p["flip_index"] is not None][:3]
    check.same(len(blocks), len(expected), "texts that part: pairs")
    for pair, arms in zip(expected, blocks):
        for arm, which in zip(arms, ("on", "off")):
            top, what = pair["flip_top"][which], f"{pair['pair_id']}, {which}"
            token = pair[f"tokens_{which}"][pair["flip_index"]]
            known = {t["id"]: t["text"] for side in ("on", "off") for t in pair["flip_top"][side]}
            check.same(arm["text"].strip("…"), pair[f"text_{which}"], f"{what}: text")
            if known.get(token):
                check.same(arm["mark"], [known[token]], f"{what}: marked token")
            check.same([(row[1], row[2]) for row in arm["top"]], [(str(t["id"]), f"{t['logit']:.4f}") for t in top], f"{what}: what it chose from")


def check_run(check: Checks, page: Page) -> None:
    for part in (check_kl, check_ladder, check_flips, check_margins, check_examples):
        part(check, page)


# ---- other experiments ---------------------------------------------------------------------------------------------


def check_heat(check: Checks, page: Page, figure: str, value: Callable[[int, int], Any]) -> None:
    """Cells hold their values, and the darkest of the light scheme is the largest."""
    (chart,) = [f for f in page.charts if f["figure"].startswith(figure)]
    cells = []
    for d in chart["datasets"]:
        row = int(d["label"].split()[-1])
        for column, found, colour in zip(chart["labels"], d["values"], d["colours"]):
            check.near(found, value(row, int(column)), f"{figure}: {d['label']}, column {column}")
            cells.append((found, colour))
    shown = sorted((v, -sum(map(int, colour[4:-1].split(",")))) for v, colour in cells if v)
    check.that([dark for _, dark in shown] == sorted(dark for _, dark in shown) and shown[0][1] < shown[-1][1], f"{figure}: colours do not go with the values")


def check_drift(check: Checks, page: Page) -> None:
    c = page.report["conditions"][0]
    for key, figure in (("l2", "drift-l2"), ("rel_l2", "drift-rel")):
        for label, of in (("all dimensions", key), ("without the 3 largest", f"{key}_trimmed")):
            check.same(page.points(check, figure, label), above_0(r[of]["mean"] for r in c["by_layer"]), f"{figure}, {label}")
            for edge, end in (("high", "ci_high"), ("low", "ci_low")):
                for r, found in zip(c["by_layer"], page.points(check, figure, f"{label} {edge}")):
                    if found is not None:
                        check.near(found, r[of][end], f"{figure}, {label}, layer {r['layer']}: {edge}")
                    else:
                        check.near(r[of]["mean"], 0, f"{figure}, {label}, layer {r['layer']}: no band")
    cosine = [1 - r["cosine"]["mean"] for r in c["by_layer"]]
    check.same(page.points(check, "drift-cosine", page.short("1 − cosine")), [v if v > 0 else None for v in cosine], "drift-cosine")
    heads = {(r["layer"], r["head"]): r["kl_on_off_nats"]["mean"] for r in c["by_head"]}
    check_heat(check, page, "heads", lambda layer, head: heads[layer, head])
    tables = " ".join(page.texts("#section-tables ~ .columns td"))
    for r in c["by_layer"]:
        cell = page.browser.evaluate(f"interval({', '.join(json.dumps(r['l2'][k]) for k in ('mean', 'ci_low', 'ci_high'))})")
        check.that(cell in tables, f"tables: {cell} of layer {r['layer']} is not there")


def check_trace(check: Checks, page: Page) -> None:
    c = page.report["conditions"][0]
    rows = {(r["layer"], r["step"]): r for r in c["kv_by_layer"] if r["positions"] == "all"}
    for key in ("k_on_off", "v_on_off", "k_on_fp64", "v_on_fp64"):
        check_heat(check, page, f"trace-{key}", lambda layer, step, key=key: rows[layer, step][key]["mean"])
        label = f"{key[0].upper()} ON/{key.split('_')[2].upper()}"
        expected = [(r["step"], r[key] or None) for r in c["by_step"]]
        check.same([(p["x"], p["y"]) for p in page.points(check, "trace-steps", label)], expected, f"trace-steps, {label}")


def check_patch(check: Checks, page: Page) -> None:
    rows = page.report["conditions"][0]["by_layer"]
    for step, way in sorted({(r["step"], r["direction"]) for r in rows}):
        for key, label in (("residual", "residual"), ("k", "K"), ("v", "V"), ("kv", "K and V")):
            own = [r[key] for r in rows if (r["step"], r["direction"]) == (step, way) and r.get(key) and r[key]["value"] is not None]
            if own:
                figure = f"patch-0-{step}-{way}"
                check.same([p["y"] for p in page.points(check, figure, label)], [r["value"] for r in own], f"{figure}, {label}")
                spans = [(s[1], s[3]) for s in segments(page.points(check, figure, f"{label} 95 %"))]
                check.same(spans, [(r["low"], r["high"]) for r in own if r["low"] is not None], f"{figure}, {label}: intervals")


def check_noise(check: Checks, page: Page) -> None:
    for kind in ("gaussian", "mantissa"):
        for key, per in (("flip_rate", "step"), ("text_flip_rate", "text")):
            rows = [r for r in page.report["conditions"][0]["curve"] if r["kind"] == kind and r["what"] == "kv" and r["relative_size_stored"] > 0]
            rows.sort(key=lambda r: r["relative_size_stored"])
            figure = f"noise-{kind}-{per}-0"
            found = [(p["x"], p["y"]) for p in page.points(check, figure, "K and V")]
            check.same(found, [(r["relative_size_stored"], r[key]["value"]) for r in rows], figure)
            spans = [(s[0], s[1], s[3]) for s in segments(page.points(check, figure, "kv 95 %"))]
            check.same(spans, [(r["relative_size_stored"], r[key]["low"], r[key]["high"]) for r in rows if r[key]["low"] is not None], f"{figure}: intervals")


def check_mitigate(check: Checks, page: Page) -> None:
    found = {p["row"]["remedy"]: p for d in page.datasets("pareto") for p in d["data"] if p.get("row")}
    for r in page.report["conditions"][0]["remedies"]:
        check.near(found[r["remedy"]]["x"], r["on_tokens_per_s"], f"remedy {r['remedy']}: speed")
        if r["kl_on_off_nats"]["mean"] > 0:
            check.near(found[r["remedy"]]["y"], r["kl_on_off_nats"]["mean"], f"remedy {r['remedy']}: KL")
        else:
            check.that(found[r["remedy"]]["y"] == min(p["y"] for p in found.values()), f"remedy {r['remedy']}: 0 is not at the bottom")


def check_falsify(check: Checks, page: Page) -> None:
    for figure, across, curves in (("dot", "length", {"sequential_float16_pct": "FP16 accumulator, sequential", "sequential_float32_pct": "FP32 accumulator"}),
                                   ("propagation", "n_steps", {"rel_err_pct": "FP32 accumulators"})):
        rows = next(c[figure] for c in page.report["conditions"] if figure in c)
        for key, label in curves.items():
            found = [(p["x"], p["y"]) for p in page.points(check, f"{figure}-", page.short(label))]
            check.same(found, [(r[across], r[key] or None) for r in rows], f"falsify: {figure}, {label}")


def check_boundary(check: Checks, page: Page) -> None:
    n = 0
    for i, c in enumerate(page.report["conditions"]):
        rows = [r for r in c["calibration"] if r["margin_from"] > 0 and r["flip_rate"] and r["flip_rate"]["value"] is not None
                and (r["flip_rate"]["value"] > 0 or r["expected_rate"] > 1e-6)]
        if not rows:
            continue
        n += 1
        for label, value in (("observed", lambda r: r["flip_rate"]["value"]), ("expected", lambda r: r["expected_rate"])):
            found = [(p["x"], p["y"]) for p in page.points(check, f"boundary-{i}", label)]
            check.same(found, [(r["margin_from"], value(r)) for r in rows], f"boundary: condition {i}, {label}")
    check.that(n > 0, "boundary: nothing is drawn")


def check_selftest(check: Checks, page: Page) -> None:
    matrix = page.report["matrix"]
    cells = "".join(page.texts("#matrix td"))
    check.same((cells.count("✓"), cells.count("✗")), (sum(r["ok"] for r in matrix), sum(not r["ok"] for r in matrix)), "self-test: ✓ and ✗")


VALUES: dict[str, Callable[[Checks, Page], None]] = {
    "run": check_run, "drift": check_drift, "trace": check_trace, "patch": check_patch, "noise": check_noise, "mitigate": check_mitigate,
    "falsify": check_falsify, "boundary": check_boundary, "selftest": check_selftest}


def check_values(check: Checks, browser: chromium.Browser, name: str, result: Path) -> None:
    browser.set_view(1000)  # light, whatever it was
    browser.settle()
    page = open_page(browser, result)
    check.that(all(c["label"] for c in page.charts), f"{name}: a chart has no text in its place")
    if name in VALUES:
        VALUES[name](check, page)
    (text,) = page.texts("#page")
    check.that(page.report["verdict"]["sentence"] in text, f"{name}: the verdict is not on the page")
    for warning in page.report["warnings"]:
        check.that(warning["remedy"] in text, f"{name}: the remedy of {warning['code']} is not on the page")
    (command,) = page.texts(".command")
    check.same(shlex.split(command), ["kvdiv", *page.report["argv"]], f"{name}: the command")

#!/usr/bin/env python3
"""Opens HTML reports of the toys in a headless Chromium, from disk: no console error, no request, every chart has drawn
something, no text overlaps or runs out at three widths in light and dark, the values in the charts are those of
report.json and records.jsonl, hostile text is text, and the page prints.

    scripts/report_test.py [--kvdiv build/release/bin/kvdiv] [--results DIR] [--keep DIR] [--only NAME,…]

Needs Debian's chromium; without it this says so and ends with 77, which ctest reads as skipped.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).parent / "lib"))
import chromium  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
ORDER = "order:prefill=blocked:32@float16,decode=sequential@float16"  # arms that differ on every machine
RESULTS: dict[str, list[str]] = {
    "run": ["run", "--dtype", "bfloat16,float16", "--backend", "invariant", "--backend", ORDER, "--strategy", "greedy,top-p",
            "--seeds", "2", "--limit", "4", "--max-new-tokens", "24", "--ignore-eos"],
    "drift": ["drift", "--limit", "3", "--backend", ORDER],
    "trace": ["trace", "--limit", "2", "--backend", ORDER],
    "patch": ["patch", "--limit", "2", "--backend", ORDER, "--max-steps", "9"],
    "noise": ["noise", "--limit", "1"],
    "mitigate": ["mitigate", "--limit", "1"],
    "falsify": ["falsify", "--limit", "2", "--max-new-tokens", "8"],
    "shapes": ["shapes", "--operation", "attention"],
    "boundary": ["boundary", "{run}"],
    "paper": ["paper", "--backend", ORDER, "--limit", "2", "--seeds", "1", "--max-new-tokens", "8", "--max-steps", "8", "--samples", "2"],
    "selftest": ["selftest", "--model", "toy-llama"],
}
WIDTHS = (360, 800, 1600)
HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror=\"window.hostile = 2\">'\"&lt;\u202eright\u2066to\u200fleft\u0000zero\u2028line {{data}}"

# Keeps what each chart writes, with its box, from one drawing to the next.
RECORD_TEXT = """(() => {
  const proto = CanvasRenderingContext2D.prototype, fill = proto.fillText, clear = proto.clearRect;
  proto.clearRect = function (x, y, w, h) { if (x <= 0 && y <= 0) this.canvas.texts = []; return clear.call(this, x, y, w, h); };
  proto.fillText = function (text, x, y, width) {
    const m = this.measureText(text), t = this.getTransform(), ratio = window.devicePixelRatio;
    const xs = [x - m.actualBoundingBoxLeft, x + m.actualBoundingBoxRight], ys = [y - m.actualBoundingBoxAscent, y + m.actualBoundingBoxDescent];
    const corners = xs.flatMap(a => ys.map(b => new DOMPoint(a, b).matrixTransform(t)));
    const cx = corners.map(p => p.x / ratio), cy = corners.map(p => p.y / ratio);
    (this.canvas.texts = this.canvas.texts || []).push({text: String(text), x0: Math.min(...cx), x1: Math.max(...cx), y0: Math.min(...cy), y1: Math.max(...cy)});
    return fill.call(this, text, x, y, width);
  };
})();"""

FIND_PROBLEMS = """(() => {
  const out = [], width = window.innerWidth;
  if (document.documentElement.scrollWidth > width) out.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const overlaps = (a, b) => Math.min(a.x1, b.x1) - Math.max(a.x0, b.x0) > 1.5 && Math.min(a.y1, b.y1) - Math.max(a.y0, b.y0) > 2;
  const pairs = (boxes, where) => {
    boxes.sort((a, b) => a.y0 - b.y0);
    for (let i = 0; i < boxes.length; ++i)
      for (let j = i + 1; j < boxes.length && boxes[j].y0 < boxes[i].y1; ++j)
        if (boxes[i].node !== boxes[j].node || !boxes[i].node) if (overlaps(boxes[i], boxes[j])) out.push(`${where}: '${boxes[i].text}' overlaps '${boxes[j].text}'`);
  };
  const boxes = [], walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange(), scroll = node.parentElement.closest(".scroll"), frame = scroll && scroll.getBoundingClientRect();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width < 1 || (frame && (r.left >= frame.right || r.right <= frame.left))) continue;
      const left = frame ? frame.left : -Infinity, right = frame ? frame.right : Infinity;  // what scrolls is cut there
      boxes.push({node, text: node.data.slice(0, 40), x0: Math.max(r.left, left), x1: Math.min(r.right, right), y0: r.top + 2, y1: r.bottom - 2});
      if (!frame && (r.left < -0.5 || r.right > width + 0.5)) out.push(`text runs out: '${node.data.slice(0, 60)}'`);
    }
  }
  if (boxes.length < 10) out.push("there is hardly any text");
  pairs(boxes, "page");
  for (const canvas of document.querySelectorAll("canvas")) {
    const name = canvas.dataset.figure, w = canvas.clientWidth, h = canvas.clientHeight, texts = canvas.texts || [];
    if (!texts.length) out.push(`${name}: no text was drawn`);
    for (const t of texts) if (t.x0 < -1 || t.y0 < -1 || t.x1 > w + 1 || t.y1 > h + 1) out.push(`${name}: '${t.text}' runs out of the chart`);
    pairs(texts.filter(t => t.text.trim()), name);
    if (drawnPixels(canvas) < 12) out.push(`${name}: nothing is drawn`);
  }
  return out;
  function drawnPixels(canvas) {
    const chart = Chart.getChart(canvas), area = chart.chartArea, ratio = canvas.width / canvas.clientWidth;
    const colours = new Set(), probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    for (const d of chart.data.datasets) for (const c of [d.borderColor, d.backgroundColor].flat()) if (typeof c === "string") {
      probe.clearRect(0, 0, 1, 1); probe.fillStyle = c; probe.fillRect(0, 0, 1, 1);
      colours.add(probe.getImageData(0, 0, 1, 1).data.slice(0, 3).join());
    }
    const wanted = [...colours].map(c => c.split(",").map(Number));
    const copy = document.createElement("canvas"), width = Math.floor(area.width * ratio), height = Math.floor(area.height * ratio);
    Object.assign(copy, {width, height});
    const context = copy.getContext("2d", {willReadFrequently: true});
    context.drawImage(canvas, area.left * ratio, area.top * ratio, width, height, 0, 0, width, height);
    const data = context.getImageData(0, 0, width, height).data;
    let n = 0;
    for (let i = 0; i < data.length; i += 4)
      if (data[i + 3] > 100 && wanted.some(c => Math.abs(c[0] - data[i]) + Math.abs(c[1] - data[i + 1]) + Math.abs(c[2] - data[i + 2]) < 24)) ++n;
    return n;
  }
})()"""

CHART_DATA = """JSON.stringify([...document.querySelectorAll("canvas")].map(c => ({figure: c.dataset.figure, label: c.getAttribute("aria-label"),
  labels: Chart.getChart(c).data.labels, datasets: Chart.getChart(c).data.datasets.map(d => ({label: d.label, data: d.data, values: d.values, isPart: d.isPart}))})))"""


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


# ---- results and pages ---------------------------------------------------------------------------------------------


def run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr}")


def make_result(kvdiv: Path, name: str, folder: Path) -> Path:
    out = folder / name
    if (out / "report.json").is_file():
        return out
    words = [w.format(run=folder / "run") for w in RESULTS[name]]
    threads = [] if name == "boundary" else ["--threads", "1"]
    run([str(kvdiv), *words, *threads, "--quiet", "--output", str(out)])
    return out


def make_page(kvdiv: Path, results: list[Path], page: Path) -> Path:
    run([str(kvdiv), "report", *map(str, results), "--html", str(page)])
    return page


def records_of(result: Path) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    pairs, steps = [], {}
    for line in (result / "records.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["type"] == "pair":
            pairs.append(record)
        elif record["type"] == "step":
            steps.setdefault(record["pair_id"], []).append(record)
    return pairs, steps


def make_hostile(result: Path, folder: Path) -> Path:
    """The same result with hostile text wherever text comes from a model, a prompt, or a command line."""
    out = folder / "hostile <b>&amp; 'result'"
    out.mkdir()
    report = json.loads((result / "report.json").read_text(encoding="utf-8"))
    report["model"]["name"] = report["verdict"]["sentence"] = HOSTILE
    report["argv"].append(HOSTILE)
    report["warnings"] = [{"code": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}]
    report["conditions"][-1]["backend"] = HOSTILE
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    top = [{"id": i, "text": HOSTILE, "logit": 1.0} for i in range(5)]
    with open(out / "records.jsonl", "w", encoding="utf-8") as file:
        for line in (result / "records.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            record["pair_id"] += HOSTILE
            if record["type"] == "pair":
                record.update(prompt_id=HOSTILE, text_on=HOSTILE + "on", text_off=HOSTILE + "off", flip_top={"on": top, "off": top})
            file.write(json.dumps(record) + "\n")
    return out


# ---- values --------------------------------------------------------------------------------------------------------


def label_of(c: dict[str, Any]) -> str:
    return "/".join(c[k] for k in ("part", "dtype", "backend", "strategy") if isinstance(c.get(k), str))


def page_data(browser: chromium.Browser) -> dict[str, Any]:
    return browser.evaluate("PAGE")


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[math.floor((len(values) - 1) * q)]


def check_kl(check: Checks, charts: list[dict[str, Any]], short: Callable[[str], str], report: dict[str, Any], result: Path) -> None:
    pairs, steps = records_of(result)
    groups = {"same_prefix": lambda s: s["same_prefix"], "free_running": lambda s: s["clock"] != "forced"}
    for c in report["conditions"]:
        name = label_of(c)
        for group, belongs in groups.items():
            mean = c[group]["kl_on_off_nats"]["mean"]
            drawn = {d["label"]: d["data"] for f in charts if f["figure"].startswith(f"kl-{group}") for d in f["datasets"]}
            if not mean:
                check.that(short(name) not in drawn, f"{name}, {group}: a KL of 0 is drawn on a logarithmic axis")
                continue
            by_step: dict[int, list[float]] = {}
            by_prompt: dict[int, dict[str, list[float]]] = {}
            for p in (p for p in pairs if p["condition"] == name):
                for s in filter(belongs, steps[p["pair_id"]]):
                    by_step.setdefault(s["step"], []).append(s["kl_on_off_nats"])
                    by_prompt.setdefault(s["step"], {}).setdefault(p["prompt_id"], []).append(s["kl_on_off_nats"])
            points = {p["x"]: p["y"] for p in drawn[short(name)]}
            check.that(sorted(points) == sorted(by_step), f"{name}, {group}: other steps are drawn")
            for step, values in by_step.items():
                expected = math.fsum(values) / len(values)
                check.near(points[step], expected if expected > 0 else None, f"{name}, {group}, step {step}")
            total = math.fsum((points[s] or 0.0) * len(v) for s, v in by_step.items()) / sum(map(len, by_step.values()))
            check.near(total, mean, f"{name}, {group}: the mean of the chart against report.json")
            for edge, q in (("p5", 0.05), ("p95", 0.95)):
                for p in drawn[f"{short(name)} {edge}"]:
                    value = quantile([math.fsum(v) / len(v) for v in by_prompt[p["x"]].values()], q)
                    is_edge = value < p["y"] and math.log10(p["y"]).is_integer()  # the band ends where the chart does
                    if not is_edge:
                        check.near(p["y"], value, f"{name}, {group}, step {p['x']}: {edge}", 0.0101)


def check_ladder(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    points = {(p["row"]["kind"], p["row"]["label"]): p for f in charts if f["figure"].startswith("ladder") for d in f["datasets"]
              for p in d["data"] if isinstance(p, dict) and "row" in p}
    for c in report["conditions"]:
        for kind, group in (("same prefix", "same_prefix"), ("free-running", "free_running")):
            stat, point = c[group]["kl_on_off_nats"], points[kind, label_of(c)]
            check.near(point["row"]["value"], stat["mean"], f"ladder: {label_of(c)}")
            check.near(point["row"]["low"], stat["ci_low"], f"ladder: {label_of(c)}, low")
            if stat["mean"] > 0:
                check.near(point["x"], stat["mean"], f"ladder: {label_of(c)}, place")


def check_flips(check: Checks, charts: list[dict[str, Any]], short: Callable[[str], str], result: Path) -> None:
    pairs, steps = records_of(result)
    figures = {f["figure"]: f for f in charts}
    names = sorted({p["condition"] for p in pairs if p["flip_index"] is not None})
    check.that(bool(names), "no pair of the toys flips: nothing is tested here")
    bars = {d["label"]: d["data"] for d in figures["flip-index"]["datasets"]}
    curves = {d["label"]: d["data"] for d in figures["survival"]["datasets"]}
    check.that(sorted(bars) == sorted(map(short, names)), "flip-index: other conditions")
    for name in names:
        own = [p for p in pairs if p["condition"] == name]
        flips = [p["flip_index"] for p in own if p["flip_index"] is not None]
        labels = [int(t.split("–")[0]) for t in figures["flip-index"]["labels"]]
        for i, start in enumerate(labels):
            end = labels[i + 1] if i + 1 < len(labels) else math.inf
            check.near(bars[short(name)][i], sum(start <= f < end for f in flips), f"{name}: flips from step {start}")
        share, expected = 1.0, {}
        for step in sorted(set(flips)):
            at_risk = sum((p["flip_index"] if p["flip_index"] is not None else len(p["tokens_on"]) - 1) >= step for p in own)
            share *= 1 - flips.count(step) / at_risk
            expected[step] = share
        drawn = {p["x"]: p["y"] for p in curves[short(name)][1:-1]}
        check.that(sorted(drawn) == sorted(expected), f"{name}: survival has other steps")
        for step, value in expected.items():
            check.near(drawn.get(step), value, f"{name}: survival at step {step}")


def check_margins(check: Checks, charts: list[dict[str, Any]], short: Callable[[str], str], result: Path) -> None:
    pairs, steps = records_of(result)
    drawn = {d["label"]: d["data"] for f in charts if f["figure"].startswith("margins") for d in f["datasets"]}
    for name in sorted({p["condition"] for p in pairs}):
        own = [s for p in pairs if p["condition"] == name for s in steps[p["pair_id"]]
               if s["same_prefix"] and s["max_abs_dlogit"] > 0 and s["margin_on"] > 0]
        if not own:
            check.that(short(name) not in drawn, f"{name}: margins without differences are drawn")
            continue
        cells: dict[tuple[int, int], int] = {}
        for s in own:
            at = (math.floor(8 * math.log10(s["margin_on"])), math.floor(8 * math.log10(s["max_abs_dlogit"])))
            cells[at] = cells.get(at, 0) + 1
        found = {(round(8 * math.log10(p["x"]) - 0.5), round(8 * math.log10(p["y"]) - 0.5)): p["n"] for p in drawn[short(name)]}
        check.that(found == cells, f"{name}: cells of margins: {found} against {cells}")


def check_rows(check: Checks, charts: list[dict[str, Any]], prefix: str, label: str, expected: list[float | None]) -> None:
    """A dataset's y values, in order; 0 is not drawn on a logarithmic axis."""
    found = [d["data"] for f in charts if f["figure"].startswith(prefix) for d in f["datasets"] if d["label"] == label]
    check.that(len(found) == 1, f"{prefix}, {label}: drawn {len(found)} times")
    if found:
        values = [p["y"] if isinstance(p, dict) else p for p in found[0]]
        check.that(len(values) == len(expected), f"{prefix}, {label}: {len(values)} values, not {len(expected)}")
        for i, (a, b) in enumerate(zip(values, expected)):
            check.near(a, b if b else None, f"{prefix}, {label}, value {i}")


def check_drift(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    c = report["conditions"][0]
    for key, figure in (("l2", "drift-l2"), ("rel_l2", "drift-rel")):
        check_rows(check, charts, figure, "all dimensions", [r[key]["mean"] for r in c["by_layer"]])
    heads = {(r["layer"], r["head"]): r["kl_on_off_nats"]["mean"] for r in c["by_head"]}
    (heat,) = [f for f in charts if f["figure"].startswith("heads")]
    for d in heat["datasets"]:
        for head, value in zip(heat["labels"], d["values"]):
            check.near(value, heads[int(d["label"].split()[-1]), int(head)], f"heads: {d['label']}, head {head}")


def check_trace(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    rows = {(r["layer"], r["step"]): r for r in report["conditions"][0]["kv_by_layer"] if r["positions"] == "all"}
    for key in ("k_on_off", "v_on_off"):
        (heat,) = [f for f in charts if f["figure"].startswith(f"trace-{key}")]
        for d in heat["datasets"]:
            for step, value in zip(heat["labels"], d["values"]):
                check.near(value, rows[int(d["label"].split()[-1]), int(step)][key]["mean"], f"trace: {key}, {d['label']}, step {step}")


def check_patch(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    rows = [r for r in report["conditions"][0]["by_layer"] if r["direction"] == "off_into_on"]
    for step in sorted({r["step"] for r in rows}):
        for key, label in (("k", "K"), ("v", "V"), ("kv", "K and V")):
            own = [r for r in rows if r["step"] == step and r[key]["value"] is not None]
            if own:
                found = [p for f in charts if f["figure"] == f"patch-0-{step}-off_into_on" for d in f["datasets"] if d["label"] == label for p in d["data"]]
                check.that([p["y"] for p in found] == [r[key]["value"] for r in own], f"patch: step {step}, {label}")


def check_noise(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    for kind in ("gaussian", "mantissa"):
        rows = [r for r in report["conditions"][0]["curve"] if r["kind"] == kind and r["what"] == "kv" and r["relative_size_stored"] > 0]
        rows.sort(key=lambda r: r["relative_size_stored"])
        found = [p for f in charts if f["figure"] == f"noise-{kind}-step-0" for d in f["datasets"] if d["label"] == "K and V" for p in d["data"]]
        check.that([(p["x"], p["y"]) for p in found] == [(r["relative_size_stored"], r["flip_rate"]["value"]) for r in rows], f"noise: {kind}")


def check_mitigate(check: Checks, charts: list[dict[str, Any]], report: dict[str, Any]) -> None:
    found = {p["row"]["remedy"]: p for f in charts if f["figure"].startswith("pareto") for d in f["datasets"] for p in d["data"] if p.get("row")}
    for r in report["conditions"][0]["remedies"]:
        check.near(found[r["remedy"]]["x"], r["on_tokens_per_s"], f"remedy {r['remedy']}: speed")
        if r["kl_on_off_nats"]["mean"] > 0:
            check.near(found[r["remedy"]]["y"], r["kl_on_off_nats"]["mean"], f"remedy {r['remedy']}: KL")


# ---- pages ---------------------------------------------------------------------------------------------------------


def check_layout(check: Checks, browser: chromium.Browser, name: str, page: Path, min_charts: int) -> None:
    for width in WIDTHS:
        for dark in (False, True):
            browser.problems.clear()
            browser.set_view(width, dark=dark)
            browser.open(page)
            where = f"{name}, {width} px, {'dark' if dark else 'light'}"
            n = browser.evaluate("document.querySelectorAll('canvas').length")
            check.that(n >= min_charts, f"{where}: {n} charts, expected {min_charts} or more")
            problems = browser.evaluate(FIND_PROBLEMS)
            check.that(not problems, f"{where}: {problems[:6]}")
            if width != 800 and not dark:
                browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                browser.settle()
                problems = browser.evaluate(FIND_PROBLEMS)
                check.that(not problems, f"{where}, unfolded: {problems[:6]}")
            check.that(not browser.problems, f"{where}: {browser.problems[:6]}")


VALUES: dict[str, Callable[[Checks, list[dict[str, Any]], dict[str, Any]], None]] = {
    "drift": check_drift, "trace": check_trace, "patch": check_patch, "noise": check_noise, "mitigate": check_mitigate}
MIN_CHARTS = {"run": 7, "drift": 4, "trace": 4, "patch": 1, "noise": 4, "mitigate": 2, "falsify": 2, "boundary": 1, "paper": 8}


def check_values(check: Checks, browser: chromium.Browser, name: str, result: Path) -> None:
    charts = json.loads(browser.evaluate(CHART_DATA))
    report = json.loads((result / "report.json").read_text(encoding="utf-8"))
    check.that(all(c["label"] for c in charts), f"{name}: a chart has no text in its place")
    short = lambda text: browser.evaluate(f"shortName({json.dumps(text)})")  # noqa: E731
    if name == "run":
        check_kl(check, charts, short, report, result)
        check_ladder(check, charts, report)
        check_flips(check, charts, short, result)
        check_margins(check, charts, short, result)
    elif name in VALUES:
        VALUES[name](check, charts, report)
    text = browser.evaluate("document.getElementById('page').textContent")
    check.that(report["verdict"]["sentence"] in text, f"{name}: the verdict is not on the page")
    for warning in report["warnings"]:
        check.that(warning["remedy"] in text, f"{name}: the remedy of {warning['code']} is not on the page")


def check_hostile(check: Checks, browser: chromium.Browser, page: Path) -> None:
    check_layout(check, browser, "hostile", page, 7)
    check.that(browser.evaluate("window.hostile === undefined"), "hostile text was run")
    check.that(browser.evaluate("document.querySelectorAll('#page img, #page script, #page b').length") == 0, "hostile text became an element")
    text = browser.evaluate("document.getElementById('page').textContent")
    for part in ("</script><script>window.hostile = 1</script>", "onerror=\"window.hostile = 2\"", "'\"&lt;", "U+202E", "U+2066", "U+200F", "U+0000", "U+2028", "{{data}}"):
        check.that(part in text, f"hostile: {part} is not shown")
    hidden = browser.evaluate(r"(document.getElementById('page').textContent.match(/[\u0000\u202a-\u202e\u2066-\u2069\u200e\u200f]/g) || []).length")
    check.that(hidden == 0, f"hostile: {hidden} characters that turn text or show nothing")
    browser.problems.clear()


def check_print(check: Checks, browser: chromium.Browser, page: Path) -> None:
    browser.set_view(800, dark=True)
    browser.open(page)
    colour = "Chart.getChart(document.querySelector('canvas')).options.scales.x.ticks.color"
    dark = browser.evaluate(colour)
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    check.that(browser.evaluate(colour) != dark, "charts keep the colours of the dark screen on paper")
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    check.that(browser.evaluate(colour) == dark, "charts keep the colours of paper on the dark screen")
    browser.set_view(800, dark=True, media="print")
    check.that(browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is not white")
    browser.set_view(800)
    check.that(len(browser.call("Page.printToPDF", printBackground=False)["data"]) > 20000, "the printed page is empty")


def check_without_charts(check: Checks, browser: chromium.Browser, page: Path, folder: Path) -> None:
    text = page.read_text(encoding="utf-8")
    start = text.index("<script>") + len("<script>")
    bare = folder / "bare.html"
    bare.write_text(text[:start] + text[text.index("</script>", start):], encoding="utf-8")
    browser.problems.clear()
    browser.set_view(800)
    browser.open(bare)
    check.that(browser.evaluate("document.querySelectorAll('canvas').length") == 0, "charts without Chart.js")
    check.that("There are no charts" in browser.evaluate("document.getElementById('page').textContent"), "the page does not say that its charts are missing")
    check.that(browser.evaluate("document.querySelectorAll('figure table').length") > 3, "no numbers without charts")
    check.that(not browser.problems, f"without charts: {browser.problems}")


def check_two(check: Checks, browser: chromium.Browser, kvdiv: Path, results: list[Path], folder: Path) -> None:
    page = make_page(kvdiv, results, folder / "two.html")
    check_layout(check, browser, "two results", page, 14)
    text = browser.evaluate("document.querySelector('h2').textContent + document.querySelector('section').textContent")
    check.that(text.startswith("Differences"), "two results do not begin with their differences")
    check.that("experiment.params.max_new_tokens" in text, "a setting that differs is not shown")
    check.that(browser.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length"), "an id stands twice")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kvdiv", type=Path, default=ROOT / "build" / "release" / "bin" / "kvdiv")
    parser.add_argument("--results", type=Path, help="where results are, and where missing ones are made (default: a folder that goes)")
    parser.add_argument("--keep", type=Path, help="where the pages are kept (default: nowhere)")
    parser.add_argument("--only", default="", help="these results, e.g. run,drift")
    args = parser.parse_args()
    program = chromium.find()
    if program is None:
        print("skipped: there is no Chromium; apt-get install chromium")
        return 77
    with tempfile.TemporaryDirectory(prefix="kvdiv-report-") as temporary:
        folder = Path(temporary)
        results, pages = args.results or folder / "results", args.keep or folder / "pages"
        results.mkdir(parents=True, exist_ok=True)
        pages.mkdir(parents=True, exist_ok=True)
        check = Checks()
        with chromium.Browser(program) as browser:
            browser.on_new_page(RECORD_TEXT)
            chosen = [n for n in args.only.split(",") if n]
            for name in chosen or RESULTS:
                result = make_result(args.kvdiv, name, results)
                page = make_page(args.kvdiv, [result], pages / f"{name}.html")
                check_layout(check, browser, name, page, MIN_CHARTS.get(name, 0))
                check_values(check, browser, name, result)
                print(f"{name}: {check.n} checks so far, {len(check.failures)} failed", flush=True)
            if not chosen or "run" in chosen:
                extra(check, browser, args.kvdiv, results, pages, folder)
    print(f"{check.n} checks, {len(check.failures)} failed")
    return 1 if check.failures else 0


def extra(check: Checks, browser: chromium.Browser, kvdiv: Path, results: Path, pages: Path, folder: Path) -> None:
    """What needs one page only: that of `run`."""
    page = pages / "run.html"
    check_hostile(check, browser, make_page(kvdiv, [make_hostile(results / "run", folder)], pages / "hostile.html"))
    check_print(check, browser, page)
    check_without_charts(check, browser, page, folder)
    other = results / "run-short"
    if not (other / "report.json").is_file():
        words = [w if w != "24" else "12" for w in RESULTS["run"]]
        run([str(kvdiv), *words, "--threads", "1", "--quiet", "--output", str(other)])
    check_two(check, browser, kvdiv, [results / "run", other], pages)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())

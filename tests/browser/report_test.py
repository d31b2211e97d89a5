#!/usr/bin/env python3
"""Opens HTML reports of the toys in a headless Chromium, from disk: no console error, no request, every chart has drawn
something, no text overlaps or runs out at three widths in light and dark, the values in the charts are those of
report.json and records.jsonl, hostile text is text, and the page prints.

    tests/browser/report_test.py [--kvdiv build/release/bin/kvdiv] [--results DIR] [--keep DIR] [--only NAME,…]

Needs Debian's chromium; without it this says so and ends with 77, which ctest reads as skipped.
"""
from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from page_values import ROOT, Checks, check_values, chromium

ORDER = "order:prefill=blocked:32@float16,decode=sequential@float16"  # arms that differ on every machine
RESULTS: dict[str, list[str]] = {
    "run": ["run", "--dtype", "bfloat16,float16", "--backend", "invariant", "--backend", ORDER, "--strategy", "greedy,top-p",
            "--seeds", "2", "--max-new-tokens", "24", "--ignore-eos"],
    "drift": ["drift", "--limit", "3", "--backend", ORDER],
    "trace": ["trace", "--limit", "2", "--backend", ORDER],
    "patch": ["patch", "--limit", "2", "--backend", ORDER, "--max-steps", "9"],
    "noise": ["noise", "--limit", "2"],
    "mitigate": ["mitigate", "--limit", "1"],
    "falsify": ["falsify", "--limit", "2", "--max-new-tokens", "8"],
    "shapes": ["shapes", "--operation", "attention"],
    "boundary": ["boundary", "{run}"],
    "paper": ["paper", "--backend", ORDER, "--limit", "2", "--seeds", "1", "--max-new-tokens", "8", "--max-steps", "8", "--samples", "2"],
    "selftest": ["selftest", "--model", "toy-llama"],
}
# Short, so that a page's result takes seconds: OFF computes the prompt again at every step.
PROMPTS = ROOT / "tests" / "corpus" / "prompts" / "short.jsonl"
WIDTHS = (360, 800, 1600)
HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror=\"window.hostile = 2\">'\"&lt;\u202eright\u2066to\u200fleft\u0000zero\u2028line {{data}}"

# Keeps what each chart writes, with its box and colour, from one drawing to the next.
RECORD_TEXT = (Path(__file__).parent / "record_text.js").read_text(encoding="utf-8")
FIND_PROBLEMS = (Path(__file__).parent / "find_problems.js").read_text(encoding="utf-8")

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
    decode(kvdiv, words, out)
    return out


def decode(kvdiv: Path, words: list[str], out: Path) -> None:
    if words[0] != "boundary":
        words = [*words, "--prompts", str(PROMPTS), "--threads", "1"]
    run([str(kvdiv), *words, "--quiet", "--output", str(out)])


def make_page(kvdiv: Path, results: list[Path], page: Path) -> Path:
    run([str(kvdiv), "report", *map(str, results), "--html", str(page)])
    return page


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


# ---- pages ---------------------------------------------------------------------------------------------------------


def check_layout(check: Checks, browser: chromium.Browser, name: str, page: Path, min_charts: int) -> None:
    for width in WIDTHS:
        browser.problems.clear()
        for dark in (False, True):
            browser.set_view(width, dark=dark)
            if dark:
                browser.settle()  # the page changes its colours while it is open
            else:
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
                browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
            check.that(not browser.problems, f"{where}: {browser.problems[:6]}")
    bare = browser.evaluate("[...document.querySelectorAll('figure')].filter(f => f.querySelector('canvas') && !(f.querySelector('figcaption').textContent && f.querySelector('details td'))).map(f => f.querySelector('h3').textContent)")
    check.that(not bare, f"{name}: without a reading or numbers: {bare}")


MIN_CHARTS = {"run": 7, "drift": 4, "trace": 4, "patch": 1, "noise": 4, "mitigate": 2, "falsify": 2, "boundary": 1, "paper": 8}


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


def check_verdicts(check: Checks, browser: chromium.Browser, kvdiv: Path, result: Path, folder: Path) -> None:
    """The same result with other verdicts, a control that failed, without its end, with ties, of a command with quotes."""
    out = folder / "verdicts"
    out.mkdir()
    words = ["run", "--prompts", "it's a file", "$HOME", "a\\b", "*"]
    for kind, fails, complete, tone in (("rounding", False, True, "good"), ("bug", False, True, "bad"), ("undecided", False, True, ""),
                                        ("equivalent", True, True, "bad"), ("rounding", False, False, "good")):
        report = json.loads((result / "report.json").read_text(encoding="utf-8"))
        report.update(verdict={"kind": kind, "sentence": "A sentence."}, complete=complete, argv=words)
        report["controls"]["self_null"] = not fails
        report["conditions"][0]["same_prefix"]["tie_flips"] = 12345
        (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
        browser.open(make_page(kvdiv, [out], folder / "verdicts.html"))
        found = browser.evaluate("({tone: document.querySelector('.verdict').className.split(' ')[1] || '', verdict: document.querySelector('.verdict').textContent,"
                                 " table: document.querySelector('table').textContent, command: document.querySelector('.command').textContent})")
        what = f"verdict {kind}{', a control failed' if fails else ''}{'' if complete else ', incomplete'}"
        check.same(found["tone"], tone, f"{what}: its colour")
        check.same("Controls that failed: self_null" in found["verdict"], fails, f"{what}: names the control")
        check.same("controls hold" in found["verdict"], not fails, f"{what}: says that controls hold")
        check.same("Incomplete" in found["verdict"], not complete, f"{what}: says that it is incomplete")
        check.that("+ 12,345 tied" in found["table"], f"{what}: flips at a tied logit are not told")
        check.same(shlex.split(found["command"]), ["kvdiv", *words], f"{what}: the command")


def check_malformed(check: Checks, browser: chromium.Browser, kvdiv: Path, result: Path, folder: Path) -> None:
    """A value of another type takes its section with it, and no other."""
    out = folder / "malformed"
    shutil.copytree(result, out)
    report = json.loads((result / "report.json").read_text(encoding="utf-8"))
    report["warnings"] = "text"
    (out / "report.json").write_text(json.dumps(report), encoding="utf-8")
    browser.open(make_page(kvdiv, [out], folder / "malformed.html"))
    told = browser.evaluate("[...document.querySelectorAll('h2')].map(h => [h.textContent, h.parentElement.textContent.includes('This cannot be shown')])")
    check.same([title for title, broken in told if broken], ["Warnings"], "sections that cannot be shown")
    check.that(len(told) > 6 and browser.evaluate("document.querySelectorAll('canvas').length") >= 7, f"what is left of a malformed report: {told}")
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
    check_verdicts(check, browser, kvdiv, results / "run", folder)
    check_malformed(check, browser, kvdiv, results / "run", folder)
    check_print(check, browser, page)
    check_without_charts(check, browser, page, folder)
    other = results / "run-short"
    if not (other / "report.json").is_file():
        words = [w if w != "24" else "12" for w in RESULTS["run"]]
        decode(kvdiv, words, other)
    made = folder / "made"  # more steps than a chart has bins
    run([sys.executable, str(ROOT / "scripts" / "make_large_result"), str(made), "--prompts", "12", "--seeds", "1", "--steps", "300"])
    check_layout(check, browser, "made", make_page(kvdiv, [made], pages / "made.html"), 7)
    check_two(check, browser, kvdiv, [results / "run", other], pages)


if __name__ == "__main__":
    sys.exit(main())

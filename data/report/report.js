// The page: what is shown, in which order. One result fills one column; two stand side by side.

const PAGE = JSON.parse(document.getElementById("data").textContent);

// ---- the verdict ---------------------------------------------------------------------------------------------------

const GOOD_VERDICTS = new Set(["equivalent", "rounding", "holds"]), BAD_VERDICTS = new Set(["bug", "invalid", "violated"]);

function failedControls(controls) {
  const judged = Object.entries(controls || {}).filter(([, v]) => typeof v === "boolean" || (v && typeof v === "object" && "expected" in v));
  return {n: judged.length, failed: judged.filter(([, v]) => typeof v === "boolean" ? !v : v.expected !== v.computed).map(([name]) => name)};
}

function verdictBlock(result) {
  const {verdict, controls, complete} = result.report, kind = (verdict || {}).kind || "none", checks = failedControls(controls);
  const tone = BAD_VERDICTS.has(kind) || checks.failed.length ? "bad" : GOOD_VERDICTS.has(kind) ? "good" : "";
  return el("div", {class: `verdict ${tone}`}, el("strong", {}, visible(kind)), " ", verdict && verdict.sentence ? el("span", {}, visible(verdict.sentence)) : "",
    checks.n ? el("div", {class: "faint"}, checks.failed.length ? `Controls that failed: ${checks.failed.join(", ")}` : checks.n === 1 ? "The control holds." : `All ${checks.n} controls hold.`) : "",
    complete ? "" : el("div", {class: "bad"}, "Incomplete: the run was interrupted."));
}

/// Flips at a tied largest logit are counted apart: there the choice is the sampler's.
const flipsOf = g => count(g.flips) + (g.tie_flips ? ` + ${count(g.tie_flips)} tied` : "");

const RUN_ROWS = [
  ["steps", g => count(g.n_steps)],
  ["KL(on‖off) mean, nats [95 %, by prompt]", g => statInterval(g.kl_on_off_nats)],
  ["KL median; p99; max", g => ["median", "p99", "max"].map(k => num((g.kl_on_off_nats || {})[k])).join("; ")],
  ["JS mean, nats", g => num((g.js_nats || {}).mean)],
  ["max |Δlogit|", g => num((g.max_abs_dlogit || {}).max)],
  ["bit-equal steps", g => percent(g.bit_equal_rate)],
  ["another token chosen", flipsOf],
];

function runTables(result) {
  return conditionsOf(result, "run").map(c => {
    const a = c.accuracy || {}, groups = ["same_prefix", "free_running", "after_flip"].map(k => c[k] || {});
    const p = (((c.mcnemar || {}).exact || {}).p_adjusted);
    return el("section", {}, el("h4", {}, visible(conditionLabel(c))),
      table(["", "same prefix", "free-running", "after the flip"], RUN_ROWS.map(([name, cell]) => [name, ...groups.map(cell)])),
      el("p", {class: "faint"}, `${plural(c.n_pairs, "pair")} of ${plural(c.n_prompts, "prompt")}; tokens differ in ${percent(c.divergence_rate)}, first flip at step ${num((c.flip_index || {}).median)} (median).`,
        isNumber(a.on) ? ` Accuracy: ON ${percent(a.on)}, OFF ${percent(a.off)} of ${count(a.n)} answers${isNumber(p) ? `; McNemar exact, adjusted p ${num(p)}` : ""}.` : "",
        (c.timing || {}).on_tokens_per_s ? ` Speed: ON ${num(c.timing.on_tokens_per_s)}, OFF ${num(c.timing.off_tokens_per_s)} tokens/s.` : ""));
  });
}

/// The numbers that decide, in one table; the rest of each condition behind the fold.
function verdictSections(result) {
  const runs = conditionsOf(result, "run"), cell = (c, group, f) => f(c[group] || {});
  const summary = runs.length ? table(["condition", "KL same prefix, nats [95 %]", "max |Δlogit|", "flips", "bit-equal", "KL free-running", "pairs that differ"],
    runs.map(c => [conditionLabel(c), cell(c, "same_prefix", g => statInterval(g.kl_on_off_nats)), cell(c, "same_prefix", g => num((g.max_abs_dlogit || {}).max)),
      cell(c, "same_prefix", flipsOf), cell(c, "same_prefix", g => percent(g.bit_equal_rate)), cell(c, "free_running", g => num((g.kl_on_off_nats || {}).mean)), percent(c.divergence_rate)])) : "";
  return [verdictBlock(result), result.note ? el("p", {class: "note"}, result.note) : "", summary, runs.length ? fold("each condition", runTables(result)) : ""];
}

// ---- numbers, settings ---------------------------------------------------------------------------------------------

function cellText(value, kind) {
  if (kind === "interval") return Array.isArray(value) ? interval(...value) : "–";
  if (kind === "test") return Array.isArray(value) && isNumber(value[0]) ? num(value[0]) + (value[0] >= 0.05 && isNumber(value[1]) ? ` (could see ${num(value[1])})` : "") : "–";
  if (kind === "count") return count(value);
  if (kind === "number") return num(value);
  if (kind === "percent") return percent(value);
  if (kind === "list" || Array.isArray(value)) return value === null ? "–" : JSON.stringify(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return value;
}

function tableSections(result) {
  return (result.tables || []).map(block => fold(el("span", {}, visible(block.label || "the whole report")), block.tables.map(t => [el("h4", {}, visible(t.title)),
    table(t.columns.map(c => c.header), t.rows.map(row => row.map((v, i) => cellText(v, t.columns[i].cell)))),
    t.n_left_out ? el("p", {class: "faint"}, `${count(t.n_left_out)} rows more stand in report.json.`) : ""])));
}

function settingsTable(title, values) {
  if (!values || typeof values !== "object") return "";
  const rows = Object.entries(values).map(([k, v]) => [k, v !== null && typeof v === "object" ? JSON.stringify(v) : v === null ? "–" : String(v)]);
  return fold(title, table(["", ""], rows, {class: "texts"}));
}

function warningSections(result) {
  const warnings = result.report.warnings || [];
  if (!warnings.length) return [el("p", {}, "There are no warnings.")];
  return [table(["warning", "what was found", "what to do"], warnings.map(w => [w.code, w.message, w.remedy]), {class: "texts"})];
}

const shellWord = w => /^[\w@%+=:,.\/-]+$/.test(w) ? w : "'" + w.replace(/'/g, "'\\''") + "'";

function commandSections(result) {
  const argv = result.report.argv || [], r = result.report;
  const command = argv.length ? el("p", {class: "command"}, visible(["kvdiv", ...argv.map(String)].map(shellWord).join(" "))) : el("p", {}, "The command is not recorded.");
  return [command, settingsTable("settings", (r.experiment || {}).params), settingsTable("environment", r.environment), settingsTable("numerics", r.numerics), settingsTable("model", r.model),
    settingsTable("prompts", r.data), settingsTable("program", r.tool), settingsTable("controls", r.controls), settingsTable("times", r.timing)];
}

// ---- two results ---------------------------------------------------------------------------------------------------

function comparedText(d) {
  const quantities = n => n === 1 ? "1 quantity" : `${count(n)} quantities`, verb = n => n === 1 ? "has" : "have";
  const out = [`${count(d.n_different)} of ${quantities(d.n_compared)} that both have with a 95 % interval ${verb(d.n_different)} intervals that do not overlap${d.n_different > d.quantities.length ? `; the ${d.quantities.length} farthest apart are shown` : ""}.`];
  if (d.n_compared > 20) out.push("Of so many some may differ by chance.");
  if (d.n_without_interval) out.push(`${quantities(d.n_without_interval)} without an interval (one prompt gives none) ${d.n_without_interval === 1 ? "was" : "were"} not compared.`);
  if (d.n_in_one) out.push(`${quantities(d.n_in_one)} of matching conditions ${d.n_in_one === 1 ? "is" : "are"} in one result only.`);
  return out.join(" ");
}

function differenceSections(d) {
  const [a, b] = PAGE.results.map((r, i) => `${"AB"[i]}: ${r.name}`), out = [el("p", {}, visible(`${a}; ${b}`))];
  out.push(el("h3", {}, "Settings that differ"));
  out.push(d.settings.length ? table(["setting", "A", "B"], d.settings.map(s => [s.key, s.a, s.b]), {class: "texts"}) : el("p", {}, "None."));
  out.push(el("h3", {}, "Conditions that differ beyond their intervals"));
  out.push(d.quantities.length ? table(["condition", "quantity", "A [95 %]", "B [95 %]"], d.quantities.map(q => [q.condition, q.quantity, interval(...q.a), interval(...q.b)])) : el("p", {}, "None."));
  out.push(el("p", {class: "faint"}, comparedText(d)));
  for (const [side, only] of [["A", d.only_in_a], ["B", d.only_in_b]])
    if (only.length) out.push(el("p", {}, visible(`Only in ${side}: ${only.join(", ")}.`)));
  return out;
}

// ---- the page ------------------------------------------------------------------------------------------------------

const SECTIONS = [
  ["verdict", "Verdict", verdictSections],
  ["paper", "The paper", paperSections],
  ["ladder", "Ladder", ladderFigures],
  ["kl", "KL over the steps", klFigures],
  ["flips", "Flips", flipFigures],
  ["margins", "Margins", r => [...marginFigures(r), ...boundaryFigures(r)]],
  ["drift", "Drift by layer", driftFigures],
  ["trace", "Errors of K and V", traceFigures],
  ["patch", "Patching", patchFigures],
  ["noise", "Noise", noiseFigures],
  ["pareto", "Remedies and their price", paretoFigures],
  ["falsify", "Precision and order", falsifyFigures],
  ["selftest", "Self-test", matrixSections],
  ["texts", "Texts that part", exampleSections],
  ["tables", "Tables", tableSections],
  ["warnings", "Warnings", warningSections],
  ["command", "Command and environment", commandSections],
];

/// A report that another program wrote, or an older one: what cannot be shown takes nothing else with it.
function partsOf(make, result) {
  try {
    return make(result).filter(part => part);
  } catch (error) {
    console.error(error);
    return [el("p", {class: "note bad"}, visible(`This cannot be shown: the report is not as expected (${error.message}).`))];
  }
}

function columns(id, make) {
  const parts = PAGE.results.map(result => partsOf(make, result));
  if (parts.every(p => !p.length)) return null;
  return el("div", {class: "columns"}, parts.map((part, i) => el("div", {}, PAGE.results.length > 1 ? el("h3", {}, visible(`${"AB"[i]}: ${PAGE.results[i].name}`)) : "",
    part.length ? part : el("p", {class: "faint"}, "Not in this result."))));
}

function header() {
  const what = r => [experimentOf(r), (r.report.model || {}).name].filter(v => v).join(" ") || "a result";
  const line = r => [r.report.created_utc, (r.report.data || {}).source ? `${(r.report.data || {}).source}, ${plural(r.report.data.n_prompts, "prompt")}` : "", (r.report.environment || {}).device].filter(v => v).join(" · ");
  return [el("h1", {}, visible("kvdiv: " + PAGE.results.map(what).join(" and "))), PAGE.results.map(r => el("p", {class: "faint"}, visible(`${r.name} · ${line(r)}`)))];
}

function build() {
  const main = document.getElementById("page"), names = [], sections = [];
  if (PAGE.results.length > 1) main.classList.add("two");
  const add = (id, title, content) => {
    names.push(el("li", {}, el("a", {href: `#section-${id}`}, title)));
    sections.push(el("section", {}, el("h2", {id: `section-${id}`}, title), content));
  };
  if (PAGE.differences) add("differences", "Differences", differenceSections(PAGE.differences));
  for (const [id, title, make] of SECTIONS) {
    const content = columns(id, make);
    if (content) add(id, title, content);
  }
  main.replaceChildren(...partsOf(header, null).flat(),
    ...(HAS_CHARTS ? [] : [el("p", {class: "note", id: "no-charts"}, "There are no charts: Chart.js was not found when this file was written. The numbers are all here. With Debian's package libjs-chart.js installed, write it again.")]),
    el("nav", {"aria-label": "sections"}, el("ul", {}, names)), ...sections);
  if (PAGE.results.length > 1)  // two results have the same figures: no id twice
    main.querySelectorAll("figure[id]").forEach(node => node.removeAttribute("id"));
  drawAll();
}

build();

// Figures of `run`: each takes a result of the page's data and gives a list of figures; none where the data is not there.

const CONDITIONS_PER_CHART = 3;
/// FP64 logits of size 10 are rounded to 1e-15 each, which alone makes a KL of 1e-30.
const METRIC_FLOOR_NATS = 1e-30;

const experimentOf = result => (result.report.experiment || {}).name;

/// The conditions of one experiment: of its own report, or of its part of a report of `paper`.
function conditionsOf(result, name) {
  const own = experimentOf(result);
  if (own === name || (own === "paper" && name === "run")) return result.report.conditions || [];
  return (((result.report.experiments || {})[name] || {}).conditions) || [];
}

function chunks(list, size) {
  const out = [];
  for (let i = 0; i < list.length; i += size) out.push(list.slice(i, i + size));
  return out;
}

// ---- KL by step ----------------------------------------------------------------------------------------------------

/// The same numbers as the mean of the condition in report.json: all steps, each once.
function meanOverSteps(kl) {
  let n = 0, sum = 0;
  kl.mean.forEach((m, i) => {
    if (m === null) return;
    n += kl.n[i];
    sum += m * kl.n[i];
  });
  return {n, mean: n ? sum / n : null};
}

const isDrawn = kl => kl.mean.some(m => m > 0);
const notFinite = kl => kl.n_nonfinite.reduce((a, b) => a + b, 0);

function klConfig(part, range) {
  return t => {
    const datasets = part.flatMap(({label, kl}, i) => {
      const colour = t.series[i], point = (list, k) => ({x: kl.step[k], y: list[k] > 0 ? list[k] : NaN});
      const edge = list => kl.step.map((x, k) => ({x, y: kl.mean[k] > 0 ? Math.max(list[k] || 0, 10 ** range.low) : NaN}));
      const band = {isPart: true, pointRadius: 0, pointHitRadius: 0, borderWidth: 0, backgroundColor: withAlpha(colour, 0.16)};
      return [
        series(label, kl.step.map((_, k) => point(kl.mean, k)), t, i, {pointRadius: kl.step.length > 64 ? 0 : 2, kl}),
        {...band, label: `${shortName(label)} p95`, data: edge(kl.p95), fill: "+1"},
        {...band, label: `${shortName(label)} p5`, data: edge(kl.p5), fill: false},
      ];
    });
    return {
      type: "line", data: {datasets},
      options: {
        scales: {x: linearAxis("step", {min: 0, ticks: {precision: 0}}), y: logAxis("KL(on‖off), nats", range)},
        plugins: {legend: legend(), tooltip: tooltip(c => c.dataset.isPart ? "" : `${c.dataset.label}, step ${c.parsed.x}: ${num(c.parsed.y)}`)},
      },
    };
  };
}

function klReading({label, kl, nPairs}) {
  const {n, mean} = meanOverSteps(kl), zero = kl.n_zero.reduce((a, b) => a + b, 0);
  let largest = 0;
  kl.mean.forEach((m, i) => { if (m > kl.mean[largest]) largest = i; });
  return `${label}: mean ${num(mean)} nats over ${plural(n, "step")} of ${plural(nPairs, "pair")}, largest mean ${num(kl.mean[largest])} at step ${kl.step[largest]}; ${percent(zero / n)} of the steps are exactly 0.${notFinite(kl) ? ` ${plural(notFinite(kl), "step")} more have no finite KL.` : ""}`;
}

function klTable(part) {
  return part.map(({label, kl}) => [el("h4", {}, visible(label)),
    table(["step", "steps", "exactly 0", "not finite", "mean", "prompts: p5", "p25", "median", "p75", "p95"],
      kl.step.map((s, i) => [s, count(kl.n[i]), count(kl.n_zero[i]), count(kl.n_nonfinite[i]),
        ...["mean", "p5", "p25", "median", "p75", "p95"].map(k => num(kl[k][i]))]))]);
}

function klFigures(result) {
  const groups = [["same_prefix", "KL by step, same prefix", "Both arms were fed the same tokens: only arithmetic differs."],
    ["free_running", "KL by step, free-running", "Each arm is fed its own tokens: behind a flip two different texts are compared."]];
  return groups.flatMap(([group, title, what]) => {
    const all = (result.records || []).filter(c => c.kl[group])
      .map(c => ({label: c.condition, kl: c.kl[group], nPairs: c.n_pairs}));
    const some = all.filter(c => isDrawn(c.kl)), rest = all.filter(c => !isDrawn(c.kl)), zero = rest.filter(c => !notFinite(c.kl));
    if (!all.length) return [];
    const equal = [...(zero.length ? [`Exactly 0 at every step: ${zero.map(c => c.label).join(", ")}.`] : []),
      ...rest.filter(c => notFinite(c.kl)).map(c => `${c.label}: ${plural(notFinite(c.kl), "step")} without a finite KL, 0 at the others.`)];
    if (!some.length) return [figure({id: `kl-${group}`, title, reading: [what, ...equal], numbers: klTable(rest)})];
    const rangeOf = part => decades(part.flatMap(c => [...c.kl.mean, ...c.kl.p95])), whole = rangeOf(some);
    const isWide = whole.high - whole.low > 14;  // float64 beside float16: one scale would flatten both
    return chunks(some, CONDITIONS_PER_CHART).map((part, i, parts) => figure({
      id: `kl-${group}-${i}`, title: parts.length > 1 ? `${title} (${i + 1} of ${parts.length})` : title, height: 330 + 22 * part.length,
      config: klConfig(part, isWide ? rangeOf(part) : whole),
      reading: [what + " Line: mean of the steps; band: 5 % to 95 % of the prompts.", ...part.map(klReading), ...(i === 0 ? equal : [])],
      numbers: klTable(part)}));
  });
}

// ---- the ladder ----------------------------------------------------------------------------------------------------

function ladderRows(result) {
  const rows = [], add = (label, kind, value, low, high) => {
    if (isNumber(value)) rows.push({label, kind, value, low, high});
  };
  const stat = (label, kind, s) => { if (s) add(label, kind, s.mean, s.ci_low, s.ci_high); };
  for (const c of conditionsOf(result, "run")) {
    stat(conditionLabel(c), "same prefix", (c.same_prefix || {}).kl_on_off_nats);
    stat(conditionLabel(c), "free-running", (c.free_running || {}).kl_on_off_nats);
  }
  const check = result.report.fp64_check;
  if (check) add("the same pairs in float64", "same prefix", check.mean_kl_on_off_nats);
  const mitigated = conditionsOf(result, "mitigate");
  for (const c of mitigated)
    for (const r of c.remedies || []) stat((mitigated.length > 1 ? `${c.dtype}/${c.backend} ` : "") + r.remedy, "same prefix", r.kl_on_off_nats);
  for (const c of conditionsOf(result, "falsify"))
    for (const r of c.rerun || []) {
      const v = r.kl_on_off_nats || {};
      add(`rerun ${r.condition}`, "same prefix", v.value, v.low, v.high);
    }
  return rows;
}

function ladderMarks() {
  const signature = (PAGE.published || {}).signature || {}, marks = [];
  const add = (label, values) => { if (values && values.length) marks.push({label: `${label}: ${values.map(num).join(" to ")}`, values}); };
  add("paper, FP16", (signature.float16 || {}).kl_nats);
  add("paper, FP32", (signature.float32 || {}).kl_nats);
  add("floor of the metric", [METRIC_FLOOR_NATS]);
  return marks;
}

const ladderLabel = label => lines(cutMiddle(plainText(label), 60), 18, 5);

function ladderConfig(rows, labels, marks) {
  const range = decades([...rows.map(r => r.value), ...rows.map(r => r.high), ...marks.flatMap(m => m.values)]);
  const edge = 10 ** range.low, at = label => labels.indexOf(label);
  const kinds = [...new Set(rows.map(r => r.kind))];
  return t => {
    const datasets = kinds.flatMap((kind, i) => {
      const offset = kinds.length > 1 ? (i - 0.5) * 0.3 : 0, own = rows.filter(r => r.kind === kind), y = r => at(r.label) + offset;
      const spans = own.filter(r => r.value > 0 && r.high > 0).map(r => [Math.max(r.low, edge), y(r), r.high, y(r)]);
      return [series(kind, own.filter(r => r.value > 0).map(r => ({x: r.value, y: y(r), row: r})), t, i, {pointRadius: 5, showLine: false}),
        segments(`${kind} 95 %`, spans, t.series[i], {isPart: true})];
    });
    const zero = rows.filter(r => r.value === 0).map(r => ({x: edge, y: at(r.label), row: r}));
    if (zero.length) datasets.push({...series("exactly 0", zero, t, 6, {pointStyle: "triangle", rotation: -90, pointRadius: 6, showLine: false}), clip: false});
    marks.forEach((m, i) => datasets.push(segments(m.label, m.values.map(v => [v, -0.6, v, labels.length - 0.4]),
      i === 2 ? t.text : t.series[(i + 3) % 8], {borderDash: DASHES[i + 1], borderWidth: 1.5})));
    return {
      type: "scatter", data: {datasets},
      options: {
        scales: {x: logAxis("mean KL(on‖off), nats", range), y: rowAxis(labels.map(ladderLabel))},
        plugins: {legend: legend(), tooltip: tooltip(c => c.raw.row ? `${plainText(c.raw.row.label)}, ${c.raw.row.kind}: ${num(c.raw.row.value)}` : "")},
      },
    };
  };
}

function ladderFigures(result) {
  const rows = ladderRows(result), labels = [...new Set(rows.map(r => r.label))];
  if (!rows.length) return [];
  const marks = ladderMarks(), same = rows.filter(r => r.kind === "same prefix" && r.value > 0);
  const reading = [];
  if (same.length) {
    const top = same.reduce((a, b) => b.value > a.value ? b : a), low = same.reduce((a, b) => b.value < a.value ? b : a);
    reading.push(`Same-prefix means above 0 go from ${num(low.value)} (${low.label}) to ${num(top.value)} nats (${top.label}).`);
    const paper = ((PAGE.published || {}).signature || {}).float16;
    if (paper && paper.kl_nats) reading.push(`The paper's FP16 means begin ${num(Math.log10(paper.kl_nats[0] / top.value))} orders of magnitude above the largest of them.`);
  }
  const zero = rows.filter(r => r.kind === "same prefix" && r.value === 0);
  if (zero.length) reading.push(`Exactly 0 on the same prefix: ${zero.map(r => r.label).join(", ")}.`);
  reading.push("Bars: 95 % intervals by prompt; one that reaches the left edge includes 0.");
  return chunks(labels, 16).map((part, i, parts) => figure({
    id: `ladder-${i}`, title: `Mean KL of everything that was measured${parts.length > 1 ? ` (${i + 1} of ${parts.length})` : ""}`,
    height: 210 + part.length * (12 + 14 * Math.max(2, ...part.map(l => ladderLabel(l).length))), config: ladderConfig(rows.filter(r => part.includes(r.label)), part, marks), reading: i === 0 ? reading : [`${part.length} more of the same list.`],
    numbers: [table(["", "steps", "mean KL(on‖off), nats [95 %]"], rows.filter(r => part.includes(r.label)).map(r => [r.label, r.kind, interval(r.value, r.low, r.high)])),
      el("p", {}, visible(`Marks: ${marks.map(m => m.label).join("; ")}. ${(PAGE.published || {}).source || ""}`))]}));
}

// ---- flips ---------------------------------------------------------------------------------------------------------

function flipBars(prefix, width) {
  const out = [], factor = width / prefix.bars.width;
  prefix.bars.n.forEach((n, i) => {
    const j = Math.floor(i / factor);
    out[j] = (out[j] || 0) + n;
  });
  return out;
}

function flipFigures(result) {
  const all = result.records || [];
  if (!all.length) return [];
  const flipped = all.filter(c => c.prefix.n_flipped > 0), pairs = all.reduce((a, c) => a + c.prefix.n_pairs, 0);
  const never = all.filter(c => c.prefix.n_flipped === 0).map(c => c.condition);
  const none = never.length ? [`No pair flipped: ${never.join(", ")}.`] : [];
  if (!flipped.length) return [figure({id: "flips", title: "First flips and the common prefix", reading: [`None of ${plural(pairs, "pair")} chose another token: every prefix stayed common to its end.`]})];
  const width = Math.max(...flipped.map(c => c.prefix.bars.width)), bars = flipped.map(c => flipBars(c.prefix, width));
  const n = Math.max(...bars.map(b => b.length)), name = i => width === 1 ? String(i) : `${i * width}–${(i + 1) * width - 1}`;
  const labels = Array.from({length: n}, (_, i) => name(i));
  const histogram = figure({
    id: "flip-index", title: "Step of the first flip", height: 250 + 22 * flipped.length,
    config: t => ({
      type: "bar",
      data: {labels, datasets: flipped.map((c, i) => series(c.condition, labels.map((_, j) => bars[i][j] || 0), t, i, {borderWidth: 0, pointStyle: "rect"}))},
      options: {scales: {x: {stacked: true, title: {display: true, text: width === 1 ? "step" : `step, ${width} to a bar`}, ticks: {maxRotation: 0, maxTicksLimit: 8, callback: i => i * width}}, y: linearAxis("pairs", {stacked: true, ticks: {precision: 0}})}, plugins: {legend: legend()}},
    }),
    reading: [...flipped.map(c => `${c.condition}: ${count(c.prefix.n_flipped)} of ${plural(c.prefix.n_pairs, "pair")} flipped.`), ...none],
    numbers: table(["step", ...flipped.map(c => c.condition)], labels.map((l, j) => [l, ...bars.map(b => count(b[j] || 0))]))});
  return [histogram, survivalFigure(flipped, none)];
}

function survivalFigure(flipped, none) {
  const last = Math.max(...flipped.map(c => c.prefix.last_step));
  const curve = c => [{x: 0, y: 1}, ...c.prefix.survival.map(([x, y]) => ({x, y})), {x: c.prefix.last_step, y: c.prefix.survival[c.prefix.survival.length - 1][1]}];
  return figure({
    id: "survival", title: "Pairs whose prefix is still common", height: 280 + 22 * flipped.length,
    config: t => ({
      type: "line",
      data: {datasets: flipped.map((c, i) => series(c.condition, curve(c), t, i, {stepped: "before", pointRadius: 0, borderDash: DASHES[i % DASHES.length]}))},
      options: {scales: {x: linearAxis("step", {min: 0, max: last, ticks: {precision: 0}}), y: linearAxis("share of pairs", {min: 0, max: 1, ticks: {callback: v => `${Math.round(100 * v)} %`}})},
        plugins: {legend: legend(), tooltip: tooltip(x => `${x.dataset.label}, step ${x.parsed.x}: ${percent(x.parsed.y)}`)}},
    }),
    reading: ["Kaplan and Meier's estimate: a pair that ends without a flip counts until its end.",
      ...flipped.map(c => `${c.condition}: ${percent(c.prefix.survival[c.prefix.survival.length - 1][1])} at step ${c.prefix.last_step}.`), ...none],
    numbers: flipped.map(c => [el("h4", {}, visible(c.condition)), table(["step", "still common after it", "pairs at risk", "flips"], c.prefix.survival.map(([s, share, risk, n]) => [s, percent(share), count(risk), count(n)]))])});
}

// ---- margins -------------------------------------------------------------------------------------------------------

function marginConfig(part) {
  const centre = (i, m) => 10 ** ((i + 0.5) / m.cells_per_decade);
  const x = decades(part.flatMap(c => c.margins.cells.map(k => centre(k[0], c.margins)))), y = decades(part.flatMap(c => c.margins.cells.map(k => centre(k[1], c.margins))));
  const most = Math.max(...part.flatMap(c => c.margins.cells.map(k => k[2])));
  const radius = n => 2 + 4 * (most > 1 ? Math.log(n) / Math.log(most) : 0);
  return t => {
    const datasets = part.map((c, i) => series(c.condition, c.margins.cells.map(([a, b, n]) => ({x: centre(a, c.margins), y: centre(b, c.margins), n})), t, i,
      {pointRadius: k => radius((k.raw || {}).n || 1), backgroundColor: withAlpha(t.series[i], 0.45), borderWidth: 0.5}));
    const changed = part.flatMap(c => c.margins.cells.filter(k => k[3] > 0).map(([a, b, , n]) => ({x: centre(a, c.margins), y: centre(b, c.margins), n})));
    if (changed.length) datasets.push({label: "largest logit changed", data: changed, pointStyle: "crossRot", pointRadius: 7, borderWidth: 2.5, borderColor: t.alarm, backgroundColor: t.alarm});
    const left = Math.max(10 ** x.low, 2 * 10 ** y.low), right = Math.min(10 ** x.high, 2 * 10 ** y.high);
    if (left < right) datasets.push(segments("margin = 2·max|Δlogit|", [[left, left / 2, right, right / 2]], t.text, {borderDash: [6, 4]}));
    return {
      type: "scatter", data: {datasets},
      options: {scales: {x: logAxis("margin of ON (top-1 − top-2 logit)", x), y: logAxis("max |Δlogit|", y)},
        plugins: {legend: legend(), tooltip: tooltip(k => `${k.dataset.label}: ${count(k.raw.n)} steps around margin ${num(k.raw.x)}, max|Δlogit| ${num(k.raw.y)}`)}},
    };
  };
}

function marginFigures(result) {
  const all = (result.records || []).filter(c => c.margins.cells.length);
  return chunks(all, CONDITIONS_PER_CHART).map((part, i, parts) => figure({
    id: `margins-${i}`, title: `Margin against max |Δlogit|${parts.length > 1 ? ` (${i + 1} of ${parts.length})` : ""}`, height: 400 + 22 * part.length, config: marginConfig(part),
    reading: ["The largest logit can change only above the line, where the margin is at most twice the largest difference. Larger points hold more steps.",
      ...part.map(({condition, margins: m}) => `${condition}: ${count(m.n_can_change)} of ${plural(m.n_steps, "step")} are above it, ${count(m.n_changed)} changed; ${count(m.n_equal)} steps without any difference are not shown.`)],
    numbers: part.map(({condition, margins: m}) => [el("h4", {}, visible(condition)),
      table(["margin from", "max |Δlogit| from", "steps", "largest logit changed"], m.cells.map(([a, b, n, changed]) => [num(10 ** (a / m.cells_per_decade)), num(10 ** (b / m.cells_per_decade)), count(n), count(changed)])),
      el("p", {}, `Cells of 1/${m.cells_per_decade} of a decade. Not in them: ${count(m.n_equal)} steps whose logits do not differ, ${count(m.n_tied)} with a tied largest logit, ${count(m.n_nonfinite)} that are not finite.`)])}));
}

// ---- texts ---------------------------------------------------------------------------------------------------------

function markedText(text) {
  return el("p", {class: "text"}, text.is_cut_before ? "…" : "", visible(text.before), el("mark", {}, text.token ? visible(text.token) : "end"), visible(text.after), text.is_cut_after ? "…" : "");
}

function markedIds(list, from, flip) {
  return el("p", {class: "text"}, `${from > 0 ? "… " : ""}`, list.map((id, i) => [from + i === flip ? el("mark", {}, id) : String(id), " "]), list.length && from + list.length > flip + 8 ? "…" : "");
}

function arm(example, which) {
  const top = example.flip_top ? example.flip_top[which] : [];
  return el("div", {}, el("h4", {}, which === "on" ? "ON, with the cache" : "OFF, recomputed"),
    example.text ? markedText(example.text[which]) : markedIds(example[`ids_${which}`], example.ids_from, example.flip_index),
    top.length ? table(["token", "id", "logit"], top.map(k => [k.text === null ? "–" : quoted(k.text), k.id, isNumber(k.logit) ? k.logit.toFixed(4) : "–"])) : "");
}

const quoted = text => el("span", {}, "“", visible(text), "”");

function exampleBlock(e) {
  const s = e.step;
  return el("article", {class: "example"}, el("h4", {}, visible(`${e.pair_id}: flip at step ${e.flip_index}`)),
    s ? el("p", {class: "faint"}, `ON's margin ${num(s.margin_on)}, OFF's ${num(s.margin_off)}, max |Δlogit| ${num(s.max_abs_dlogit)}, KL ${num(s.kl_on_off_nats)} nats${s.tie ? "; the largest logit is tied" : ""}`) : "",
    el("div", {class: "arms"}, arm(e, "on"), arm(e, "off")),
    fold("token ids around the flip", ["on", "off"].map(a => [el("h4", {}, a.toUpperCase()), markedIds(e[`ids_${a}`], e.ids_from, e.flip_index)])));
}

function exampleSections(result) {
  return (result.records || []).filter(c => c.examples.length).map(c => el("section", {}, el("h3", {}, visible(c.condition)),
    el("p", {class: "faint"}, `The first ${c.examples.length} of ${plural(c.prefix.n_flipped, "pair")} that flipped, in the order of the records; the token at the flip is marked.`), c.examples.map(exampleBlock)));
}

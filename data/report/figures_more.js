// Figures of the other experiments, by the same rule: a result in, a list of figures out.

const nameOf = c => [c.dtype, c.backend].filter(v => typeof v === "string").join("/");

/// Lines over layers of rows with a number each; null where nothing is above 0.
function layerChart(rows, curves, yTitle) {
  const labels = rows.map(r => String(r.layer)), values = curves.flatMap(c => rows.map(c.value)), range = decades(values);
  if (!range) return null;
  return t => ({
    type: "line",
    data: {labels, datasets: curves.flatMap((c, i) => {
      const data = rows.map(r => c.value(r) > 0 ? c.value(r) : null), main = series(c.label, data, t, i);
      if (!c.low) return [main];
      const edge = f => rows.map(r => f(r) > 0 ? f(r) : c.value(r) > 0 ? 10 ** range.low : null);
      const band = {isPart: true, pointRadius: 0, pointHitRadius: 0, borderWidth: 0, backgroundColor: withAlpha(t.series[i], 0.16)};
      return [main, {...band, label: `${c.label} high`, data: edge(c.high), fill: "+1"}, {...band, label: `${c.label} low`, data: edge(c.low), fill: false}];
    })},
    options: {scales: {x: {type: "category", title: {display: true, text: "layer"}, ticks: {maxRotation: 0}}, y: logAxis(yTitle, range)},
      plugins: {legend: legend(curves.length < 2), tooltip: tooltip(k => k.dataset.isPart ? "" : `layer ${k.label}: ${num(k.parsed.y)}`)}},
  });
}

// ---- drift ---------------------------------------------------------------------------------------------------------

function driftFigures(result) {
  return conditionsOf(result, "drift").flatMap((c, i) => {
    const rows = c.by_layer || [];
    if (!rows.length) return [];
    const where = `${nameOf(c)}, step ${c.step}`, differ = rows.filter(r => r.l2.mean > 0);
    const all = () => table(["layer", "prompts that differ", "L2 [95 %]", "L2/norm", "cosine", "max |Δ|", "× layer before"],
      rows.map(r => [r.layer, percent(r.differing_rate), statInterval(r.l2), num(r.rel_l2.mean), isNumber(r.cosine.mean) ? r.cosine.mean.toPrecision(8) : "–", num(r.max_abs.max), num(r.amplification)]));
    if (!differ.length) return [figure({id: `drift-${i}`, title: `Drift of the residual stream, ${where}`, reading: [rows.every(r => r.l2.mean === 0) ? `The same in every layer for all of ${plural(c.n_prompts, "prompt")}: L2 of the difference is 0.` : "There are no values."], numbers: all()}), ...headFigures(c, i)];
    const top = differ.reduce((a, b) => b.rel_l2.mean > a.rel_l2.mean ? b : a);
    const reading = `First difference in layer ${differ[0].layer}; relative to its norm the state differs most in layer ${top.layer}, by ${num(top.rel_l2.mean)}. Layer 0: embeddings; norm: behind the final norm.`;
    const curve = (label, key) => ({label, value: r => (r[key] || {}).mean, low: r => (r[key] || {}).ci_low, high: r => (r[key] || {}).ci_high});
    const part = (id, title, curves, yTitle, text) => figure({id: `drift-${id}-${i}`, title: `${title}, ${where}`, height: 330, config: layerChart(rows, curves, yTitle), reading: [text], numbers: all()});
    return [
      part("l2", "Drift by layer, absolute", [curve("all dimensions", "l2"), curve("without the 3 largest", "l2_trimmed")], "L2 of ON − OFF", reading),
      part("rel", "Drift by layer, relative", [curve("all dimensions", "rel_l2"), curve("without the 3 largest", "rel_l2_trimmed")], "L2 / norm of OFF", "Band: 95 % interval over prompts."),
      part("cosine", "Drift by layer, direction", [{label: "1 − cosine", value: r => 1 - r.cosine.mean}], "1 − cosine", "0 is the same direction; differences below the rounding of FP64 are not drawn."),
      ...headFigures(c, i)];
  });
}

function headFigures(c, i) {
  const rows = c.by_head || [];
  if (!rows.length) return [];
  const at = new Map(rows.map(r => [`${r.layer} ${r.head}`, (r.kl_on_off_nats || {}).mean])), unique = key => [...new Set(rows.map(r => r[key]))].sort((a, b) => a - b);
  const title = `Attention weights, KL(on‖off) by layer and head, ${nameOf(c)}`;
  const map = heatMap({rows: unique("layer"), columns: unique("head"), value: (l, h) => at.get(`${l} ${h}`), xTitle: "head", yTitle: "layer", unit: "nats"});
  if (!map) return [figure({id: `heads-${i}`, title, reading: [rows.every(r => (r.kl_on_off_nats || {}).mean === 0) ? `Exactly 0 in all ${rows.length} heads.` : "There are no values."]})];
  const top = rows.reduce((a, b) => b.kl_on_off_nats.mean > a.kl_on_off_nats.mean ? b : a);
  return [figure({id: `heads-${i}`, title, ...map, reading: [`Largest in layer ${top.layer}, head ${top.head} (KV head ${top.kv_head}): ${statInterval(top.kl_on_off_nats)} nats. Attention of the newest token, mean over prompts.`]})];
}

// ---- trace ---------------------------------------------------------------------------------------------------------

function traceFigures(result) {
  return conditionsOf(result, "trace").flatMap((c, i) => {
    const rows = (c.kv_by_layer || []).filter(r => r.positions === "all"), unique = key => [...new Set(rows.map(r => r[key]))].sort((a, b) => a - b);
    if (!rows.length) return [];
    const kinds = [["k_on_off", "K, ON against OFF"], ["v_on_off", "V, ON against OFF"], ["k_on_fp64", "K of ON against FP64"], ["v_on_fp64", "V of ON against FP64"]];
    return kinds.flatMap(([key, what]) => {
      if (!rows.some(r => r[key] && isNumber(r[key].mean))) return [];
      const at = new Map(rows.map(r => [`${r.layer} ${r.step}`, (r[key] || {}).mean])), id = `trace-${key}-${i}`, title = `Error of ${what}, by layer and step, ${nameOf(c)}`;
      const map = heatMap({rows: unique("layer"), columns: unique("step"), value: (l, s) => at.get(`${l} ${s}`), xTitle: "step", yTitle: "layer", unit: ""});
      if (!map) return [figure({id, title, reading: [rows.every(r => (r[key] || {}).mean === 0) ? "Exactly 0 in every layer and step." : "There is no value above 0."]})];
      const top = rows.reduce((a, b) => ((b[key] || {}).mean || 0) > ((a[key] || {}).mean || 0) ? b : a);
      return [figure({id, title, ...map, reading: [`‖a − b‖/‖b‖ over all positions, mean over prompts: ${num(map.low)} to ${num(map.high)}, the largest in layer ${top.layer} at step ${top.step}.`]})];
    }).concat(traceSteps(c, i));
  });
}

function traceSteps(c, i) {
  const rows = c.by_step || [], curves = [["k_on_off", "K ON/OFF"], ["v_on_off", "V ON/OFF"], ["k_on_fp64", "K ON/FP64"], ["v_on_fp64", "V ON/FP64"]].filter(([k]) => rows.some(r => r[k] > 0));
  if (!curves.length) return [];
  const range = decades(curves.flatMap(([k]) => rows.map(r => r[k])));
  return [figure({
    id: `trace-steps-${i}`, title: `Error of K and V over the steps, ${nameOf(c)}`, height: 360,
    config: t => ({type: "line", data: {datasets: curves.map(([k, label], n) => series(label, rows.map(r => ({x: r.step, y: r[k] > 0 ? r[k] : NaN})), t, n, {pointRadius: 2}))},
      options: {scales: {x: linearAxis("step", {min: 0, ticks: {precision: 0}}), y: logAxis("‖a − b‖/‖b‖", range)}, plugins: {legend: legend(), tooltip: tooltip(k => `${k.dataset.label}, step ${k.parsed.x}: ${num(k.parsed.y)}`)}}}),
    reading: [`At the last step, ${rows[rows.length - 1].step}: ${curves.map(([k, label]) => `${label} ${num(rows[rows.length - 1][k])}`).join(", ")}.`],
    numbers: table(["step", ...curves.map(k => k[1])], rows.map(r => [r.step, ...curves.map(([k]) => num(r[k]))]))})];
}

// ---- patch ---------------------------------------------------------------------------------------------------------

const PATCHED = [["residual", "residual"], ["k", "K"], ["v", "V"], ["kv", "K and V"], ["residual_up_to", "residual, layers 1…l"]];

function patchFigures(result) {
  return conditionsOf(result, "patch").flatMap((c, i) => {
    const rows = c.by_layer || [], groups = [...new Set(rows.map(r => `${r.step} ${r.direction}`))];
    return groups.flatMap(key => {
      const own = rows.filter(r => `${r.step} ${r.direction}` === key), kinds = PATCHED.filter(([k]) => own.some(r => r[k] && isNumber(r[k].value)));
      if (!kinds.length) return [];
      return [patchFigure(c, i, own, kinds)];
    }).concat(groups.length && !rows.some(r => PATCHED.some(([k]) => r[k] && isNumber(r[k].value)))
      ? [figure({id: `patch-${i}`, title: `Recovery by layer, ${nameOf(c)}`, reading: ["There is nothing to recover: without a patch the KL is 0 at the patched steps."]})] : []);
  });
}

function patchFigure(c, i, rows, kinds) {
  const {step, direction} = rows[0], way = direction === "off_into_on" ? "OFF's values into ON" : "ON's values into OFF";
  const x = (r, n) => r.layer + (n - (kinds.length - 1) / 2) * 0.12, best = kinds.map(([k, label]) => {
    const known = rows.filter(r => r[k] && isNumber(r[k].value)), top = known.reduce((a, b) => b[k].value > a[k].value ? b : a);
    return `${label}: most in layer ${top.layer}, ${valueInterval(top[k])} %`;
  });
  return figure({
    id: `patch-${i}-${step}-${direction}`, title: `Recovery by layer, ${way} at step ${step}, ${nameOf(c)}`, height: 380,
    config: t => ({
      type: "scatter",
      data: {datasets: kinds.flatMap(([k, label], n) => {
        const known = rows.filter(r => r[k] && isNumber(r[k].value));
        return [series(label, known.map(r => ({x: x(r, n), y: r[k].value, row: r})), t, n, {pointRadius: 4, showLine: true, borderWidth: 1}),
          segments(`${label} 95 %`, known.filter(r => isNumber(r[k].low)).map(r => [x(r, n), r[k].low, x(r, n), r[k].high]), t.series[n], {isPart: true, borderWidth: 1.5})];
      })},
      options: {scales: {x: linearAxis("layer", {ticks: {precision: 0, stepSize: 1}}), y: linearAxis("share of the mean KL removed, %", {})}, plugins: {legend: legend(), tooltip: tooltip(k => k.raw.row ? `${k.dataset.label}, layer ${k.raw.row.layer}: ${num(k.parsed.y)} %` : "")}},
    }),
    reading: [`${best.join("; ")}. 100 %: nothing is left; bars: 95 % intervals over prompts.`],
    numbers: table(["layer", ...kinds.map(k => k[1])], rows.map(r => [r.layer, ...kinds.map(([k]) => valueInterval(r[k]))]))});
}

// ---- noise ---------------------------------------------------------------------------------------------------------

function noiseFigures(result) {
  return conditionsOf(result, "noise").flatMap((c, i) => {
    const all = (c.curve || []).filter(r => r.relative_size_stored > 0), kinds = [...new Set(all.map(r => r.kind))];
    return kinds.flatMap(kind => [["flip_rate", "steps", "step"], ["text_flip_rate", "texts", "text"]].map(([key, what, per]) => {
      const rows = all.filter(r => r.kind === kind && r[key] && isNumber(r[key].value)), parts = [...new Set(rows.map(r => r.what))];
      if (!rows.length) return null;
      const range = decades(rows.map(r => r.relative_size_stored)), name = w => ({k: "K", v: "V", kv: "K and V"})[w] || w;
      const limits = (c.thresholds || []).filter(r => r.kind === kind && r.per === per && r.size && isNumber(r.size.value));
      return figure({
        id: `noise-${kind}-${per}-${i}`, title: `${what[0].toUpperCase() + what.slice(1)} that flip, against ${kind} noise, ${nameOf(c)}`, height: 360,
        config: t => ({type: "scatter", data: {datasets: parts.flatMap((w, n) => {
          const own = rows.filter(r => r.what === w).sort((a, b) => a.relative_size_stored - b.relative_size_stored);
          return [series(name(w), own.map(r => ({x: r.relative_size_stored, y: r[key].value})), t, n, {showLine: true, pointRadius: 4}),
            segments(`${w} 95 %`, own.filter(r => isNumber(r[key].low)).map(r => [r.relative_size_stored, r[key].low, r.relative_size_stored, r[key].high]), t.series[n], {isPart: true, borderWidth: 1})];
        })}, options: {scales: {x: logAxis("noise, ‖Δ‖/‖x‖ as stored", range), y: linearAxis(`share of ${what}`, {min: 0, ticks: {callback: v => `${Number((100 * v).toPrecision(3))} %`}})},
          plugins: {legend: legend(), tooltip: tooltip(k => k.dataset.isPart ? "" : `${k.dataset.label}, size ${num(k.parsed.x)}: ${percent(k.parsed.y)}`)}}}),
        reading: [limits.length ? `Threshold: ${limits.map(r => `${percent(r.level)} of ${what} with noise on ${name(r.what)} of ${valueInterval(r.size)}`).join("; ")}.` : "No threshold was reached.", "Bars: 95 % intervals over prompts."],
        numbers: table(["noise on", "size", "as stored", `${what} that flip [95 %]`], rows.map(r => [name(r.what), num(r.size), num(r.relative_size_stored), valueInterval(r[key])]))});
    })).filter(f => f);
  });
}

// ---- mitigate ------------------------------------------------------------------------------------------------------

function paretoFigures(result) {
  return conditionsOf(result, "mitigate").flatMap((c, i) => {
    const rows = (c.remedies || []).filter(r => r.kl_on_off_nats && isNumber(r.kl_on_off_nats.mean) && isNumber(r.on_tokens_per_s));
    if (!rows.length) return [];
    const range = decades(rows.map(r => r.kl_on_off_nats.mean)) || {low: -1, high: 0}, edge = 10 ** (range.low - 1);
    const point = r => ({x: r.on_tokens_per_s, y: r.kl_on_off_nats.mean > 0 ? r.kl_on_off_nats.mean : edge, row: r});
    const front = rows.filter(r => r.on_pareto_front), rest = rows.filter(r => !r.on_pareto_front);
    return [figure({
      id: `pareto-${i}`, title: `What remedies buy and cost, ${nameOf(c)}`, height: 360 + 20 * front.length,
      config: t => ({type: "scatter",
        data: {datasets: [...front.map((r, n) => series(r.remedy, [point(r)], t, n, {pointRadius: 7})), ...(rest.length ? [{label: "others", data: rest.map(point), pointRadius: 4, clip: 8, pointStyle: "circle", borderColor: t.text, backgroundColor: t.grid}] : [])]},
        options: {scales: {x: linearAxis("tokens/s of ON", {min: 0}), y: logAxis("mean KL(on‖off), nats", {low: range.low - 1, high: range.high}, edge)}, layout: {padding: {right: 10}},
          plugins: {legend: legend(), tooltip: tooltip(k => `${plainText(k.raw.row.remedy)}: KL ${num(k.raw.row.kl_on_off_nats.mean)}, ${num(k.parsed.x)} tokens/s`)}}}),
      reading: [`On the Pareto front of KL, speed and bytes: ${front.map(r => r.remedy).join(", ") || "none"}.`],
      numbers: table(["remedy", "mean KL, nats [95 %]", "flips", "ON tokens/s", "weights, bytes", "cache, bytes", "on the front"], rows.map(r => [r.remedy, statInterval(r.kl_on_off_nats), count(r.flips), num(r.on_tokens_per_s), count(r.weights_bytes), count(r.cache_bytes), r.on_pareto_front ? "yes" : "no"]))})];
  });
}

// ---- falsify, boundary ---------------------------------------------------------------------------------------------

const DOT = [["operands_and_stored_pct", "rounded operands and result"], ["sequential_float16_pct", "FP16 accumulator, sequential"], ["pairwise_float16_pct", "FP16, pairwise"], ["split_k_float16_pct", "FP16, split-K"], ["sequential_float32_pct", "FP32 accumulator"]];

function falsifyFigures(result) {
  return conditionsOf(result, "falsify").flatMap((c, i) => {
    const out = [];
    const lines = (id, title, rows, x, curves, xTitle, yTitle, reading) => {
      const kinds = curves.filter(([k]) => rows.some(r => r[k] > 0)), across = decades(rows.map(r => r[x])), up = decades(kinds.flatMap(([k]) => rows.map(r => r[k])));
      if (!kinds.length || !across) return;
      out.push(figure({id: `${id}-${i}`, title, height: 420, reading: [reading], numbers: table([xTitle, ...kinds.map(k => k[1])], rows.map(r => [r[x], ...kinds.map(([k]) => num(r[k]))])),
        config: t => ({type: "scatter", data: {datasets: kinds.map(([k, label], n) => series(label, rows.map(r => ({x: r[x], y: r[k] > 0 ? r[k] : NaN})), t, n, {showLine: true}))},
          options: {scales: {x: logAxis(xTitle, across), y: logAxis(yTitle, up)}, plugins: {legend: legend(), tooltip: tooltip(k => `${k.dataset.label}, ${k.parsed.x}: ${num(k.parsed.y)} %`)}}})}));
    };
    const dot = c.dot || [], steps = c.propagation || [], last = dot[dot.length - 1];
    if (last) lines("dot", "Error of a dot product against its length", dot, "length", DOT, "length", "error, %", `At length ${last.length}: rounding of operands and result ${num(last.operands_and_stored_pct)} %, sequential FP16 accumulation ${num(last.sequential_float16_pct)} %.`);
    if (steps.length) lines("propagation", "Error of attention and residual steps in a row", steps, "n_steps", [["rel_err_pct", "FP32 accumulators"], ["float16_accumulate_rel_err_pct", "FP16 accumulators"]], "steps", "error of the state, %", `From ${num(steps[0].rel_err_pct)} % after ${steps[0].n_steps} to ${num(steps[steps.length - 1].rel_err_pct)} % after ${steps[steps.length - 1].n_steps} steps with FP32 accumulators.`);
    return out;
  });
}

function boundaryFigures(result) {
  return conditionsOf(result, "boundary").flatMap((c, i) => {
    const rows = (c.calibration || []).filter(r => r.margin_from > 0 && r.flip_rate && isNumber(r.flip_rate.value)), above = rows.filter(r => r.flip_rate.value > 0 || r.expected_rate > 1e-6);
    if (!rows.length) return [];
    const numbers = table(["margin from", "to", "steps", "flips", "flip rate [95 %]", "expected"], rows.map(r => [num(r.margin_from), num(r.margin_to), count(r.n_steps), count(r.flips), valueInterval(r.flip_rate), num(r.expected_rate)]));
    const reading = [`${conditionLabel(c)}: ${count(rows.reduce((a, r) => a + r.flips, 0))} flips in ${plural(rows.reduce((a, r) => a + r.n_steps, 0), "step")} over these margins. Expected: from the spread of the margin's change, σ.`];
    if (!above.length) return [figure({id: `boundary-${i}`, title: `Flip probability against margin, ${conditionLabel(c)}`, reading, numbers})];
    const range = decades(above.map(r => r.margin_from));
    return [figure({
      id: `boundary-${i}`, title: `Flip probability against margin, ${conditionLabel(c)}`, height: 340, reading, numbers,
      config: t => ({type: "scatter", data: {datasets: [
        series("observed", above.map(r => ({x: r.margin_from, y: r.flip_rate.value})), t, 0, {pointRadius: 4}),
        segments("95 %", above.filter(r => isNumber(r.flip_rate.low)).map(r => [r.margin_from, r.flip_rate.low, r.margin_from, r.flip_rate.high]), t.series[0], {isPart: true}),
        series("expected", above.map(r => ({x: r.margin_from, y: r.expected_rate})), t, 1, {showLine: true, pointRadius: 0})]},
      options: {scales: {x: logAxis("ON's margin, from", range), y: linearAxis("share of steps", {min: 0, ticks: {callback: v => `${Number((100 * v).toPrecision(2))} %`}})}, plugins: {legend: legend(), tooltip: tooltip(k => k.dataset.isPart ? "" : `${k.dataset.label}, margin ${num(k.parsed.x)}: ${percent(k.parsed.y)}`)}}})})];
  });
}

// ---- selftest, paper -----------------------------------------------------------------------------------------------

function matrixSections(result) {
  const matrix = result.report.matrix || [];
  if (!matrix.length) return [];
  const planted = [...new Set(matrix.map(r => r.planted))], column = r => [r.model, r.dtype, r.backend].filter(v => v).join(" "), columns = [...new Set(matrix.map(column))];
  const cell = (p, c) => {
    const own = matrix.filter(r => r.planted === p && column(r) === c);
    if (!own.length) return el("span", {class: "faint"}, "·");
    const wrong = own.filter(r => !r.ok);
    return wrong.length ? el("span", {class: "bad"}, "✗ ", visible(wrong.map(r => r.named === null ? "nothing" : r.named).join(", "))) : el("span", {class: "good"}, "✓");
  };
  const right = matrix.filter(r => r.ok).length;
  return [el("figure", {id: "matrix"}, el("h3", {}, "What was planted, and whether it was named"),
    table(["planted", ...columns], planted.map(p => [p, ...columns.map(c => cell(p, c))])),
    el("figcaption", {}, `${right} of ${matrix.length} were named for what they are. ✓ right, ✗ what it was taken for, · not planted there.`))];
}

function paperSections(result) {
  const {questions, published} = result.report, out = [];
  if (Array.isArray(questions)) out.push(el("section", {}, el("h3", {}, "The paper's five questions"),
    table(["question", "number", "unit", "verdict", "in a sentence"], questions.map(q => [q.question, interval(q.number, q.low, q.high), q.unit, q.verdict, q.sentence]), {class: "texts"})));
  if (Array.isArray(published)) out.push(el("section", {}, el("h3", {}, "Published and measured"),
    table(["quantity", "published", "measured", "why they differ"], published.map(r => [r.quantity, r.published, r.measured, r.why]), {class: "texts"})));
  return out;
}

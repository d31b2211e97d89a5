// What all charts share: colours for light, dark and paper, axes, and the figure around a canvas. Chart.js draws.

const HAS_CHARTS = typeof Chart === "function";
const LIGHT = {
  text: "#1b1f24", grid: "#d0d7de", background: "#ffffff", alarm: "#b3261e", low: [219, 233, 246], high: [8, 48, 107],
  series: ["#0060a8", "#c44e00", "#00795a", "#a33a83", "#7a5c00", "#5548b0", "#2d6f86", "#7a3b2e"],
};
const DARK = {
  text: "#e6e9ed", grid: "#3a414a", background: "#14171b", alarm: "#ff8f86", low: [30, 44, 61], high: [154, 208, 255],
  series: ["#6cb6ff", "#ff9f5a", "#4cc9a0", "#e68fd0", "#e3c04b", "#a99cff", "#7fd0e6", "#e09a8a"],
};
const POINTS = ["circle", "triangle", "rect", "rectRot", "star", "crossRot", "cross", "line"];
const DASHES = [[], [7, 3], [2, 2], [8, 3, 2, 3]];

let onPaper = false;
const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
const theme = () => darkScheme.matches && !onPaper ? DARK : LIGHT;
const drawn = [];  // {canvas, config: theme → Chart.js's configuration}

function draw(entry) {
  const existing = Chart.getChart(entry.canvas);
  if (existing) existing.destroy();
  Chart.defaults.color = theme().text;
  Chart.defaults.borderColor = theme().grid;
  try {
    new Chart(entry.canvas, entry.config(theme()));
  } catch (error) {  // of a report that is not as expected; the other charts are drawn
    console.error(error);
    entry.canvas.replaceWith(el("p", {class: "bad"}, visible(`This cannot be drawn: ${error.message}.`)));
    drawn.splice(drawn.indexOf(entry), 1);
  }
}

function drawAll() {
  if (!HAS_CHARTS) return;
  Object.assign(Chart.defaults, {animation: false, responsive: true, maintainAspectRatio: false});
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Chart.defaults.plugins.legend.labels.usePointStyle = true;
  Object.assign(Chart.defaults.plugins.legend.labels, {boxWidth: 8, boxHeight: 6, padding: 10});
  Chart.defaults.plugins.legend.align = "start";
  Chart.defaults.plugins.tooltip.usePointStyle = true;
  [...drawn].forEach(draw);
  darkScheme.addEventListener("change", () => [...drawn].forEach(draw));
  for (const [event, paper] of [["beforeprint", true], ["afterprint", false]])
    window.addEventListener(event, () => {
      onPaper = paper;
      [...drawn].forEach(draw);
    });
}

/// A figure: {id, title, reading (texts), numbers (elements behind the fold), config and height (none: no canvas), extra
/// (elements under the canvas)}.
function figure(f) {
  const parts = [el("h3", {}, visible(f.title))];
  if (f.config && HAS_CHARTS) {
    const canvas = el("canvas", {role: "img", "aria-label": plainText(f.title + ". " + f.reading.join(" ")), "data-figure": f.id});
    parts.push(el("div", {class: "canvas", style: `height: ${f.height || 320}px`}, canvas));
    drawn.push({canvas, config: f.config});
    parts.push(...(f.extra || []));
  }
  parts.push(el("figcaption", {}, f.reading.map(text => el("div", {}, visible(text)))));
  if (f.numbers) parts.push(fold("the numbers", f.numbers));
  return el("figure", {id: f.id}, parts);
}

// ---- axes ----------------------------------------------------------------------------------------------------------

const SUPERSCRIPT = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
const powerOfTen = p => "10" + Array.from(String(p), c => SUPERSCRIPT[c]).join("");

/// Whole decades around the positive ones of the values.
function decades(values) {
  const positive = values.filter(v => isNumber(v) && v > 0);
  if (!positive.length) return null;
  let low = Infinity, high = -Infinity;
  for (const v of positive) {
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  const top = Math.ceil(Math.log10(high) + 1e-9);
  const bottom = Math.floor(Math.log10(low) - 1e-9);
  return {low: bottom, high: Math.max(top, bottom + 1)};
}

/// A logarithmic axis over whole decades: a tick at every n-th of them, at most seven. `zero`: the value at which 0 stands.
function logAxis(title, range, zero) {
  const stride = Math.ceil((range.high - range.low) / 6);
  return {
    type: "logarithmic", min: 10 ** range.low, max: 10 ** range.high, title: {display: true, text: title},
    afterBuildTicks: axis => {
      axis.ticks = [];
      for (let p = range.low; p <= range.high; p += stride) axis.ticks.push({value: 10 ** p});
    },
    ticks: {callback: v => v === zero ? "0" : powerOfTen(Math.round(Math.log10(v))), autoSkip: false, maxRotation: 0},
  };
}

function linearAxis(title, more) {
  return {type: "linear", title: {display: true, text: title}, ...more, ticks: {maxTicksLimit: 7, maxRotation: 0, ...(more || {}).ticks}};
}

/// Rows with names, the first at the top.
function rowAxis(labels) {
  return {
    type: "linear", min: -0.6, max: labels.length - 0.4, reverse: true, grid: {display: false},
    afterBuildTicks: axis => { axis.ticks = labels.map((_, i) => ({value: i})); },
    ticks: {callback: v => labels[v], autoSkip: false, font: {size: 11}, crossAlign: "far"},
  };
}

/// One dataset of line segments [x0, y0, x1, y1]: intervals, marks.
function segments(label, list, colour, more) {
  const data = list.flatMap(([x0, y0, x1, y1]) => [{x: x0, y: y0}, {x: x1, y: y1}, {x: NaN, y: NaN}]);
  return {type: "scatter", label, data, showLine: true, spanGaps: false, pointRadius: 0, pointHitRadius: 0, clip: 2, borderColor: colour,
    backgroundColor: colour, borderWidth: 2, pointStyle: "line", ...more};
}

function series(label, data, t, i, more) {
  const colour = t.series[i % t.series.length];
  return {label: shortName(label), data, borderColor: colour, backgroundColor: colour, pointStyle: POINTS[i % POINTS.length],
    borderDash: DASHES[Math.floor(i / t.series.length) % DASHES.length], borderWidth: 2, pointRadius: 3, clip: 8, ...more};
}

/// Only the series that are named stand in the legend: bands and intervals belong to a series.
function legend(hidden) {
  return {labels: {filter: (item, data) => !data.datasets[item.datasetIndex].isPart}, display: !hidden};
}

function tooltip(text) {
  return {callbacks: {title: () => "", label: context => text(context) || ""}};
}

function colourBetween(t, share) {
  const mixed = t.low.map((c, i) => Math.round(c + (t.high[i] - c) * share));
  return `rgb(${mixed.join(",")})`;
}

function withAlpha(hex, alpha) {
  return hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

// ---- heat maps -----------------------------------------------------------------------------------------------------

/// Cells as bars that fill their place. rows: numbers of a row (a layer), columns: names, value(row, column) → number or null.
/// The colour is the logarithm of the value; 0 has the colour of the page.
function heatMap({rows, columns, value, xTitle, yTitle, unit}) {
  const cells = rows.map(r => columns.map(c => value(r, c)));
  const positive = cells.flat().filter(v => isNumber(v) && v > 0);
  if (!positive.length) return null;
  const low = Math.min(...positive), high = Math.max(...positive);
  const share = v => high > low ? Math.log(v / low) / Math.log(high / low) : 1;
  const config = t => ({
    type: "bar",
    data: {labels: columns.map(String), datasets: rows.map((r, i) => ({
      label: `${yTitle} ${r}`, data: columns.map((_, j) => isNumber(cells[i][j]) ? [i - 0.5, i + 0.5] : null), values: cells[i],
      backgroundColor: cells[i].map(v => v > 0 ? colourBetween(t, share(v)) : t.background),
      borderColor: t.grid, borderWidth: 1, borderSkipped: false, barPercentage: 1, categoryPercentage: 1, grouped: false}))},
    options: {
      scales: {
        x: {type: "category", title: {display: true, text: xTitle}, grid: {display: false}, ticks: {maxRotation: 0}},
        y: {type: "linear", min: -0.5, max: rows.length - 0.5, grid: {display: false}, title: {display: true, text: yTitle},
          afterBuildTicks: axis => {
            const stride = Math.ceil(rows.length / 12);
            axis.ticks = rows.map((_, i) => ({value: i})).filter(tick => tick.value % stride === 0);
          },
          ticks: {callback: v => rows[v], autoSkip: false}},
      },
      plugins: {legend: {display: false}, tooltip: tooltip(c => `${xTitle} ${columns[c.dataIndex]}, ${c.dataset.label}: ${num(c.dataset.values[c.dataIndex])}`)},
    },
  });
  const ramp = el("div", {class: "ramp"}, el("span", {}, num(low)), el("i", {}), el("span", {}, `${num(high)}${unit ? " " + unit : ""}, logarithmic`),
    cells.flat().some(v => v === 0) ? [el("i", {class: "zero"}), el("span", {}, "0")] : []);
  const numbers = table([`${yTitle} \\ ${xTitle}`, ...columns], rows.map((r, i) => [r, ...cells[i].map(num)]));
  return {config, extra: [ramp], numbers, low, high, height: 130 + Math.min(24 * rows.length, 480)};
}

"use strict";
// Elements and numbers. Data gets into the page as text nodes only.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined && child !== "")
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}

/// Characters that show nothing, or turn the text around them, are written out as what they are.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;

function visible(text) {
  const nodes = [];
  let plain = "";
  for (const c of String(text)) {
    if (!HIDDEN.test(c)) {
      plain += c;
      continue;
    }
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    nodes.push(el("span", {class: "control"}, "U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")));
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

/// The same for places that hold no elements: labels of charts.
function plainText(text) {
  return Array.from(String(text), c => HIDDEN.test(c) ? "\ufffd" : c).join("");
}

const isNumber = v => typeof v === "number" && Number.isFinite(v);

/// Three digits, as the text report writes them: "0.0123", "1.2e-6".
function num(v) {
  if (!isNumber(v)) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 0.01 && size < 10000) return String(Number(v.toPrecision(3)));
  return v.toExponential(1).replace("e+", "e");
}
const count = v => isNumber(v) ? v.toLocaleString("en-US") : "–";
const percent = v => isNumber(v) ? (v === 0 || v === 1 ? 100 * v : Number((100 * v).toPrecision(3))) + " %" : "–";

function interval(value, low, high) {
  return isNumber(low) && isNumber(high) && isNumber(value) ? `${num(value)} [${num(low)}, ${num(high)}]` : num(value);
}
const statInterval = s => s ? interval(s.mean, s.ci_low, s.ci_high) : "–";
const valueInterval = v => v ? interval(v.value, v.low, v.high) : "–";

function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/// "float16/torch/greedy", as the program names it.
function conditionLabel(c) {
  if (typeof c.condition === "string") return c.condition;
  return ["part", "dtype", "backend", "strategy"].map(k => c[k]).filter(v => typeof v === "string").join("/");
}

/// A long text without its middle.
function cutMiddle(text, most) {
  const head = Math.ceil((most - 1) / 2);
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(head + 1 - most)}`;
}

const shortened = new Map(), taken = new Set();

/// At most 30 characters of a name, the same whenever it is asked for and of no other name.
function shortName(name) {
  if (shortened.has(name)) return shortened.get(name);
  const cut = cutMiddle(plainText(name), 30);
  let own = cut;
  for (let i = 2; taken.has(own); ++i) own = `${cut} (${i})`;
  taken.add(own);
  shortened.set(name, own);
  return own;
}

/// A text in lines of at most `width` characters, broken where names are put together; the end of a long one is cut.
function lines(text, width, most) {
  const out = [""];
  for (let piece of plainText(text).split(/(?<=[\/ ,+:=@-])/)) {
    while (piece.length > width) {
      out.push(piece.slice(0, width));
      piece = piece.slice(width);
    }
    if (out[out.length - 1].length + piece.length > width) out.push("");
    out[out.length - 1] += piece;
  }
  const shown = out.map(t => t.trim()).filter(t => t);
  return shown.length <= most ? shown : [...shown.slice(0, most - 1), shown[most - 1].slice(0, width - 1) + "…"];
}

/// A table of texts; a cell may be an element. `left`: columns of words.
function table(header, rows, attributes) {
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "table"},
    el("table", attributes || {},
      el("thead", {}, el("tr", {}, header.map(h => el("th", {scope: "col"}, h instanceof Node ? h : visible(h))))),
      el("tbody", {}, rows.map(row => el("tr", {}, row.map(tableCell))))));
}

function tableCell(cell) {
  if (cell instanceof Node) return el("td", {}, cell);
  const text = cell === null || cell === undefined || cell === "" ? "–" : String(cell);
  return el("td", text.length > 32 ? {class: "wraps"} : {}, visible(text));
}

function fold(summary, ...content) {
  return el("details", {}, el("summary", {}, summary), ...content);
}

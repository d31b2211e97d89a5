(() => {
  const out = [], width = window.innerWidth;
  const page = "#" + getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(v => Number(v).toString(16).padStart(2, "0")).join("");
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
    for (const t of texts) if (contrast(t.colour) < 4.5) { out.push(`${name}: '${t.text}' is ${t.colour} on ${page}`); break; }
    for (const t of texts) if (t.x0 < -1 || t.y0 < -1 || t.x1 > w + 1 || t.y1 > h + 1) out.push(`${name}: '${t.text}' runs out of the chart`);
    pairs(texts.filter(t => t.text.trim()), name);
    if (drawnPixels(canvas) < 12) out.push(`${name}: nothing is drawn`);
  }
  return out;
  function contrast(colour) {  // WCAG 2.1
    const light = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const [a, b] = [light(colour), light(page)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }
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
})()

(() => {
  const proto = CanvasRenderingContext2D.prototype, fill = proto.fillText, clear = proto.clearRect;
  proto.clearRect = function (x, y, w, h) { if (x <= 0 && y <= 0) this.canvas.texts = []; return clear.call(this, x, y, w, h); };
  proto.fillText = function (text, x, y, width) {
    const m = this.measureText(text), t = this.getTransform(), ratio = window.devicePixelRatio;
    const xs = [x - m.actualBoundingBoxLeft, x + m.actualBoundingBoxRight], ys = [y - m.actualBoundingBoxAscent, y + m.actualBoundingBoxDescent];
    const corners = xs.flatMap(a => ys.map(b => new DOMPoint(a, b).matrixTransform(t)));
    const cx = corners.map(p => p.x / ratio), cy = corners.map(p => p.y / ratio);
    (this.canvas.texts = this.canvas.texts || []).push({text: String(text), colour: this.fillStyle, x0: Math.min(...cx), x1: Math.max(...cx), y0: Math.min(...cy), y1: Math.max(...cy)});
    return fill.call(this, text, x, y, width);
  };
})();

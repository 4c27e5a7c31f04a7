// Draws one chart on a canvas: grid, axes, marks of events, lines and symbols. It knows nothing of runs.

const SYMBOLS = {
  circle: (path, r) => path.arc(0, 0, r, 0, 2 * Math.PI),
  square: (path, r) => path.rect(-0.86 * r, -0.86 * r, 1.72 * r, 1.72 * r),
  diamond: (path, r) => polygon(path, [[0, -1.25 * r], [1.25 * r, 0], [0, 1.25 * r], [-1.25 * r, 0]]),
  "triangle-up": (path, r) => polygon(path, [[0, -1.15 * r], [1.1 * r, 0.8 * r], [-1.1 * r, 0.8 * r]]),
  x: (path, r) => polygon(path, [
    [-r, -0.45 * r], [-0.45 * r, -r], [0, -0.5 * r], [0.45 * r, -r], [r, -0.45 * r], [0.5 * r, 0],
    [r, 0.45 * r], [0.45 * r, r], [0, 0.5 * r], [-0.45 * r, r], [-r, 0.45 * r], [-0.5 * r, 0],
  ]),
};

// `picture` has, in CSS pixels, `width`, `height`, the `box` that the axes span and the `unit` that one pixel at
// the usual text size takes; in data, the ranges `x` and `y`, `xTicks`, `yTicks`, `marks`, `bars`, `lines`, `symbols`;
// and the `theme`'s colours and font.
export function paint(canvas, picture) {
  const { width, height } = picture;
  const ratio = globalThis.devicePixelRatio || 1;
  const size = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const scale = { ...scales(picture), sharp: (at) => (Math.floor(at * ratio) + 0.5) / ratio, hair: 1 / Math.max(1, Math.floor(ratio)) };
  drawAxes(context, picture, scale);
  context.save();
  clip(context, picture);
  for (const mark of picture.marks ?? []) drawMark(context, mark, picture, scale);
  for (const bar of picture.bars ?? []) drawBar(context, bar, picture, scale);
  for (const line of picture.lines ?? []) drawLine(context, line, picture, scale);
  context.restore();
  for (const symbol of picture.symbols ?? []) drawSymbol(context, symbol, picture, scale);
}

export function scales({ box, x, y }) {
  return {
    x: (time) => box.left + ((time - x[0]) / (x[1] - x[0])) * (box.right - box.left),
    y: (value) => box.bottom - ((value - y[0]) / (y[1] - y[0])) * (box.bottom - box.top),
  };
}

// Half a line's width beyond the box, so that a line along its edge is whole.
function clip(context, { box, unit }) {
  context.beginPath();
  context.rect(box.left - unit, box.top - unit, box.right - box.left + 2 * unit, box.bottom - box.top + 2 * unit);
  context.clip();
}

function drawAxes(context, { box, width, unit, xTicks, yTicks, timed, theme }, scale) {
  context.font = `${11 * unit}px ${theme.font}`;
  context.lineWidth = scale.hair;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillStyle = theme.muted;
  context.strokeStyle = theme.grid;
  for (const { at, text } of yTicks) {
    stroke(context, [box.left, scale.sharp(scale.y(at))], [box.right, scale.sharp(scale.y(at))]);
    context.fillText(text, box.left - 7 * unit, scale.y(at));
  }
  context.strokeStyle = theme.line;
  const base = scale.sharp(box.bottom);
  stroke(context, [box.left, base], [box.right, base]);
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const { at, text } of xTicks) {
    const x = scale.sharp(scale.x(at));
    stroke(context, [x, base], [x, base + 4 * unit]);
    if (!timed) continue;
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x, half), width - half), base + 6 * unit);
  }
}

function stroke(context, from, to) {
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
}

// One faint vertical line per time, over the full height.
function drawMark(context, { times, colour }, { box }, scale) {
  context.globalAlpha = 0.38;
  context.strokeStyle = colour;
  context.lineWidth = 1;
  for (const time of times) stroke(context, [scale.sharp(scale.x(time)), box.top], [scale.sharp(scale.x(time)), box.bottom]);
  context.globalAlpha = 1;
}

// A bar is a row of the value axis high, less a gap, and never so short that it can't be seen.
function drawBar(context, { y, from, to, colour, faint }, { unit }, scale) {
  const height = Math.abs(scale.y(0) - scale.y(1));
  const gap = Math.min(4 * unit, height * 0.3);
  context.globalAlpha = faint ? 0.18 : 1;
  context.fillStyle = colour;
  const left = scale.x(from);
  context.fillRect(left, scale.y(y + 0.5) + gap / 2, Math.max(unit, scale.x(to) - left), height - gap);
  context.globalAlpha = 1;
}

function drawLine(context, line, { unit }, scale) {
  context.globalAlpha = line.faint ? 0.18 : 1;
  for (const points of stretches(line)) {
    if (line.fill && points.length > 1) fillDown(context, points, line, scale);
    context.beginPath();
    if (points.length === 1) {
      context.fillStyle = line.colour;
      context.arc(scale.x(points[0][0]), scale.y(points[0][1]), 2 * unit, 0, 2 * Math.PI);
      context.fill();
      continue;
    }
    follow(context, points, line.step, scale, true);
    context.strokeStyle = line.colour;
    context.lineWidth = (line.dash ? 1.25 : 1.75) * unit;
    context.lineJoin = "round";
    context.setLineDash((line.dash ?? []).map((length) => length * unit));
    context.stroke();
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
}

// The runs of points between gaps: a gap is where the value is null, and it is never bridged.
export function stretches({ x, y }) {
  const found = [];
  let run = null;
  for (let index = 0; index < x.length; index += 1) {
    if (!Number.isFinite(y[index])) run = null;
    else if (run) run.push([x[index], y[index]]);
    else found.push((run = [[x[index], y[index]]]));
  }
  return found;
}

function follow(context, points, step, scale, begin) {
  let last = 0;
  points.forEach(([time, value], index) => {
    const [x, y] = [scale.x(time), scale.y(value)];
    if (index === 0 && begin) context.moveTo(x, y);
    else {
      if (step && index > 0) context.lineTo(x, last);
      context.lineTo(x, y);
    }
    last = y;
  });
}

function fillDown(context, points, line, scale) {
  const zero = scale.y(0);
  context.beginPath();
  context.moveTo(scale.x(points[0][0]), zero);
  follow(context, points, line.step, scale, false);
  context.lineTo(scale.x(points.at(-1)[0]), zero);
  context.fillStyle = `${line.colour}1c`; // theme colours are six hexadecimal digits; two more are the alpha
  context.fill();
}

function drawSymbol(context, { x, y, shape, colour }, { unit, theme }, scale) {
  context.save();
  context.translate(scale.x(x), scale.y(y));
  context.beginPath();
  SYMBOLS[shape](context, 4 * unit);
  context.fillStyle = colour;
  context.strokeStyle = theme.surface;
  context.lineWidth = unit;
  context.fill();
  context.stroke();
  context.restore();
}

function polygon(path, corners) {
  corners.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
  path.closePath();
}

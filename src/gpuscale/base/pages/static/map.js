// The GPUs of a cluster as a map on one canvas: a cell for each, divided where instances or pods share it.
import { element, setAttribute, setText } from "./dom.js";
import { isNumber, memory, number, shortName, withUnit } from "./format.js";

const SIZES = [40, 32, 26, 20, 16, 13, 11, 9, 8, 7, 6, 5, 4]; // of a cell, in pixels at the usual text size
const MOST_HEIGHT = 340; // the largest size that stays within it is taken
const LABELLED = 48; // nodes that have room for their names
const LABELLED_SIZE = 16;
const LABEL = 15;
const SHADES = 20;
const COLOURS = [["util", "Use"], ["memory", "Memory"]];

export class GpuMap {
  constructor(root) {
    this.cells = [];
    this.nodes = [];
    this.picked = -1;
    this.by = "util";
    this.drawMs = 0; // what the last update took
    this.choice = element("span", { class: "segments", role: "group", "aria-label": "What the colours say" });
    for (const [key, name] of COLOURS) {
      this.choice.append(element("button", { type: "button", "data-by": key, "aria-pressed": String(key === this.by), onclick: () => this.colourBy(key) }, name));
    }
    const swatch = (name, words) => element("span", {}, element("i", { class: `map-${name}` }), words);
    const legend = element("p", { class: "map-legend" }, swatch("free", "free"), swatch("scale", "0 to 100%"), swatch("silent", "no data"), swatch("fault", "fault"));
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": "Map of GPUs. Arrow keys go from GPU to GPU." });
    this.facts = element("p", { class: "map-facts", "aria-live": "polite" });
    root.replaceChildren(element("div", { class: "map-head" }, this.choice, legend), this.canvas, this.facts);
    this.canvas.addEventListener("pointermove", (event) => this.pick(this.cellAt(event)));
    this.canvas.addEventListener("pointerdown", (event) => this.pick(this.cellAt(event)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  update(nodes) {
    const kept = this.cells[this.picked]?.key;
    this.nodes = nodes;
    this.draw();
    if (kept !== undefined) this.pick(this.cells.findIndex(({ key }) => key === kept));
  }

  colourBy(key) {
    this.by = key;
    for (const button of this.choice.children) setAttribute(button, "aria-pressed", button.dataset.by === key);
    this.draw();
  }

  draw() {
    const started = performance.now();
    const width = this.canvas.parentElement.clientWidth;
    if (width === 0) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const unit = Number.parseFloat(style.fontSize) / 16;
    const context = this.canvas.getContext("2d");
    context.font = `${11 * unit}px ${getComputedStyle(document.body).fontFamily}`;
    const { cells, labels, height } = layOut(this.nodes, width, unit, context);
    this.cells = cells;
    const ratio = globalThis.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.colours = { free: colour("sunken"), line: colour("line"), silent: colour("ink-3"), fault: colour("warning"), ink: colour("ink"), surface: colour("surface") };
    this.shades = Array.from({ length: SHADES + 1 }, (_, step) => mixed(colour("heat-0"), colour("heat-1"), step / SHADES));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `${11 * unit}px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    context.fillStyle = colour("ink-3");
    for (const { text, x, y } of labels) context.fillText(text, x, y);
    for (const cell of cells) this.paint(context, cell, unit);
    if (this.picked >= 0 && this.picked < cells.length) this.frame(context, cells[this.picked], unit);
    this.drawMs = performance.now() - started;
  }

  // A cell is free, silent, or filled by how much of it is used; a fault is a corner that colours alone don't say.
  paint(context, { x, y, width, height, gpu }, unit) {
    const gap = Math.max(0.5, Math.min(2 * unit, height * 0.1));
    const [w, h] = [width - gap, height - gap];
    const share = this.shareOf(gpu);
    context.fillStyle = !isNumber(share) ? this.colours.free : gpu.pod || share > 0 ? this.shades[Math.round(Math.min(1, Math.max(0, share)) * SHADES)] : this.colours.free;
    context.fillRect(x, y, w, h);
    if (!isNumber(share)) {
      context.fillStyle = this.colours.silent;
      context.fillRect(x + w / 4, y + h / 2 - unit / 2, w / 2, unit);
    } else if (!gpu.pod && share === 0 && h >= 6 * unit) {
      context.strokeStyle = this.colours.line;
      context.lineWidth = unit;
      context.strokeRect(x + unit / 2, y + unit / 2, w - unit, h - unit);
    }
    const owners = gpu.pod ? gpu.pod.split(", ").length : 0;
    if (owners > 1 && h >= 8 * unit) {
      context.fillStyle = this.colours.surface;
      const bands = Math.min(owners, Math.floor(h / (4 * unit)));
      for (let band = 1; band < bands; band += 1) context.fillRect(x, y + (h * band) / bands, w, unit);
    }
    if (gpu.faults?.length) {
      context.fillStyle = this.colours.fault;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + Math.min(w, Math.max(w * 0.6, 4 * unit)), y);
      context.lineTo(x, y + Math.min(h, Math.max(h * 0.6, 4 * unit)));
      context.fill();
    }
    if (h >= 24 * unit && w >= 24 * unit && isNumber(share)) {
      context.fillStyle = gpu.pod || share > 0 ? (share > 0.55 ? this.colours.surface : this.colours.ink) : this.colours.silent;
      context.textAlign = "center";
      context.fillText(`${Math.round(share * 100)}`, x + w / 2, y + h / 2 + unit / 2);
      context.textAlign = "start";
    }
  }

  frame(context, { x, y, width, height }, unit) {
    context.strokeStyle = this.colours.ink;
    context.lineWidth = 2 * unit;
    context.strokeRect(x - unit, y - unit, width, height);
  }

  shareOf(gpu) {
    if (this.by === "util") return isNumber(gpu.util) ? gpu.util / 100 : null;
    return isNumber(gpu.memoryUsedMib) && gpu.memoryTotalMib > 0 ? gpu.memoryUsedMib / gpu.memoryTotalMib : null;
  }

  cellAt({ offsetX, offsetY }) {
    return this.cells.findIndex(({ x, y, width, height }) => offsetX >= x && offsetX < x + width && offsetY >= y && offsetY < y + height);
  }

  pick(index) {
    if (index < 0) return; // between cells what was picked stays
    const isNew = index !== this.picked;
    this.picked = index;
    if (isNew) this.draw();
    setText(this.facts, inWords(this.cells[index]));
  }

  onKey(event) {
    const from = this.cells[Math.max(0, this.picked)];
    if (!from || event.ctrlKey || event.altKey || event.metaKey) return;
    const last = this.cells.length - 1;
    const to = {
      ArrowLeft: this.picked - 1, ArrowRight: this.picked + 1, Home: 0, End: last,
      ArrowUp: this.beside(from, -1), ArrowDown: this.beside(from, 1),
    }[event.key];
    if (to === undefined) return;
    this.pick(Math.min(last, Math.max(0, to)));
    event.preventDefault();
  }

  // The nearest cell of the row above or below.
  beside(from, direction) {
    const beyond = this.cells.map((cell, index) => ({ cell, index })).filter(({ cell }) => (cell.y - from.y) * direction > 0);
    if (beyond.length === 0) return this.picked;
    const row = beyond.reduce((nearest, { cell }) => (Math.abs(cell.y - from.y) < Math.abs(nearest - from.y) ? cell.y : nearest), beyond[0].cell.y);
    return beyond.filter(({ cell }) => cell.y === row).reduce((best, each) => (Math.abs(each.cell.x - from.x) < Math.abs(best.cell.x - from.x) ? each : best)).index;
  }
}

function inWords({ node, gpu }) {
  return [
    `${node} · GPU ${gpu.index}`, gpu.model, isNumber(gpu.util) ? `${number(gpu.util)}% used` : "no data on use",
    memory(gpu.memoryUsedMib, gpu.memoryTotalMib), isNumber(gpu.powerW) && withUnit(gpu.powerW, "W"), isNumber(gpu.temperatureC) && withUnit(gpu.temperatureC, "°C"),
    gpu.pod ? `held by ${gpu.pod}` : "free", ...(gpu.faults ?? []).map((fault) => `fault: ${fault}`),
  ].filter(Boolean).join(" · ");
}

// Nodes one after the other, each with its GPUs in a row, as large as fits.
function layOut(nodes, width, unit, context) {
  const groups = nodes.filter(({ gpus }) => gpus.length > 0).map(({ name, gpus }) => ({ name, gpus: byDevice(gpus) }));
  let texts = groups.map(({ name }) => shortName(name, 28));
  let wide = groups.length <= LABELLED ? texts.map((text) => context.measureText(text).width + 6 * unit) : null;
  const fits = (size) => place(groups, width, size * unit, unit, wide, () => {}) <= MOST_HEIGHT * unit;
  let pixels = wide && SIZES.find(fits);
  if (!(pixels >= LABELLED_SIZE)) { // names would leave the cells too little
    texts = wide = null;
    pixels = SIZES.find(fits) ?? SIZES.at(-1);
  }
  const size = pixels * unit;
  const cells = [], labels = [];
  const height = place(groups, width, size, unit, wide, ({ name, gpus }, index, x, y, across) => {
    const top = texts ? y + LABEL * unit : y;
    if (texts) labels.push({ text: texts[index], x, y: y + (LABEL * unit) / 2 });
    gpus.forEach((parts, at) => parts.forEach((gpu, part) => cells.push({
      key: `${name}/${gpu.index}`, node: name, gpu, x: x + (at % across) * size + (part * size) / parts.length, y: top + Math.floor(at / across) * size,
      width: size / parts.length, height: size,
    })));
  });
  return { cells, labels, height };
}

// Gives each node its place, and returns how high all of them are; `wide` is what their names take.
function place(groups, width, size, unit, wide, put) {
  const gap = Math.max(2 * unit, size * 0.35);
  const label = wide ? LABEL * unit : 0;
  const most = Math.max(1, Math.floor(width / size));
  let x = 0, y = 0, rowHeight = 0;
  groups.forEach((group, index) => {
    const count = group.gpus.length;
    const across = Math.min(most, count);
    const room = Math.min(width, Math.max(across * size, wide?.[index] ?? 0));
    if (x > 0 && x + room > width) [x, y, rowHeight] = [0, y + rowHeight, 0];
    put(group, index, x, y, across);
    rowHeight = Math.max(rowHeight, label + Math.ceil(count / across) * size + gap / (wide ? 2 : 3));
    x += room + gap;
  });
  return Math.ceil(y + rowHeight);
}

// Instances of one GPU are parts of its cell: `3/7` is the instance 7 of the GPU 3.
function byDevice(gpus) {
  const devices = new Map();
  for (const gpu of gpus) {
    const device = String(gpu.index).split("/")[0];
    if (devices.has(device)) devices.get(device).push(gpu);
    else devices.set(device, [gpu]);
  }
  return [...devices.values()];
}

function mixed(from, to, share) {
  const part = (text, at) => Number.parseInt(text.slice(at, at + 2), 16);
  return `rgb(${[1, 3, 5].map((at) => Math.round(part(from, at) + (part(to, at) - part(from, at)) * share)).join(" ")})`;
}

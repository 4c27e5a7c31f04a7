// Charts over one shared time axis: drawn by Plotly, with one cursor, one zoom and one set of event
// marks for all of them. The live page and the report both show a run through this module.
import { element, keyed, part, setAttribute, setText } from "./dom.js";
import { clock, isNumber, number, podName, shortName, shortPod, withUnit } from "./format.js";
import { decimate } from "./store.js";
import { CATEGORIES, categoryOf } from "./events.js";

const MARGIN = { l: 60, r: 12, t: 6, b: 8 };
const TIME_LABELS = 16; // pixels below the first and the last chart, which carry the times
const LANES = ["load", "scaling", "pods", "nodes", "warning"];
const MARKED = ["scaling", "nodes", "warning"]; // the few kinds of events worth a line across every chart
const MAX_LINES = 60; // more than this can't be told apart, and costs a redraw its smoothness
const MIN_ZOOM_SECONDS = 2;
const REPEAT_SECONDS = 600;
const STEPS_SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

// What each chart shows: `lines` turns the names of series into lines to draw. A chart without any is left
// out, unless the part of the summary that it `expects` says that there will be some.
const CHARTS = [
  { id: "load", title: "Load", unit: "requests/s", height: 92, lines: loadLines, expects: "requests" },
  { id: "queue", title: "Waiting", unit: "requests", height: 92, lines: queueLines },
  { id: "utilisation", title: "GPU utilisation", unit: "%", height: 150, tops: [20, 40, 60, 100], lines: utilisationLines },
  { id: "value", title: "What the HPA sees", unit: "value and target of its metric", height: 110, lines: valueLines, expects: "hpas" },
  { id: "replicas", title: "Replicas", unit: "pods", height: 110, whole: true, lines: replicaLines },
  { id: "nodes", title: "Nodes", unit: "nodes", height: 90, whole: true, lines: nodeLines, timed: true },
];

// One entry per name; where there is but one, its role says enough.
function parts(store, prefix, suffix = "") {
  const found = store
    .keys(`${prefix}/`)
    .filter((key) => key.endsWith(suffix))
    .map((key) => ({ key, full: key.slice(prefix.length + 1, key.length - suffix.length) }));
  return found.map((entry, i) => ({ ...entry, colour: i, only: found.length === 1 }));
}

function named({ key, full, colour, only }, role, style) {
  return { key, full: `${full} ${role}`, name: only ? role : `${shortName(full, 20)} ${role}`, colour, ...style };
}

const DASHED = { step: true, dash: "5px,4px" };
const DOTTED = { step: true, dash: "1px,3px" };
const FILLED = { step: true, fill: true };

function loadLines(store) {
  return parts(store, "load").map((entry) => ({ ...entry, name: shortName(entry.full), ...FILLED }));
}

function queueLines(store) {
  const waited = ({ key }) => store.series.get(key).some((value) => value > 0);
  return parts(store, "queue").filter(waited).map((entry) => ({ ...entry, name: shortName(entry.full), fill: true }));
}

function utilisationLines(store) {
  const pods = parts(store, "pod").map((entry) => ({
    ...entry, name: shortPod(podName(entry.full)), group: "Pods", churns: true,
  }));
  const gpus = parts(store, "gpu").map((entry) => ({
    ...entry, name: shortName(entry.full.replace(/\/([^/]*)$/, " · $1"), 22), full: entry.full.replace(/\/([^/]*)$/, ", GPU $1"),
    group: "GPUs", dash: DOTTED.dash, churns: true,
  }));
  return [...utilisationTargets(store), ...pods, ...gpus];
}

// Only a target in percent belongs among percentages; an HPA on a queue length has its own chart.
function utilisationTargets(store) {
  return targets(store).filter(({ hpa }) => (store.document.summary?.hpas?.[hpa]?.unit ?? "%") === "%");
}

function targets(store) {
  return parts(store, "hpa", "/target").map((entry) => ({ ...named(entry, "target", DASHED), hpa: entry.full, role: "target" }));
}

function valueLines(store) {
  return [...parts(store, "hpa", "/value").map((entry) => named(entry, "value", { step: true })), ...targets(store)];
}

function replicaLines(store) {
  const pending = store.series.has("pods/pending")
    ? [{ key: "pods/pending", name: "pending pods", role: "pending", ...FILLED }]
    : [];
  return [
    ...parts(store, "replicas", "/ready").map((entry) => named(entry, "ready", FILLED)),
    ...parts(store, "hpa", "/desired").map((entry) => named(entry, "wanted", DASHED)),
    ...parts(store, "hpa", "/current").map((entry) => named(entry, "current", { ...DOTTED, off: true })),
    ...pending,
  ];
}

function nodeLines(store) {
  return [
    ...parts(store, "nodes", "/ready").map((entry) => named(entry, "ready", FILLED)),
    ...parts(store, "nodes", "/total").map((entry) => named(entry, "total", DASHED)),
  ];
}

export class ChartStack {
  // `root` is filled with the toolbar and the charts; `onEvent` hears of an event clicked in the lanes.
  constructor(root, store, { window = null, onEvent = () => {} } = {}) {
    this.root = root;
    this.store = store;
    this.onEvent = onEvent;
    this.window = window; // seconds that "follow" shows; null is the whole run
    this.zoom = null; // [from, to] once zoomed; null follows the run
    this.chosen = new Map(); // which lines were switched on or off by hand
    this.marks = MARKED;
    this.cursor = null;
    this.scheduled = false;
    this.waiting = false;
    this.drawMs = 0; // what drawing took last
    this.build();
    this.listen();
    this.refresh();
  }

  // ---- building

  build() {
    this.root.classList.add("stack");
    this.range = element("span", { class: "range", "aria-live": "off" });
    this.back = element("button", { type: "button", class: "quiet", onclick: () => this.setZoom(null) }, "Show all again");
    this.windows = element("span", { class: "segments", role: "group", "aria-label": "Time shown" });
    this.spoken = element("p", { class: "unseen", "aria-live": "polite" });
    const toolbar = element("div", { class: "toolbar" }, this.windows, this.range, this.back, this.hint());
    this.body = element("div", {
      class: "stack-body", tabindex: "0", role: "group",
      "aria-label": "Charts. Left and right arrows move the time cursor, plus and minus zoom, Escape clears.",
    });
    this.cursorLine = element("div", { class: "cursor", hidden: true }, element("span", { class: "cursor-time" }));
    this.band = element("div", { class: "band", hidden: true });
    this.callout = element("p", { class: "callout", hidden: true });
    this.charts = [{ id: "events", title: "Events", height: 82, lanes: true, timed: true }, ...CHARTS].map((chart) => this.figure(chart));

    this.body.append(...this.charts.map((chart) => chart.figure), this.band, this.cursorLine, this.callout);
    this.root.replaceChildren(toolbar, this.body, this.spoken);
  }

  hint() {
    return element("span", { class: "hint" }, "drag to zoom · double-click to go back");
  }

  figure(spec) {
    const legend = element("div", { class: "legend" });
    const plot = element("div", { class: "plot", role: "img", style: `height:${heightOf(spec)}px` });
    const unit = element("span", { class: "unit" }, spec.unit ?? "");
    const caption = element("figcaption", {}, element("h3", {}, spec.title, unit), legend);
    const figure = element("figure", { class: "chart", "data-chart": spec.id }, caption, plot);
    return { ...spec, figure, plot, legend, signature: "", near: true, stale: true };
  }

  // ---- what is shown

  extent() {
    if (this.zoom) return this.zoom;
    const last = this.store.last();
    if (this.window && last > this.window) return [last - this.window, last];
    return [0, this.end(last)];
  }

  // While a run grows the axis ends on a round time ahead of it, so that it moves rarely, not always.
  end(last) {
    const known = this.store.document.started === undefined ? this.store.document.summary?.duration : undefined;
    if (isNumber(known) && known >= last) return known;
    if (this.store.document.started === undefined) return Math.max(last, 1);
    const rounded = [60, 120, 300, 600, 900, 1200, 1800, 2700, 3600].find((step) => step >= last);
    return rounded ?? Math.ceil(last / 3600) * 3600;
  }

  setWindow(seconds) {
    this.window = seconds;
    this.setZoom(null);
  }

  setZoom(range) {
    this.zoom = range;
    this.refresh();
  }

  setMarks(categories) {
    this.marks = MARKED.filter((category) => categories.includes(category));
    this.refresh();
  }

  showTime(time) {
    const [from, to] = this.extent();
    if (time < from || time > to) this.zoom = [time - (to - from) / 2, time + (to - from) / 2];
    this.setCursor(time);
    this.refresh();
  }

  // ---- drawing

  refresh() {
    for (const chart of this.charts) chart.stale = true;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  // New points came in: draws, but leaves a slow machine most of its time for everything else.
  follow() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => {
      this.waiting = false;
      this.refresh();
    }, 4 * this.drawMs);
  }

  draw() {
    if (!globalThis.Plotly) return;
    const started = performance.now();
    const range = this.extent();
    this.theme = readTheme();
    this.drawToolbar(range);
    for (const chart of this.charts) {
      if (chart.near && chart.stale) this.drawChart(chart, range);
    }
    this.placeCursor();
    this.updateValues();
    this.drawMs = performance.now() - started;
  }

  drawToolbar([from, to]) {
    setText(this.range, `${clock(from)} – ${clock(to)}`);
    this.back.hidden = this.zoom === null;
    const choices = this.store.document.started === undefined ? [] : [[600, "10 min"], [1800, "30 min"], [7200, "2 h"], [null, "All"]];
    keyed(this.windows, choices, ([, name]) => name,
      ([seconds, name]) => element("button", { type: "button", onclick: () => this.setWindow(seconds) }, name),
      (button, [seconds]) => setAttribute(button, "aria-pressed", this.zoom === null && this.window === seconds));
    this.windows.hidden = choices.length === 0;
  }

  drawChart(chart, range) {
    chart.stale = false;
    if (chart.lanes) {
      this.plotInto(chart, this.laneTraces(range), range, laneAxis(this.theme));
      return;
    }
    const lines = this.visibleLines(chart, range);
    chart.figure.hidden = lines.length === 0 && !this.expects(chart);
    this.drawLegend(chart, lines);
    if (chart.figure.hidden) return;
    const shown = lines.filter((line) => this.shows(line)).slice(0, MAX_LINES);
    const traces = shown.map((line) => this.trace(line, range));
    const axis = valueAxis(chart, traces, this.theme);
    this.plotInto(chart, [...this.markTraces(range), ...traces], range, axis);
  }

  expects(chart) {
    return chart.timed || Object.keys(this.store.document.summary?.[chart.expects] ?? {}).length > 0;
  }

  // Pods and GPUs come and go: those without a single value in range are left out of their chart.
  visibleLines(chart, [from, to]) {
    const [start, end] = this.store.slice(from, to);
    const lines = chart.lines(this.store);
    return lines.filter((line) => !line.churns || hasValue(this.store.series.get(line.key), start, end));
  }

  trace(line, [from, to]) {
    const [start, end] = this.store.slice(from, to);
    const { x, y } = decimate(this.store.t, this.store.series.get(line.key), start, end);
    const colour = this.colour(line);
    const alone = y.map((value, i) => (value !== null && (y[i - 1] ?? null) === null && (y[i + 1] ?? null) === null ? 4 : 0));
    const dots = alone.some((size) => size > 0);
    return {
      x, y, type: "scatter", mode: dots ? "lines+markers" : "lines", connectgaps: false, hoverinfo: "skip",
      line: { color: colour, width: line.dash ? 1.25 : 1.75, dash: line.dash ?? "solid", shape: line.step ? "hv" : "linear" },
      marker: { size: dots ? alone : 0, color: colour },
      fill: line.fill ? "tozeroy" : "none", fillcolor: translucent(colour),
    };
  }

  colour(line) {
    if (line.role) return this.theme[line.role];
    return this.theme.series[line.colour % this.theme.series.length];
  }

  // One faint vertical line per event, over the full height of every chart.
  markTraces([from, to]) {
    const events = firstOfRepeats(this.eventsWithin(from, to));
    return this.marks.map((category) => {
      const times = [...new Set(events.filter((event) => categoryOf(event) === category).map((event) => event.t))];
      return {
        x: times.flatMap((time) => [time, time, null]), y: times.flatMap(() => [0, 1, null]),
        yaxis: "y2", type: "scatter", mode: "lines", hoverinfo: "skip", opacity: 0.38,
        line: { color: this.theme[category], width: 1 },
      };
    });
  }

  eventsWithin(from, to) {
    return this.store.events.filter((event) => event.t >= from && event.t <= to);
  }

  laneTraces([from, to]) {
    const events = this.eventsWithin(from, to);
    return LANES.map((lane, row) => {
      const here = events.filter((event) => categoryOf(event) === lane);
      return {
        x: here.map((event) => event.t), y: here.map(() => LANES.length - 1 - row), type: "scatter", mode: "markers",
        hoverinfo: "skip", cliponaxis: false,
        marker: { size: 8, symbol: CATEGORIES[lane].symbol, color: this.theme[lane], line: { width: 1, color: this.theme.surface } },
      };
    });
  }

  plotInto(chart, traces, range, yaxis) {
    const width = chart.plot.clientWidth;
    if (width === 0) return;
    chart.plot.style.height = `${heightOf(chart)}px`;
    const layout = {
      width, height: heightOf(chart), margin: { ...MARGIN, b: MARGIN.b + (chart.timed ? TIME_LABELS : 0) }, showlegend: false, hovermode: false, dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: this.theme.font, size: 11, color: this.theme.muted },
      xaxis: timeAxis(range, width, chart.timed, this.theme), yaxis,
      yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
    };
    globalThis.Plotly.react(chart.plot, traces, layout, { staticPlot: true, displayModeBar: false });
  }

  // ---- legend: what each line is, and its value under the cursor or now

  drawLegend(chart, lines) {
    const groups = [...new Set(lines.map((line) => line.group).filter(Boolean))];
    const items = [
      ...groups.map((group) => ({ key: `group:${group}`, name: group, members: lines.filter((line) => line.group === group) })),
      ...lines.slice(0, MAX_LINES),
    ];
    if (lines.length > MAX_LINES) items.push({ key: "more", name: `${lines.length - MAX_LINES} more not drawn`, note: true });
    keyed(chart.legend, items, (item) => item.key, (item) => this.legendItem(item), (node, item) => this.updateItem(node, item));
    chart.lineItems = lines;
    this.describe(chart, lines);
  }

  legendItem(item) {
    if (item.note) return element("span", { class: "legend-note" }, item.name);
    const text = element("span", { class: "legend-name" }, item.name);
    const title = item.members ? `All ${item.name}` : (item.full ?? item.name);
    const button = element("button", { type: "button", class: item.members ? "legend-item legend-group" : "legend-item", title });
    if (!item.members) button.append(element("span", { class: "swatch", "data-part": "swatch" }));
    button.append(text);
    if (!item.members) button.append(element("span", { class: "legend-value", "data-part": "value" }));
    button.addEventListener("click", () => this.toggle(button));
    return button;
  }

  updateItem(node, item) {
    if (item.note) {
      setText(node, item.name);
      return;
    }
    const keys = (item.members ?? [item]).map((member) => member.key);
    node.dataset.keys = keys.join("\n");
    setAttribute(node, "aria-pressed", (item.members ?? [item]).some((line) => this.shows(line)));
    if (item.members) return;
    const swatch = part(node, "swatch");
    swatch.style.borderTopColor = this.colour(item);
    swatch.style.borderTopStyle = item.dash ? (item.dash.startsWith("1px") ? "dotted" : "dashed") : "solid";
  }

  shows(line) {
    return this.chosen.get(line.key) ?? line.off !== true;
  }

  toggle(button) {
    const show = button.getAttribute("aria-pressed") !== "true";
    for (const key of button.dataset.keys.split("\n")) this.chosen.set(key, show);
    this.refresh();
  }

  valueAt(key) {
    const index = this.cursor === null ? this.store.t.length - 1 : this.store.indexAt(this.cursor);
    return this.store.series.get(key)?.[index] ?? null;
  }

  updateValues() {
    for (const chart of this.charts) {
      for (const node of chart.legend.children) {
        const value = part(node, "value");
        if (value) setText(value, number(this.valueAt(node.dataset.keys)));
      }
    }
  }

  describe(chart, lines) {
    const now = lines.slice(0, 6).map((line) => `${line.name} ${withUnit(this.valueAt(line.key), chart.unit)}`);
    setAttribute(chart.plot, "aria-label", `${chart.title}: ${now.join(", ") || "no data yet"}`);
  }

  // ---- cursor, zoom and keys

  listen() {
    this.body.addEventListener("pointermove", (event) => this.onMove(event));
    this.body.addEventListener("pointerleave", () => this.onLeave());
    this.body.addEventListener("pointerdown", (event) => this.onDown(event));
    this.body.addEventListener("pointerup", (event) => this.onUp(event));
    this.body.addEventListener("pointercancel", () => this.endDrag());
    // While it holds the pointer, the body is the target of what happens over a chart.
    this.body.addEventListener("dblclick", (event) => !event.target.closest("button") && this.setZoom(null));
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("blur", () => this.setCursor(null));
    new ResizeObserver(() => this.refresh()).observe(this.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
    const watcher = new IntersectionObserver((entries) => this.onScroll(entries), { rootMargin: "300px" });
    for (const chart of this.charts) watcher.observe(chart.figure);
  }

  onScroll(entries) {
    for (const entry of entries) {
      const chart = this.charts.find((candidate) => candidate.figure === entry.target);
      chart.near = entry.isIntersecting || chart.figure.hidden;
    }
    if (this.charts.some((chart) => chart.near && chart.stale)) this.refresh();
  }

  // Pixels of the page to seconds of the run, over the area that the axes span.
  area() {
    const box = this.charts[0].plot.getBoundingClientRect();
    const body = this.body.getBoundingClientRect();
    return { left: box.left + MARGIN.l, width: box.width - MARGIN.l - MARGIN.r, offset: body.left };
  }

  timeAt(clientX) {
    const { left, width } = this.area();
    const [from, to] = this.extent();
    const share = Math.min(1, Math.max(0, (clientX - left) / width));
    return from + share * (to - from);
  }

  xOf(time) {
    const { left, width, offset } = this.area();
    const [from, to] = this.extent();
    return left - offset + ((time - from) / (to - from)) * width;
  }

  onMove(event) {
    if (this.dragFrom) this.drawBand(event.clientX);
    this.drawCallout(event.target.closest('[data-chart="events"] .plot') ? this.eventAt(event.clientX, event.clientY) : undefined);
    this.setCursor(this.dragFrom || event.target.closest(".plot") ? this.timeAt(event.clientX) : null);
  }

  onLeave() {
    this.drawCallout(undefined);
    if (!this.dragFrom) this.setCursor(null);
  }

  onDown(event) {
    if (event.button !== 0 || !event.target.closest(".plot")) return;
    this.dragFrom = { x: event.clientX, y: event.clientY };
    this.body.setPointerCapture(event.pointerId);
  }

  onUp(event) {
    const start = this.dragFrom;
    this.endDrag();
    if (!start) return;
    if (Math.abs(event.clientX - start.x) < 6) {
      const picked = this.eventAt(start.x, start.y);
      if (picked) this.onEvent(picked);
      return;
    }
    this.zoomTo(this.timeAt(start.x), this.timeAt(event.clientX));
  }

  endDrag() {
    this.dragFrom = null;
    this.band.hidden = true;
  }

  zoomTo(a, b) {
    const middle = (a + b) / 2;
    const half = Math.max(Math.abs(a - b), MIN_ZOOM_SECONDS) / 2;
    this.setZoom([middle - half, middle + half]);
  }

  drawBand(clientX) {
    const from = this.xOf(this.timeAt(this.dragFrom.x));
    const to = this.xOf(this.timeAt(clientX));
    this.band.hidden = Math.abs(clientX - this.dragFrom.x) < 6;
    this.band.style.left = `${Math.min(from, to)}px`;
    this.band.style.width = `${Math.abs(to - from)}px`;
  }

  // The event drawn under the pointer, if it is over the lanes and close to one.
  eventAt(clientX, clientY) {
    const box = this.charts[0].plot.getBoundingClientRect();
    const share = (clientY - box.top - MARGIN.t) / (this.charts[0].height - MARGIN.t - MARGIN.b);
    const lane = LANES[Math.floor(share * LANES.length)];
    const { offset } = this.area();
    const distance = (event) => Math.abs(this.xOf(event.t) + offset - clientX);
    return this.eventsWithin(...this.extent())
      .filter((event) => categoryOf(event) === lane && distance(event) < 8)
      .sort((a, b) => distance(a) - distance(b))[0];
  }

  drawCallout(event) {
    this.callout.hidden = event === undefined;
    if (event === undefined) return;
    setText(this.callout, `${clock(event.t)}  ${event.kind}  ${event.object}\n${event.reason ?? ""}`);
    const left = this.xOf(event.t) + 10;
    const room = this.body.clientWidth - this.callout.offsetWidth - 12;
    this.callout.style.transform = `translateX(${Math.max(12, Math.min(left, room))}px)`;
  }

  onKey(event) {
    const [from, to] = this.extent();
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: -step, ArrowRight: step };
    if (event.target !== this.body) return;
    if (event.key in moves) this.stepCursor(moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoomAround(from, to, 0.5);
    else if (event.key === "-") this.zoomAround(from, to, 2);
    else if (event.key === "Escape") {
      this.setZoom(null);
      this.setCursor(null);
    } else return;
    event.preventDefault();
  }

  stepCursor(points) {
    const now = this.cursor === null ? this.store.t.length : this.store.indexAt(this.cursor);
    const index = Math.min(this.store.t.length - 1, Math.max(0, now + points));
    this.showTime(this.store.t[index] ?? 0);
    const said = this.charts.filter((chart) => !chart.lanes && !chart.figure.hidden).map((chart) => {
      const line = chart.lineItems?.[0];
      return line ? `${chart.title} ${number(this.valueAt(line.key))}` : chart.title;
    });
    setText(this.spoken, `${clock(this.cursor)}: ${said.join(", ")}`);
  }

  zoomAround(from, to, factor) {
    const middle = this.cursor ?? (from + to) / 2;
    const first = Math.max(0, middle - (middle - from) * factor);
    const last = Math.min(this.end(this.store.last()), middle + (to - middle) * factor);
    this.zoomTo(first, last);
  }

  setCursor(time) {
    if (this.cursor === time) return;
    this.cursor = time;
    this.placeCursor();
    this.updateValues();
  }

  placeCursor() {
    const [from, to] = this.extent();
    const shown = this.cursor !== null && this.cursor >= from && this.cursor <= to;
    this.cursorLine.hidden = !shown;
    if (!shown) return;
    this.cursorLine.style.transform = `translateX(${this.xOf(this.cursor)}px)`;
    setText(this.cursorLine.firstChild, clock(this.cursor));
  }
}

// A warning that repeats is marked once, as Kubernetes counts repeats of an event within ten minutes
// into one (client-go tools/record, EventCorrelator).
function firstOfRepeats(events) {
  const lastSeen = new Map();
  return events.filter((event) => {
    const what = `${event.kind} ${event.object}`;
    const again = categoryOf(event) === "warning" && event.t - (lastSeen.get(what) ?? -Infinity) < REPEAT_SECONDS;
    lastSeen.set(what, event.t);
    return !again;
  });
}

function hasValue(values, start, end) {
  for (let index = end - 1; index >= start; index -= 1) {
    if (isNumber(values[index])) return true;
  }
  return false;
}

// ---- axes and colours

// A large screen gets taller charts; the lanes of events have nothing to gain from it.
function heightOf(chart) {
  const factor = !chart.lanes && matchMedia("(min-width: 1560px) and (min-height: 1100px)").matches ? 1.35 : 1;
  return Math.round(chart.height * factor) + (chart.timed ? TIME_LABELS : 0);
}

function timeAxis([from, to], width, timed, theme) {
  const room = Math.max(2, Math.floor((width - MARGIN.l) / 90));
  const step = STEPS_SECONDS.find((candidate) => (to - from) / candidate <= room) ?? 2592000;
  const ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to + 1e-9; tick += step) ticks.push(tick);
  return {
    range: [from, to], tickvals: ticks, ticktext: ticks.map(clock), showgrid: false, zeroline: false, fixedrange: true,
    showticklabels: timed, ticks: "outside", ticklen: 4, tickcolor: theme.line, showline: true, linecolor: theme.line, automargin: false,
  };
}

function valueAxis(chart, traces, theme) {
  const highest = traces.reduce((most, trace) => Math.max(most, ...trace.y), 0);
  const [top, step] = chart.tops ? fixedTop(chart.tops, highest) : roundTop(highest, chart.whole);
  const ticks = [];
  for (let tick = 0; tick <= top + 1e-9; tick += step) ticks.push(tick);
  return {
    range: [0, top * 1.05], tickvals: ticks, ticktext: ticks.map(number), gridcolor: theme.grid, zeroline: false,
    fixedrange: true, automargin: false, ticklabelstandoff: 6,
  };
}

function fixedTop(tops, highest) {
  const top = tops.find((candidate) => highest <= candidate) ?? Math.ceil(highest / 100) * 100;
  return [top, top <= 60 ? Math.max(10, Math.floor(top / 40) * 20) : 50];
}

function roundTop(highest, whole) {
  const step = niceStep(Math.max(highest, whole ? 2 : 1) / 3, whole);
  return [Math.max(step, Math.ceil(highest / step - 1e-9) * step), step];
}

function niceStep(size, whole) {
  const power = 10 ** Math.floor(Math.log10(size));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= size);
  return whole ? Math.max(1, Math.round(step)) : step;
}

function laneAxis(theme) {
  return {
    range: [-0.6, LANES.length - 0.4], tickvals: LANES.map((_, row) => LANES.length - 1 - row),
    ticktext: LANES.map((lane) => CATEGORIES[lane].short), gridcolor: theme.grid, zeroline: false, fixedrange: true,
    automargin: false, ticklabelstandoff: 8,
  };
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    font: getComputedStyle(document.body).fontFamily, surface: read("surface"), muted: read("ink-3"), line: read("line"), grid: read("grid"),
    series: [1, 2, 3, 4, 5, 6, 7, 8].map((index) => read(`series-${index}`)),
    target: read("ink-2"), pending: read("pending"), load: read("load"), scaling: read("scaling"), pods: read("pods"),
    nodes: read("nodes"), warning: read("warning"),
  };
}

function translucent(colour) {
  return `${colour}1c`; // theme colours are six hexadecimal digits; two more are the alpha
}

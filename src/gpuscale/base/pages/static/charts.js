// Charts over one shared time axis, with one cursor, one zoom and one set of event marks for all of them.
// The live page, the report and the timeline of a load all show a run through this module.
import { timeTicks, valueAxis, valueExtent } from "./axes.js";
import { element, keyed, setAttribute, setText } from "./dom.js";
import { CATEGORIES, categoryOf } from "./events.js";
import { clock, isNumber } from "./format.js";
import { Legends, MAX_LINES } from "./legend.js";
import { CHARTS, LANES } from "./lines.js";
import { paint } from "./plot.js";
import { Pointing } from "./pointing.js";
import { barsCsv, eventsCsv, linesCsv, save, savePng } from "./saving.js";
import { decimate, slice, upperBound } from "./store.js";
import { eventsInWords, lanesInWords, linesInWords } from "./words.js";

const MARGIN = { left: 60, right: 12, top: 6, bottom: 8 };
const TIME_LABELS = 16; // pixels below the first and the last chart, which carry the times
const MARKED = ["scaling", "nodes", "warning"]; // the few kinds of events worth a line across every chart
const DESCRIBE_MS = 3000; // a screen reader that reads a description must get to its end
const REPEAT_SECONDS = 600;
const LEAST_SECONDS = 60; // that a cluster's charts show before there is more
const WINDOWS = [[600, "10 min"], [1800, "30 min"], [7200, "2 h"], [null, "All"]];

export class ChartStack {
  // `root` is filled with the toolbar and the charts; `onEvent` hears of an event clicked in the lanes,
  // `onRange` of another `window` or `zoom`. `charts` are as those of `lines.js`; the first has the events.
  constructor(root, store, { charts = CHARTS, window = null, zoom = null, onEvent = () => {}, onRange = () => {} } = {}) {
    this.root = root;
    this.store = store;
    this.specs = charts;
    this.onEvent = onEvent;
    this.onRange = onRange;
    this.window = window; // seconds that "follow" shows; null is the whole run
    this.zoom = zoom; // [from, to] once zoomed; null follows the run
    this.legends = new Legends(this);
    this.marks = MARKED;
    this.cursor = null;
    this.scheduled = false;
    this.waiting = false;
    this.drawMs = 0; // what drawing took last
    this.theme = readTheme();
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
    const hint = element("span", { class: "hint" }, "drag to zoom · double-click to go back");
    const toolbar = element("div", { class: "toolbar" }, this.windows, this.range, this.back, hint);
    this.body = element("div", {
      class: "stack-body", tabindex: "0", role: "group",
      "aria-label": "Charts. Left and right arrows move the time cursor, plus and minus zoom, Escape clears.",
    });
    this.charts = this.specs.map((chart) => this.figure(chart));
    this.body.append(...this.charts.map((chart) => chart.figure));
    this.root.replaceChildren(toolbar, this.body, this.spoken);
    this.pointing = new Pointing(this);
  }

  figure(spec) {
    const legend = element("div", { class: "legend" });
    const text = element("p", { class: "unseen", id: `chart-${spec.id}-text` });
    const canvas = element("canvas", { "aria-hidden": "true" });
    const plot = element("div", { class: "plot", role: "img", "aria-label": spec.title, "aria-describedby": text.id }, canvas);
    const unit = element("span", { class: "unit" }, spec.unit ?? "");
    const chart = { ...spec, plot, canvas, legend, text, describedAt: -Infinity };
    const button = (kind, onclick) => element("button", { type: "button", class: "quiet", "aria-label": `${spec.title} as ${kind}`, onclick }, kind);
    const files = element("span", { class: "files" }, button("CSV", () => this.saveCsv(chart)), button("PNG", () => this.savePng(chart)));
    const caption = element("figcaption", {}, element("h3", {}, spec.title, unit), legend, files);
    chart.figure = element("figure", { class: "chart", "data-chart": spec.id }, caption, plot, text);
    return chart;
  }

  listen() {
    new ResizeObserver(() => this.refresh()).observe(this.body);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  // ---- what is shown

  extent() {
    if (this.zoom) return this.zoom;
    const last = this.store.last();
    const first = this.store.first();
    if (this.window && last - first > this.window) return [last - this.window, last];
    return [first, this.end(last)];
  }

  // While a run grows the axis ends on a round time ahead of it, so that it moves rarely, not always.
  end(last) {
    if (this.store.document.clock === "wall") return Math.max(last, this.store.first() + LEAST_SECONDS);
    const known = this.store.document.started === undefined ? this.store.document.summary?.duration : undefined;
    if (isNumber(known) && known >= last) return Math.max(known, 1);
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
    this.onRange(this);
    this.refresh();
  }

  setMarks(categories) {
    this.marks = MARKED.filter((category) => categories.includes(category));
    this.refresh();
  }

  showTime(time) {
    const [from, to] = this.extent();
    if (time < from || time > to) this.setZoom([time - (to - from) / 2, time + (to - from) / 2]);
    this.setCursor(time);
    this.refresh();
  }

  setCursor(time) {
    if (this.cursor === time) return;
    this.cursor = time;
    this.pointing.placeCursor();
    this.legends.updateValues(this.charts);
  }

  valueAt(key) {
    const { t, values } = this.store.points(key);
    return values[this.cursor === null ? t.length - 1 : upperBound(t, this.cursor) - 1] ?? null;
  }

  // ---- drawing

  refresh() {
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
    const started = performance.now();
    const range = this.extent();
    this.theme = readTheme();
    this.drawToolbar(range);
    for (const chart of this.charts) this.drawChart(chart, range); // all: a page is printed and captured whole
    this.pointing.placeCursor();
    this.legends.updateValues(this.charts);
    this.drawMs = performance.now() - started;
  }

  drawToolbar([from, to]) {
    setText(this.range, `${clock(from)} – ${clock(to)}`);
    this.back.hidden = this.zoom === null;
    const choices = this.store.document.started === undefined ? [] : WINDOWS;
    keyed(this.windows, choices, ([, name]) => name,
      ([seconds, name]) => element("button", { type: "button", onclick: () => this.setWindow(seconds) }, name),
      (button, [seconds]) => setAttribute(button, "aria-pressed", this.zoom === null && this.window === seconds));
    this.windows.hidden = choices.length === 0;
  }

  drawChart(chart, range) {
    if (chart.lanes) {
      chart.figure.hidden = chart.optional === true && this.store.events.length === 0;
      this.paintInto(chart, range, { range: [-0.6, LANES.length - 0.4], ticks: laneTicks() }, { symbols: this.symbols(range) });
      this.describe(chart, range, () => eventsInWords(this.eventsWithin(...range), range));
      return;
    }
    const lines = this.visibleLines(chart, range);
    chart.figure.hidden = lines.length === 0 && !this.expects(chart);
    chart.lineItems = lines;
    this.legends.draw(chart, lines);
    if (chart.figure.hidden) return;
    if (chart.spans) {
      this.drawSpans(chart, range, lines);
      return;
    }
    const shown = lines.filter((line) => this.legends.shows(line)).slice(0, MAX_LINES);
    const drawn = shown.map((line) => this.trace(line, range, chart.plot.clientWidth));
    this.paintInto(chart, range, valueAxis(valueExtent(drawn), chart), { lines: drawn, marks: this.eventMarks(range) });
    this.describe(chart, range, () => linesInWords(drawn, chart.unit, range));
  }

  // A row for each lane, and in it a bar for each state that the legend shows.
  drawSpans(chart, range, states) {
    const { lanes, axis } = chart.spans(this.store);
    const shown = states.filter((state) => this.legends.shows(state));
    const bars = lanes.flatMap(({ bars }, row) => bars.flatMap(({ state, from, to }) => {
      const line = shown.find(({ key }) => key === state);
      return line && to >= range[0] && from <= range[1] ? [{ y: lanes.length - 1 - row, from, to, colour: this.colour(line), faint: this.legends.fades(line) }] : [];
    }));
    this.paintInto(chart, range, axis, { bars, marks: this.eventMarks(range) });
    this.describe(chart, range, () => lanesInWords(lanes, states, range));
  }

  expects(chart) {
    return chart.timed || Object.keys(this.store.document.summary?.[chart.expects] ?? {}).length > 0;
  }

  // Pods and GPUs come and go: those without a single value in range are left out of their chart.
  visibleLines(chart, [from, to]) {
    const lines = chart.lines(this.store);
    return lines.filter((line) => {
      if (!line.churns) return true;
      const { t, values } = this.store.points(line.key);
      return hasValue(values, ...slice(t, from, to));
    });
  }

  trace(line, [from, to], columns) {
    const { t, values } = this.store.points(line.key);
    const points = decimate(t, values, slice(t, from, to), [from, to], columns);
    return { ...points, key: line.key, name: line.name, full: line.full, step: line.step, dash: line.dash, fill: line.fill, colour: this.colour(line), faint: this.legends.fades(line) };
  }

  colour(line) {
    if (line.role) return this.theme[line.role];
    return this.theme.series[line.colour % this.theme.series.length];
  }

  eventMarks([from, to]) {
    const events = firstOfRepeats(this.eventsWithin(from, to));
    return this.marks.map((category) => {
      const times = events.filter((event) => categoryOf(event) === category).map((event) => event.t);
      return { times: [...new Set(times)], colour: this.theme[category] };
    });
  }

  eventsWithin(from, to) {
    return this.store.events.filter((event) => event.t >= from && event.t <= to);
  }

  symbols([from, to]) {
    return this.eventsWithin(from, to).map((event) => {
      const lane = categoryOf(event);
      return { x: event.t, y: laneHeight(lane), shape: CATEGORIES[lane].symbol, colour: this.theme[lane] };
    });
  }

  paintInto(chart, range, axis, content) {
    const width = chart.plot.clientWidth;
    if (width === 0) return;
    const { unit } = this.theme;
    const height = heightOf(chart, unit);
    chart.plot.style.height = `${height}px`;
    const { left, right } = this.margins();
    const box = { left, right: width - right, top: MARGIN.top * unit, bottom: height - (MARGIN.bottom + (chart.timed ? TIME_LABELS : 0)) * unit };
    const xTicks = timeTicks(range, Math.max(2, Math.floor((width - left) / (90 * unit))));
    paint(chart.canvas, { width, height, box, unit, x: range, y: axis.range, xTicks, yTicks: axis.ticks, timed: chart.timed, theme: this.theme, ...content });
    chart.plot.drawn = { range, ...content }; // what the canvas shows, for who can't look at it
  }

  shownLines(chart) {
    return (chart.lineItems ?? []).filter((line) => this.legends.shows(line));
  }

  saveCsv(chart) {
    const range = this.extent();
    const shown = this.shownLines(chart);
    const bars = () => chart.spans(this.store).lanes.map((lane) => ({ ...lane, bars: lane.bars.filter(({ state, from, to }) => to >= range[0] && from <= range[1] && shown.some(({ key }) => key === state)) }));
    save(`${chart.id}.csv`, chart.lanes ? eventsCsv(this.eventsWithin(...range)) : chart.spans ? barsCsv(bars()) : linesCsv(this.store, shown, ...range));
  }

  savePng(chart) {
    const items = chart.lanes
      ? LANES.map((lane) => ({ name: CATEGORIES[lane].name, colour: this.theme[lane] }))
      : this.shownLines(chart).slice(0, MAX_LINES).map((line) => ({ name: line.name, dash: line.dash, colour: this.colour(line) }));
    const title = [this.store.document.scenario, chart.title, chart.unit].filter(Boolean).join(" · ");
    savePng(`${chart.id}.png`, chart.canvas, { title, items, range: this.extent().map(clock).join(" – ") }, this.theme);
  }

  describe(chart, range, inWords) {
    const now = performance.now();
    if (chart.describedRange === range.join() && now - chart.describedAt < DESCRIBE_MS) return;
    chart.describedAt = now;
    chart.describedRange = range.join();
    setText(chart.text, inWords());
  }

  margins() {
    return { left: MARGIN.left * this.theme.unit, right: MARGIN.right * this.theme.unit };
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

function laneHeight(lane) {
  return LANES.length - 1 - LANES.indexOf(lane);
}

function laneTicks() {
  return LANES.map((lane) => ({ at: laneHeight(lane), text: CATEGORIES[lane].short }));
}

// A large screen gets taller charts; the lanes of events have nothing to gain from it.
function heightOf(chart, unit) {
  const factor = !chart.lanes && !chart.spans && matchMedia("(min-width: 1560px) and (min-height: 1100px)").matches ? 1.35 : 1;
  return Math.round((chart.height * factor + (chart.timed ? TIME_LABELS : 0)) * unit);
}

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    unit: Number.parseFloat(style.fontSize) / 16, // sizes follow the text's, which grows with the screen
    font: getComputedStyle(document.body).fontFamily, surface: read("surface"), muted: read("ink-3"), line: read("line"), grid: read("grid"),
    series: [1, 2, 3, 4, 5, 6, 7, 8].map((index) => read(`series-${index}`)),
    target: read("ink-2"), pending: read("pending"), running: read("series-1"), fine: read("fine"), load: read("load"), scaling: read("scaling"),
    pods: read("pods"), nodes: read("nodes"), warning: read("warning"),
  };
}

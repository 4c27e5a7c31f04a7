// The timeline of a load: a chart for each hop and unit, the Gantt picture of what was in which state, and the events.
import { byId } from "./dom.js";
import { showFinished } from "./finished.js";
import { shortName } from "./format.js";
import { RunStore } from "./store.js";

const HOPS = {
  load: { title: "Load", height: 110, style: { fill: true } },
  latency: { title: "Latency", height: 130, style: {} },
  gpu: { title: "GPU", height: 130, style: {} },
  metric: { title: "Served metric", height: 110, style: { step: true } },
  hpa: { title: "What the HPA sees", height: 110, style: { step: true } },
  replicas: { title: "Replicas", height: 110, style: { step: true, fill: true }, whole: true },
  nodes: { title: "Nodes", height: 90, style: { step: true, fill: true }, whole: true },
};
const PLANS = /\b(target|wanted|desired|planned|total)$/; // drawn dashed: what was meant, beside what was
const STATE_ROLES = { pending: "pending", running: "running", done: "fine", succeeded: "fine", failed: "warning" };
const MOST_ROWS = 400;
const LABEL = 10; // letters beside a row

// Seconds from the start; each track has times of its own.
class TimelineStore extends RunStore {
  constructor(run) {
    const seconds = (ms) => (ms - run.startedMs) / 1000;
    const events = run.marks.map(({ atMs, kind, object, text }) => ({ t: seconds(atMs), kind, object, reason: text }));
    const tracks = run.tracks.map(({ points }, index) => [`track/${index}`, { t: points.map(([ms]) => seconds(ms)), values: points.map(([, value]) => value) }]);
    const lanes = lanesOf(run.spans, seconds);
    const counts = statesOf(run.spans).map((state) => [`state/${state}`, countsOf(lanes, `state/${state}`, seconds(run.endedMs))]);
    const found = new Map([...tracks, ...counts]);
    const times = [...new Set([...found.values()].flatMap(({ t }) => t))].sort((a, b) => a - b);
    super({ series: { t: times }, events: events.sort((a, b) => a.t - b.t), summary: { duration: seconds(run.endedMs) } });
    this.found = found;
    this.lanes = lanes;
  }

  points(key) {
    return this.found.get(key);
  }
}

function lanesOf(spans, seconds) {
  const lanes = new Map();
  for (const { lane, state, fromMs, toMs } of spans) {
    if (!lanes.has(lane)) lanes.set(lane, []);
    lanes.get(lane).push({ state: `state/${state}`, from: seconds(fromMs), to: seconds(toMs) });
  }
  const shared = sharedStart([...lanes.keys()]);
  return [...lanes].map(([full, bars]) => ({ full, name: shortName(shared ? `…${full.slice(shared)}` : full, LABEL), bars }));
}

// How many letters all names begin with, where one is too long to stand beside its row.
function sharedStart(names) {
  if (names.length < 2 || Math.max(...names.map((name) => name.length)) <= LABEL) return 0;
  let shared = 0;
  while (names.every((name) => name.length > shared + 1 && name[shared] === names[0][shared])) shared += 1;
  return shared;
}

function statesOf(spans) {
  return [...new Set(spans.map(({ state }) => state))];
}

// How many rows are in a state, from each change on: the legend's values. What lasts to the end still counts there.
function countsOf(lanes, key, end) {
  const bars = lanes.flatMap((lane) => lane.bars).filter(({ state }) => state === key);
  const changes = bars.flatMap(({ from, to }) => to < end ? [[from, 1], [to, -1]] : [[from, 1]]).sort(([a], [b]) => a - b);
  const t = [];
  const values = [];
  let count = 0;
  for (const [at, change] of changes) {
    count += change;
    if (t.at(-1) === at) values[values.length - 1] = count;
    else {
      t.push(at);
      values.push(count);
    }
  }
  return { t, values };
}

function chartsOf(run, store) {
  const charts = [{ id: "events", title: "Events", height: 82, lanes: true, timed: true, optional: true }];
  for (const [hop, { title, height, style, whole }] of Object.entries(HOPS)) {
    const tracks = run.tracks.map((track, index) => ({ ...track, key: `track/${index}` })).filter((track) => track.hop === hop);
    for (const unit of new Set(tracks.map((track) => track.unit))) {
      const lines = tracks.filter((track) => track.unit === unit).map(({ key, name }, colour) => ({
        key, full: name, name: shortName(name), colour, ...(PLANS.test(name) ? { step: style.step, dash: [5, 4] } : style),
      }));
      charts.push({ id: `${hop}-${charts.length}`, title, unit, height, whole, tops: unit === "%" ? [20, 40, 60, 100] : undefined, lines: () => lines });
    }
  }
  if (run.spans.length > 0) charts.push(spansChart(run, store));
  charts.at(-1).timed = true;
  return charts;
}

function spansChart(run, store) {
  const lanes = store.lanes.slice(0, MOST_ROWS);
  const row = lanes.length <= 60 ? 17 : lanes.length <= 150 ? 9 : 5;
  const every = Math.ceil(13 / row); // rows from one label to the next
  const ticks = lanes.map(({ name }, index) => ({ at: lanes.length - 1 - index, text: name })).filter((_, index) => index % every === 0);
  const axis = { range: [-0.5, lanes.length - 0.5], ticks };
  const states = statesOf(run.spans).map((state, colour) => ({ key: `state/${state}`, name: state, full: state, colour, role: STATE_ROLES[state] }));
  const beyond = store.lanes.length - lanes.length;
  const unit = beyond > 0 ? `the first ${lanes.length} of ${store.lanes.length}` : "";
  return { id: "spans", title: "Gantt", unit, height: lanes.length * row + 14, spans: () => ({ lanes, axis }), lines: () => states };
}

const run = JSON.parse(byId("run").textContent);
const store = new TimelineStore(run);
byId("events-panel").hidden = run.marks.length === 0;
byId("page").classList.toggle("wide", run.marks.length === 0);
showFinished(store, chartsOf(run, store));

// The live page: follows one run over a stream and shows it as numbers, charts, cards and words.
import { ChartStack } from "./charts.js";
import { drawControls, whenOrdered } from "./controls.js";
import { byId, element, keepTallest, keyed, setAttribute, setText } from "./dom.js";
import { EventList } from "./events.js";
import { readFragment, writeFragment, writeRange } from "./fragment.js";
import { clock, isNumber, number, useWallClock } from "./format.js";
import { drawLags } from "./lags.js";
import { CHARTS } from "./lines.js";
import { GpuMap } from "./map.js";
import { drawPanels } from "./panels.js";
import { RunStore } from "./store.js";
import { drawTiles, gpusOf } from "./tiles.js";
import { WhatIf } from "./whatif.js";
import { WorkloadTable } from "./workloads.js";

const MOST_AGENTS = 3; // the others are one link
const RETRY_MS = 2000;
const FOLLOWED_SECONDS = 1800;
const MOST_CARDS = 12; // GPUs; more of them are a map
const PANELS = ["loop", "total-panel", "hpa-panel", "gpu-panel", "job-panel", "pod-panel"];

let store;
let stack;
let events;
let state = null;
let focused = null;
let map = null;
let table = null;
let whatIf = null;
let clockBase = null;
let resyncing = false;

// ---- following the run

async function start() {
  try {
    store = new RunStore(await fetchDocument());
  } catch {
    setStatus("offline", "server doesn't answer");
    setTimeout(start, RETRY_MS);
    return;
  }
  if (isOfCluster()) {
    useWallClock();
    store.focus = "";
    byId("addresses").parentElement.hidden = true;
    setText(byId("total-title"), "In use");
    if (store.document.whatIf) whatIf = new WhatIf(byId("what-if"));
    table = new WorkloadTable(byId("workload-table"), focusOn);
  }
  const charts = store.document.machine ? machineCharts() : CHARTS;
  drawHeader();
  const { window = FOLLOWED_SECONDS, zoom = null, words, hidden, workload } = readFragment();
  focused = workload ?? null;
  stack = new ChartStack(byId("charts"), store, {
    charts, window, zoom, onEvent: (event) => events.reveal(event), onRange: (range) => writeRange(range, FOLLOWED_SECONDS),
  });
  events = new EventList(byId("events"), store, {
    words, hidden,
    onPick: (event) => stack.showTime(event.t),
    onFilter: (filter) => {
      stack.setMarks(filter.shown);
      writeFragment({ words: filter.words, hide: filter.hidden.join(",") });
    },
  });
  addEventListener("hashchange", followAddress);
  addEventListener("resize", () => PANELS.forEach((id) => (byId(id).style.minHeight = "")));
  setInterval(tick, 200);
  follow();
}

// A link pasted into the address shows its times and events; a jump such as "#charts" changes nothing.
function followAddress() {
  const { window, zoom, words, hidden, workload } = readFragment();
  if (workload !== undefined) focusOn(workload);
  if (window !== undefined) stack.setWindow(window);
  if (zoom) stack.setZoom(zoom);
  if (words !== undefined || hidden) events.setFilter(words ?? "", hidden ?? []);
}

// GPUs without a cluster have no pods, nodes and events: their use is all there is to see.
function machineCharts() {
  byId("loop").hidden = true;
  byId("events").parentElement.hidden = true;
  return CHARTS.filter(({ id }) => id === "utilisation").map((chart) => ({ ...chart, height: 320, timed: true }));
}

// A cluster's times are those of the day; of its workloads one is looked at, as their signals differ.
function isOfCluster() {
  return store.document.clock === "wall";
}

function focusOn(name) {
  focused = name;
  writeFragment({ workload: name });
  drawState(state);
}

async function fetchDocument() {
  const response = await fetch("/ui/document", { cache: "no-store" });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

function follow() {
  const stream = new EventSource(`/ui/stream?${new URLSearchParams(store.totals())}`);
  let interrupted = false;
  stream.onopen = () => {
    if (interrupted) resync(); // the server may have started another run meanwhile
    interrupted = false;
  };
  stream.onmessage = (message) => receive(JSON.parse(message.data));
  stream.onerror = () => {
    interrupted = true;
    setStatus("offline", "reconnecting");
    if (stream.readyState === EventSource.CLOSED) setTimeout(restart, RETRY_MS);
  };
}

async function restart() {
  await resync();
  follow();
}

async function resync() {
  if (resyncing) return;
  resyncing = true;
  try {
    store.replace(await fetchDocument());
  } catch {
    return; // the stream's own retry comes back here
  } finally {
    resyncing = false;
  }
  drawHeader();
  events.refresh();
  stack.refresh();
}

function receive({ state: newState, since }) {
  const before = store.totals();
  if (!store.append(since)) {
    resync();
    return;
  }
  drawState(newState);
  if (since.t.length > 0 || store.totals().events > before.events) stack.follow();
  if (store.totals().events > before.events) events.refresh();
}

// ---- header

function drawHeader() {
  const { scenario, description } = store.document;
  document.title = `${scenario} · gpuscale`;
  setText(byId("scenario"), scenario ?? "");
  setText(byId("description"), description ?? "");
  byId("description").title = description ?? "";
}

function setStatus(status, text) {
  setAttribute(byId("status"), "data-status", status);
  setText(byId("status"), text);
  if (status !== "running") clockBase = null;
}

// Between updates the clock runs on at the run's own speed.
function tick() {
  if (clockBase === null) return;
  const passed = Math.min(2, (performance.now() - clockBase.at) / 1000);
  setText(byId("clock"), clock(clockBase.t + passed * clockBase.speed));
}

function drawTime() {
  const speed = isNumber(state.speed) && !state.paused ? state.speed : null;
  setText(byId("fault"), state.fault ? `No new picture since ${clock(state.t)}: ${state.fault}` : "");
  byId("fault").hidden = !state.fault;
  if (state.fault) setStatus("offline", "no new picture");
  else if (state.paused) setStatus("paused", "paused");
  else if (state.running) setStatus("running", isOfCluster() ? "as of" : "running");
  else setStatus("ended", "ended");
  setText(byId("clock"), clock(state.t));
  clockBase = state.running && speed ? { t: state.t, speed, at: performance.now() } : null;
}

function drawAddresses({ prometheus, metricsApi, services = {}, nodeAgents = {} }) {
  const agents = Object.entries(nodeAgents);
  const shown = agents.length > MOST_AGENTS + 1 ? agents.slice(0, MOST_AGENTS) : agents;
  const others = agents.length - shown.length;
  const items = [
    ...Object.entries(services),
    ["Prometheus API", prometheus],
    ["Metrics API", metricsApi],
    ...shown,
    ...(others ? [[`${others} more node agents`, `${prometheus}/api/v1/targets`]] : []),
  ].filter(([, url]) => url);
  keyed(byId("addresses"), items, ([name]) => name,
    ([name]) => element("li", {}, element("span", {}, name), element("a", { target: "_blank", rel: "noopener" })),
    (item, [, url]) => drawLink(item.querySelector("a"), url));
}

function drawLink(link, url) {
  setText(link, url.replace(/^https?:\/\//, ""));
  setAttribute(link, "href", /^https?:\/\//.test(url) ? url : null);
}

// ---- the loop as it stands now

function drawState(newState) {
  state = newState;
  drawTime();
  drawAddresses(state.addresses ?? {});
  drawFocus();
  drawTiles(state, focused);
  drawControls(state);
  drawLags(state);
  drawMap();
  drawWorkloads();
  drawPanels(state, isOfCluster() ? focused : null);
  for (const id of PANELS) keepTallest(byId(id));
}

function drawFocus() {
  const names = state.workloads.map((workload) => workload.name);
  if (!names.includes(focused)) focused = names[0] ?? null;
  byId("focus").hidden = names.length < 2;
  keyed(byId("focus-choice"), names, (name) => name, (name) => element("option", { value: name }, name), () => {});
  byId("focus-choice").value = focused ?? "";
  if (!isOfCluster() || store.focus === (focused ?? "")) return;
  store.focus = focused ?? "";
  stack.refresh();
}

function drawMap() {
  const count = gpusOf(state).length;
  const isMap = count > MOST_CARDS;
  byId("map-panel").hidden = !isMap;
  byId("gpu-panel").hidden = isMap;
  if (!isMap) return;
  setText(byId("map-note"), `${number(count)} on ${number(state.nodes.length)} nodes`);
  map ??= new GpuMap(byId("map"));
  map.update(state.nodes);
}

function drawWorkloads() {
  byId("workload-panel").hidden = table === null || state.hpas.length === 0;
  table?.update(state, focused);
  const hpa = state.hpas.find(({ workload }) => workload === focused);
  byId("what-if-panel").hidden = whatIf === null || !hpa;
  if (hpa) whatIf?.update(hpa);
}

byId("focus-choice").addEventListener("change", (event) => focusOn(event.target.value));
whenOrdered(drawState);
start();

// The live page: follows one run over a stream and shows it as numbers, charts, cards and words.
import { ChartStack } from "./charts.js";
import { byId, element, keepTallest, keyed, part, setAttribute, setText } from "./dom.js";
import { EventList } from "./events.js";
import { readFragment, writeFragment, writeRange } from "./fragment.js";
import { NO_DATA, age, amount, clock, isNumber, memory, number, podName, shortName, shortPod, withUnit } from "./format.js";
import { RunStore } from "./store.js";

const RETRY_MS = 2000;
const FOLLOWED_SECONDS = 1800;
const PANELS = ["loop", "total-panel", "hpa-panel", "gpu-panel", "job-panel", "pod-panel"];

let store;
let stack;
let events;
let state = null;
let focused = null;
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
  drawHeader();
  const { window = FOLLOWED_SECONDS, zoom = null, words, hidden } = readFragment();
  stack = new ChartStack(byId("charts"), store, {
    window, zoom, onEvent: (event) => events.reveal(event), onRange: (range) => writeRange(range, FOLLOWED_SECONDS),
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
  const { window, zoom, words, hidden } = readFragment();
  if (window !== undefined) stack.setWindow(window);
  if (zoom) stack.setZoom(zoom);
  if (words !== undefined || hidden) events.setFilter(words ?? "", hidden ?? []);
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
  setText(byId("speed"), isNumber(state.speed) ? `${number(state.speed)}×` : "");
  byId("speed").title = `One second here is ${number(state.speed)} s of the scenario`;
  if (state.running) setStatus("running", "running");
  else setStatus("ended", "ended");
  setText(byId("clock"), clock(state.t));
  clockBase = state.running ? { t: state.t, speed: state.speed, at: performance.now() } : null;
}

function drawAddresses({ prometheus, metricsApi, nodeAgents = {} }) {
  const items = [
    ["Prometheus API", prometheus],
    ["Metrics API", metricsApi],
    ...Object.entries(nodeAgents).map(([node, url]) => [node, url]),
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
  drawLoop();
  drawLoads();
  drawTotals();
  drawHpas();
  drawNodes();
  drawJobs();
  drawPods();
  for (const id of PANELS) keepTallest(byId(id));
}

function drawFocus() {
  const names = state.workloads.map((workload) => workload.name);
  if (!names.includes(focused)) focused = names[0] ?? null;
  byId("focus").hidden = names.length < 2;
  keyed(byId("focus-choice"), names, (name) => name, (name) => element("option", { value: name }, name), () => {});
  byId("focus-choice").value = focused ?? "";
}

function stage(name) {
  return document.querySelector(`[data-stage="${name}"]`);
}

function drawStage(name, values, level = "plain") {
  const cell = stage(name);
  setAttribute(cell, "data-level", level);
  for (const [key, text] of Object.entries(values)) setText(part(cell, key), text || "\u00a0");
}

function drawLoop() {
  const workload = state.workloads.find(({ name }) => name === focused);
  const hpa = state.hpas.find(({ reference }) => reference?.endsWith(`/${focused}`)) ?? state.hpas[0];
  drawLoadStage(workload);
  drawGpuStage();
  drawValueStage(hpa);
  drawReplicaStage(workload, hpa);
  drawPendingStage(workload);
  drawNodeStage();
}

function drawLoadStage(workload) {
  if (!workload) {
    const { total, active, completed, workloads = [] } = state.jobs ?? {};
    const waiting = workloads.reduce((sum, { pending }) => sum + pending, 0);
    drawStage("load", { value: number(completed), unit: `of ${number(total)} jobs completed`, note: total ? `${number(active)} running · ${number(waiting)} pending` : "no workload" });
    return;
  }
  const note = workload.mode === "manual" ? "set by hand" : "follows the scenario";
  const queue = workload.queue ? ` · ${number(workload.queue)} waiting` : "";
  drawStage("load", { value: number(workload.rate), unit: "requests/s", note: note + queue });
}

function allGpus() {
  return state.nodes.flatMap((node) => node.gpus);
}

function drawGpuStage() {
  const gpus = allGpus();
  const measured = gpus.map((gpu) => gpu.util).filter(isNumber);
  const mean = measured.length ? measured.reduce((sum, util) => sum + util, 0) / measured.length : null;
  const used = gpus.filter((gpu) => gpu.pod).length;
  const silent = gpus.length - measured.length;
  const note = `${used} of ${gpus.length} in use${silent ? ` · ${silent} without data` : ""}`;
  drawStage("gpus", { value: withUnit(mean, "%"), note });
}

function drawValueStage(hpa) {
  const metrics = hpa?.metrics ?? [];
  const { value, target, ratio, unit } = metrics[0] ?? {};
  const share = isNumber(ratio) ? `${ratio < 1000 ? Number(ratio.toPrecision(3)) : number(ratio)} times the target` : isNumber(value) ? "" : "no value";
  const note = !hpa ? "no HPA" : metrics.length === 0 ? "no metric" : metrics.length > 1 ? `${share || "no ratio"} · first of ${metrics.length} metrics` : share;
  drawStage("value", {
    value: isNumber(value) ? amount(value, unit) : metrics.length ? "unknown" : NO_DATA,
    target: isNumber(target) ? `target ${amount(target, unit)}` : "",
    note,
  }, !isNumber(ratio) ? "quiet" : ratio > 1.1 ? "high" : "plain");
}

function drawReplicaStage(workload, hpa) {
  if (!workload) {
    const running = state.pods.filter(({ phase }) => phase === "Running").length;
    drawStage("replicas", { value: number(running), wanted: running === 1 ? "pod running" : "pods running", note: "of jobs" });
    return;
  }
  const wanted = hpa ? `ready, ${number(hpa.desired)} wanted` : "ready";
  const note = hpa ? `between ${number(hpa.min)} and ${number(hpa.max)}` : "";
  drawStage("replicas", { value: number(workload.ready), wanted, note }, hpa && hpa.desired !== workload.ready ? "moving" : "plain");
}

function drawPendingStage(workload) {
  const count = workload ? workload.pending : state.pods.filter(({ phase }) => phase === "Pending").length;
  drawStage("pending", { value: number(count), unit: count === 1 ? "pod" : "pods", note: count > 0 ? "waiting for a GPU or starting" : "none waiting" },
    count > 0 ? "high" : "plain");
}

function drawNodeStage() {
  const ready = state.nodes.filter((node) => node.ready).length;
  const coming = state.nodes.length - ready;
  const pools = new Set(state.nodes.map((node) => node.pool)).size;
  drawStage("nodes", { value: number(ready), total: `ready of ${state.nodes.length}`, note: coming ? `${coming} not ready` : `${pools} ${pools === 1 ? "pool" : "pools"}` },
    coming ? "moving" : "plain");
}

// ---- load

function drawLoads() {
  const driven = state.workloads.filter((workload) => workload.steps?.length);
  byId("load-panel").hidden = driven.length === 0;
  keyed(byId("loads"), driven, ({ name }) => name, createLoad, updateLoad);
}

function createLoad({ name }) {
  return element("div", { class: "load" },
    element("p", { class: "load-name" }, element("span", {}, name), element("span", { "data-part": "now" })),
    element("div", { class: "segments", role: "group", "aria-label": `Load of ${name}`, "data-part": "steps" }),
    element("button", { type: "button", class: "follow", "data-part": "follow", onclick: () => sendLoad(name, null) }, "Follow scenario"));
}

function updateLoad(node, workload) {
  setText(part(node, "now"), `${number(workload.rate)} requests/s`);
  keyed(part(node, "steps"), workload.steps, (step) => `${step.label} ${step.rate}`,
    (step) => element("button", { type: "button", title: `${number(step.rate)} requests/s`, onclick: () => sendLoad(workload.name, step.rate) }, step.label),
    (button, step) => setAttribute(button, "aria-pressed", workload.mode === "manual" && workload.rate === step.rate));
  const follows = workload.mode === "scenario";
  setAttribute(part(node, "follow"), "aria-pressed", follows);
  setText(part(node, "follow"), follows ? "Following the scenario" : `Follow scenario (${number(workload.scenarioRate)} requests/s now)`);
}

async function sendLoad(workload, rate) {
  say("sending…", "busy");
  try {
    const body = JSON.stringify({ workload, rate });
    const response = await fetch("/ui/load", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    drawState(answer);
    say(rate === null ? `${workload} follows the scenario again` : `${workload} now gets ${number(rate)} requests/s`, "done");
  } catch (error) {
    say(`The load was not changed: ${error.message}`, "failed");
  }
}

function say(text, level) {
  setText(byId("load-message"), text);
  setAttribute(byId("load-message"), "data-level", level);
}

// ---- HPAs in words

function drawHpas() {
  byId("hpa-panel").hidden = state.hpas.length === 0;
  keyed(byId("hpas"), state.hpas, ({ name }) => name, createHpa, updateHpa);
}

function createHpa({ name }) {
  return element("article", { class: "hpa" },
    element("h3", {}, name, element("span", { class: "unit", "data-part": "reference" })),
    element("dl", { class: "facts", "data-part": "facts" }),
    element("ul", { class: "explanation", "data-part": "explanation" }),
    element("ul", { class: "conditions", "data-part": "conditions", "aria-label": "Conditions" }));
}

function updateHpa(node, hpa) {
  setText(part(node, "reference"), hpa.reference ?? "");
  const facts = [["Targets", hpa.targets], ["Min", number(hpa.min)], ["Max", number(hpa.max)], ["Current", number(hpa.current)], ["Desired", number(hpa.desired)]];
  keyed(part(node, "facts"), facts, ([term]) => term,
    ([term]) => element("div", {}, element("dt", {}, term), element("dd", {})),
    (fact, [, text]) => setText(fact.lastChild, text ?? NO_DATA));
  const lines = (hpa.explanation ?? []).map((text, index) => ({ text, index }));
  keyed(part(node, "explanation"), lines, ({ index }) => String(index), () => element("li"), (line, { text }) => setText(line, text));
  keyed(part(node, "conditions"), hpa.conditions ?? [], ({ type }) => type, createCondition, updateCondition);
}

function createCondition({ type }) {
  return element("li", {}, element("span", { class: "condition-head" }, element("b", {}, type), element("span", { "data-part": "status" }),
    element("code", { "data-part": "reason" })), element("span", { "data-part": "message" }));
}

// ScalingLimited is the one condition where True is the news worth a second look.
function updateCondition(node, { type, status, reason, message }) {
  const fine = type === "ScalingLimited" ? status === "False" : status === "True";
  setAttribute(node, "data-level", fine ? "fine" : "notice");
  setText(part(node, "status"), status);
  setText(part(node, "reason"), reason ?? "");
  setText(part(node, "message"), message ?? "");
}

// ---- nodes, GPUs, pods

function drawNodes() {
  byId("nodes").classList.toggle("many", allGpus().length > 12);
  keyed(byId("nodes"), state.nodes, ({ name }) => name, createNode, updateNode);
}

function createNode({ name }) {
  return element("article", { class: "node" },
    element("h3", {}, name, element("span", { class: "unit", "data-part": "pool" }), element("span", { class: "node-state", "data-part": "state" })),
    element("p", { class: "gpu gpu-waiting", "data-part": "waiting" }, "no GPUs reported yet"),
    element("div", { class: "gpus", "data-part": "gpus" }));
}

function updateNode(node, { name, pool, ready, gpus }) {
  node.classList.toggle("wide", gpus.length > 1);
  setText(part(node, "pool"), pool);
  setText(part(node, "state"), ready ? "" : "not ready");
  part(node, "waiting").hidden = gpus.length > 0;
  keyed(part(node, "gpus"), gpus, ({ uuid, index }) => uuid ?? `${name}/${index}`, createGpu, updateGpu);
}

function createGpu({ index, uuid, model }) {
  const meter = (name, title) => element("div", { class: "meter", "data-part": name, role: "meter", "aria-label": title, "aria-valuemin": "0", "aria-valuemax": "100" }, element("i"));
  return element("div", { class: "gpu", title: `${model}\n${uuid}` },
    element("p", { class: "gpu-name" }, element("b", {}, `GPU ${index}`), element("span", {}, model ?? "")),
    element("p", { class: "gpu-util", "data-part": "util" }), meter("util-meter", "Utilisation"),
    element("p", { class: "gpu-row" }, element("span", {}, "Memory"), element("span", { "data-part": "memory" })), meter("memory-meter", "Memory"),
    element("p", { class: "gpu-row" }, element("span", { "data-part": "temperature" }), element("span", { "data-part": "power" })),
    element("p", { class: "gpu-pod", "data-part": "pod" }));
}

function updateGpu(node, gpu) {
  setText(part(node, "util"), isNumber(gpu.util) ? `${number(gpu.util)}%` : "no data");
  setAttribute(part(node, "util"), "data-level", isNumber(gpu.util) ? "plain" : "quiet");
  fillMeter(part(node, "util-meter"), gpu.util);
  fillMeter(part(node, "memory-meter"), isNumber(gpu.memoryUsedMib) ? (100 * gpu.memoryUsedMib) / gpu.memoryTotalMib : null);
  setText(part(node, "memory"), memory(gpu.memoryUsedMib, gpu.memoryTotalMib));
  setText(part(node, "temperature"), withUnit(gpu.temperatureC, "°C"));
  setText(part(node, "power"), withUnit(gpu.powerW, "W"));
  setText(part(node, "pod"), gpu.pod ? shortPod(podName(gpu.pod)) : "free");
  setAttribute(part(node, "pod"), "title", gpu.pod ?? null);
  setAttribute(part(node, "pod"), "data-level", gpu.pod ? "plain" : "quiet");
}

function fillMeter(meter, percent) {
  const share = isNumber(percent) ? Math.min(100, Math.max(0, percent)) : 0;
  meter.firstChild.style.width = `${share}%`;
  setAttribute(meter, "aria-valuenow", isNumber(percent) ? Math.round(percent) : null);
  setAttribute(meter, "aria-valuetext", isNumber(percent) ? null : "no data");
}

function drawTotals() {
  const figures = state.figures ?? [];
  byId("total-panel").hidden = figures.length === 0;
  keyed(byId("totals"), figures, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd", {})),
    (figure, [, text]) => setText(figure.lastChild, text));
}

function drawJobs() {
  const { jobs } = state;
  byId("job-panel").hidden = !jobs?.total;
  if (!jobs?.total) return;
  const hidden = jobs.total - (jobs.items?.length ?? 0);
  setText(byId("jobs"), `${jobs.completed} of ${jobs.total} completed, ${jobs.active} running`);
  keyed(byId("job-table").tBodies[0], jobs.items ?? [], ({ namespace, name }) => `${namespace}/${name}`, createJob, updateJob);
  setText(byId("jobs-more"), hidden > 0 ? `${hidden} more are not listed: finished, or not yet submitted` : "");
}

function createJob({ name, namespace }) {
  const cell = (key, title) => element("td", { "data-part": key, "data-title": title, class: "number" });
  return element("tr", {}, element("th", { scope: "row", title: `${namespace}/${name}` }, shortName(podName(`${namespace}/${name}`), 20)),
    cell("completions", "Done"), cell("running", "Running"), cell("pending", "Pending"), cell("age", "Age"));
}

function updateJob(row, job) {
  setText(part(row, "completions"), `${number(job.succeeded)}/${number(job.completions)}`);
  setText(part(row, "running"), number(job.running));
  setText(part(row, "pending"), number(job.pending));
  setText(part(row, "age"), age(job.age));
  setAttribute(row, "data-level", job.pending > 0 ? "notice" : job.succeeded >= job.completions ? "done" : "plain");
}

function drawPods() {
  keyed(byId("pods").tBodies[0], state.pods, ({ namespace, name }) => `${namespace}/${name}`, createPod, updatePod);
}

function createPod({ name, namespace }) {
  const cell = (key, title) => element("td", { "data-part": key, "data-title": title });
  return element("tr", {}, element("th", { scope: "row", title: `${namespace}/${name}` }, shortName(podName(`${namespace}/${name}`), 24)),
    cell("phase", "Phase"), cell("node", "Node"), cell("age", "Age"));
}

function updatePod(row, pod) {
  setText(part(row, "phase"), pod.phase === "Running" && !pod.ready ? "Running, not ready" : pod.phase);
  setAttribute(row, "data-level", pod.phase === "Pending" || pod.phase === "Failed" ? "notice" : "plain");
  setText(part(row, "node"), pod.node ? shortName(pod.node, 18) : NO_DATA);
  setAttribute(part(row, "node"), "title", pod.node ?? null);
  setText(part(row, "age"), isNumber(pod.age) ? age(pod.age) : String(pod.age ?? NO_DATA));
}

byId("focus-choice").addEventListener("change", (event) => {
  focused = event.target.value;
  drawLoop();
});
start();

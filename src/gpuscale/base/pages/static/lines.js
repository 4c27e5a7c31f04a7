// What each chart of a run shows: which series become lines, their names and how they are drawn.
import { podName, shortName, shortPod } from "./format.js";

export const LANES = ["load", "scaling", "pods", "nodes", "warning"];

// Heights are for text of the usual size. `lines` turns the names of series into lines to draw. A chart without
// any is left out, unless the part of the summary that it `expects` says that there will be some.
export const CHARTS = [
  { id: "events", title: "Events", height: 82, lanes: true, timed: true },
  { id: "load", title: "Load", unit: "requests/s", height: 92, lines: loadLines, expects: "requests" },
  { id: "jobs", title: "Jobs", unit: "completions", height: 150, whole: true, lines: jobLines, expects: "jobs" },
  { id: "queue", title: "Waiting", unit: "requests", height: 92, least: 1, lines: queueLines },
  { id: "utilisation", title: "GPU utilisation", unit: "%", height: 150, tops: [20, 40, 60, 100], lines: utilisationLines },
  { id: "value", title: "What the HPA sees", unit: "value and target of the metric that decides", height: 110, lines: valueLines, expects: "hpas" },
  { id: "replicas", title: "Replicas", unit: "pods", height: 110, whole: true, lines: replicaLines },
  { id: "nodes", title: "Nodes", unit: "nodes", height: 90, whole: true, lines: nodeLines, timed: true },
];

const DASHED = { step: true, dash: [5, 4] };
const DOTTED = { step: true, dash: [1, 3] };
const FILLED = { step: true, fill: true };

const OF_WORKLOADS = ["hpa", "replicas"];

// One entry per name, of the workload that is looked at where it is one; where there is but one, its role says enough.
function parts(store, prefix, suffix = "") {
  const found = store
    .keys(`${prefix}/`)
    .filter((key) => key.endsWith(suffix))
    .map((key) => ({ key, full: key.slice(prefix.length + 1, key.length - suffix.length) }))
    .filter(({ full }) => store.focus === null || full === store.focus || !OF_WORKLOADS.includes(prefix));
  return found.map((entry, i) => ({ ...entry, colour: i, only: found.length === 1 }));
}

function named({ key, full, colour, only }, role, style) {
  return { key, full: `${full} ${role}`, name: only ? role : `${shortName(full, 20)} ${role}`, colour, ...style };
}

function loadLines(store) {
  return parts(store, "load").map((entry) => ({ ...entry, name: shortName(entry.full), ...FILLED }));
}

// One group of Jobs has a colour for each state; several have a colour each, and dashes for the states.
function jobLines(store) {
  const state = (suffix, role, name, style) =>
    parts(store, "jobs", `/${suffix}`).map((entry) => named(entry, name, entry.only ? { ...FILLED, role } : style));
  return [
    ...state("pending", "pending", "pending", DASHED),
    ...state("running", "running", "running", { step: true }),
    ...state("succeeded", "fine", "done", DOTTED),
  ];
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
  const means = parts(store, "use").filter(({ full }) => full === store.focus || full === "all GPUs")
    .map((entry) => ({ ...entry, name: shortName(entry.full), dash: entry.full === store.focus ? undefined : DOTTED.dash }));
  return [...utilisationTargets(store), ...means, ...pods, ...gpus];
}

// A target above 100 is no percentage: it would only press the others down. Each has its own chart too.
// A cluster's signals are of all kinds.
function utilisationTargets(store) {
  if (store.focus !== null) return [];
  return targets(store).filter(({ key }) => !store.series.get(key).some((value) => value > 100));
}

function targets(store) {
  return parts(store, "hpa", "/target").map((entry) => ({ ...named(entry, "target", DASHED), role: "target" }));
}

function valueLines(store) {
  return [...parts(store, "hpa", "/value").map((entry) => named(entry, "value", { step: true })), ...targets(store)];
}

// Without a Deployment nothing has replicas: what Jobs wait for is in their own chart.
function replicaLines(store) {
  const lines = [
    ...parts(store, "replicas", "/ready").map((entry) => named(entry, "ready", FILLED)),
    ...parts(store, "replicas", "/pending").map((entry) => named(entry, "pending", { ...FILLED, role: "pending" })),
    ...parts(store, "hpa", "/desired").map((entry) => named(entry, "wanted", DASHED)),
    ...parts(store, "hpa", "/current").map((entry) => named(entry, "current", { ...DOTTED, off: true })),
  ];
  if (lines.length > 0 && store.series.has("pods/pending")) lines.push({ key: "pods/pending", name: "pending pods", role: "pending", ...FILLED });
  return lines;
}

function nodeLines(store) {
  return [
    ...parts(store, "nodes", "/ready").map((entry) => named(entry, "ready", FILLED)),
    ...parts(store, "nodes", "/total").map((entry) => named(entry, "total", DASHED)),
  ];
}

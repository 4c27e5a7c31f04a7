// The panels beside the charts: the run's figures, the HPAs in words, GPUs, Jobs and pods.
import { byId, element, keyed, part, setAttribute, setText } from "./dom.js";
import { NO_DATA, age, isNumber, memory, number, podName, shortName, shortPod, shortSelectors, withUnit } from "./format.js";
import { gpusOf } from "./tiles.js";

const MOST_CARDS = 12;

// `focused` is the one workload whose HPA is shown; null is all of them.
export function drawPanels(state, focused) {
  drawFigures(state);
  drawHpas(state, focused);
  if (gpusOf(state).length <= MOST_CARDS) drawNodes(state);
  drawJobs(state);
  drawPods(state);
  drawUnseen(state.unseen ?? []);
}

// ---- HPAs in words

function drawHpas(state, focused) {
  const shown = focused === null ? state.hpas : state.hpas.filter(({ workload }) => workload === focused);
  byId("hpa-panel").hidden = shown.length === 0;
  keyed(byId("hpas"), shown, ({ name }) => name, createHpa, updateHpa);
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
  const facts = [["Targets", hpa.targets], ["Min", number(hpa.min)], ["Max", number(hpa.max)], ["Current", number(hpa.current)], ["Desired", number(hpa.desired)],
    ...(isNumber(hpa.next) && hpa.next !== hpa.desired ? [["At the next sync", number(hpa.next)]] : [])];
  keyed(part(node, "facts"), facts, ([term]) => term,
    ([term]) => element("div", {}, element("dt", {}, term), element("dd", {})),
    (fact, [, text]) => setText(fact.lastChild, text ?? NO_DATA));
  const lines = (hpa.explanation ?? []).map((text, index) => ({ text, index }));
  keyed(part(node, "explanation"), lines, ({ index }) => String(index), () => element("li"), (line, { text }) => setControllerText(line, text));
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
  setControllerText(part(node, "message"), message ?? "");
}

// What the controller says, in short where Go's way of printing a selector is in it; the exact text is a click away.
function setControllerText(node, text) {
  if (node.dataset.exact === text) return;
  node.dataset.exact = text;
  const short = shortSelectors(text);
  const exact = short === text ? [] : [element("details", { class: "exact" }, element("summary", {}, "exact text"), element("code", {}, text))];
  node.replaceChildren(short, ...exact);
}

// ---- nodes, GPUs, pods

function drawNodes(state) {
  const silent = new Set((state.broken ?? []).filter(({ kind }) => kind === "agent").map(({ node }) => node));
  keyed(byId("nodes"), state.nodes, ({ name }) => name, createNode, (node, item) => updateNode(node, item, silent.has(item.name)));
}

function createNode({ name }) {
  return element("article", { class: "node" },
    element("h3", {}, name, element("span", { class: "unit", "data-part": "pool" }), element("span", { class: "node-state", "data-part": "state" })),
    element("p", { class: "gpu gpu-waiting", "data-part": "waiting" }, "no GPUs reported yet"),
    element("div", { class: "gpus", "data-part": "gpus" }));
}

function updateNode(node, { name, pool, ready, gpus }, isSilent) {
  node.classList.toggle("wide", gpus.length > 1);
  setText(part(node, "pool"), pool);
  setText(part(node, "state"), !ready ? "not ready" : isSilent ? "agent is down" : "");
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
    element("p", { class: "gpu-pod", "data-part": "pod" }), element("p", { class: "gpu-fault", "data-part": "faults" }));
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
  setText(part(node, "faults"), (gpu.faults ?? []).join(", "));
}

function fillMeter(meter, percent) {
  const share = isNumber(percent) ? Math.min(100, Math.max(0, percent)) : 0;
  meter.firstChild.style.width = `${share}%`;
  setAttribute(meter, "aria-valuenow", isNumber(percent) ? Math.round(percent) : null);
  setAttribute(meter, "aria-valuetext", isNumber(percent) ? null : "no data");
}

function drawFigures(state) {
  const figures = state.figures ?? [];
  byId("total-panel").hidden = figures.length === 0;
  keyed(byId("totals"), figures, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd", {})),
    (figure, [, text]) => setText(figure.lastChild, text));
}

function drawJobs(state) {
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

function drawUnseen(sentences) {
  byId("unseen-panel").hidden = sentences.length === 0;
  keyed(byId("unseen"), sentences, (text) => text, (text) => element("li", {}, text), () => {});
}

function drawPods(state) {
  byId("pod-panel").hidden = state.pods.length === 0;
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

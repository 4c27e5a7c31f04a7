// What a viewer can do to a live run: pause it, set its speed and its load, break a part and mend it. Where the server offers none of that, nothing is shown.
import { byId, element, keyed, part, setAttribute, setText } from "./dom.js";
import { clock, number } from "./format.js";

const SPEEDS = [1, 2, 5, 10, 20, 50, 100];

let drawAnswer = () => {};

// `draw` is called with the new state that an order is answered with.
export function whenOrdered(draw) {
  drawAnswer = draw;
}

export function drawControls(state) {
  drawPace(state);
  drawLoads(state);
  drawFaults(state);
  drawNext(state);
}

// ---- what comes after the scenario

function drawNext({ next }) {
  byId("save").hidden = next === undefined;
  byId("next-panel").hidden = !next?.length;
  keyed(byId("next"), next ?? [], ([, command]) => command,
    ([text, command]) => element("div", {}, element("dt", {}, text), element("dd", {}, element("code", {}, command))), () => {});
}

async function order(name, body, message, done, failed) {
  const say = (text, level) => {
    setText(message, text);
    setAttribute(message, "data-level", level);
  };
  say("sending…", "busy");
  try {
    const response = await fetch(`/ui/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    drawAnswer(answer);
    say(done, "done");
  } catch (error) {
    say(`${failed}: ${error.message}`, "failed");
  }
}

// ---- time

function drawPace({ speed, paused }) {
  byId("pace").hidden = paused === undefined;
  if (paused === undefined) return;
  setText(byId("pause"), paused ? "Resume" : "Pause");
  const speeds = [...new Set([...SPEEDS, speed])].sort((a, b) => a - b);
  keyed(byId("speed"), speeds, String, (each) => element("option", { value: each }, `${number(each)}×`), () => {});
  byId("speed").value = String(speed);
  byId("speed").title = `One second here is ${number(speed)} s of the scenario`;
}

function setPace(body, done) {
  order("pace", body, byId("pace-message"), done, "The pace was not changed");
}

byId("pause").addEventListener("click", () => {
  const paused = byId("pause").textContent === "Pause";
  setPace({ paused }, paused ? "Load, GPUs, HPA, pods and nodes stand still. Requests to the services wait, and are given up after two minutes." : "");
});
byId("speed").addEventListener("change", ({ target }) => setPace({ speed: Number(target.value) }, `One second here is now ${target.value} s of the scenario.`));

// ---- load

function drawLoads(state) {
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
  const { rate, received = 0, receivedRate } = workload;
  const real = received > 0 ? `, ${number(receivedRate)} of them real` : "";
  setText(part(node, "now"), `${number(rate)} requests/s${real}`);
  part(node, "now").title = received > 0 ? `${number(received)} real requests so far` : "";
  keyed(part(node, "steps"), workload.steps, (step) => `${step.label} ${step.rate}`,
    (step) => element("button", { type: "button", title: `${number(step.rate)} requests/s`, onclick: () => sendLoad(workload.name, step.rate) }, step.label),
    (button, step) => setAttribute(button, "aria-pressed", workload.mode === "manual" && workload.rate === step.rate));
  const follows = workload.mode === "scenario";
  setAttribute(part(node, "follow"), "aria-pressed", follows);
  setText(part(node, "follow"), follows ? "Following the scenario" : `Follow scenario (${number(workload.scenarioRate)} requests/s now)`);
}

function sendLoad(workload, rate) {
  const done = rate === null ? `${workload} follows the scenario again` : `${workload} now gets ${number(rate)} requests/s`;
  order("load", { workload, rate }, byId("load-message"), done, "The load was not changed");
}

// ---- faults

const KINDS = [["gpu", "a GPU"], ["agent", "a node agent"], ["node", "a node"], ["prometheus", "Prometheus"]];
const CONSEQUENCES = {
  gpu: "has fallen off the bus: no readings, its pod serves no more, and the node offers a GPU less",
  agent: "is down: its pods have no value, and the HPA takes each for one on target or idle, whichever changes less",
  node: "is gone, its pods with it; the node autoscaler brings another for the pods that wait",
  prometheus: "is down: no scrapes and no answers. An HPA without a value scales nothing",
};

let lastState = null;

function drawFaults(state) {
  lastState = state;
  byId("fault-panel").hidden = state.broken === undefined;
  if (state.broken === undefined) return;
  keyed(byId("fault-kind"), KINDS, ([kind]) => kind, ([kind, name]) => element("option", { value: kind }, name), () => {});
  const parts = partsOf(byId("fault-kind").value, state);
  byId("fault-part").hidden = byId("fault-kind").value === "prometheus";
  keyed(byId("fault-part"), parts, ({ node, gpu }) => `${node}/${gpu}`, (part) => element("option", { value: JSON.stringify(part) }, nameOf(part)), () => {});
  byId("fault-break").disabled = parts.length === 0;
  keyed(byId("broken"), state.broken, ({ kind, node, gpu }) => `${kind}/${node}/${gpu}`, createBroken, () => {});
}

function partsOf(kind, { nodes }) {
  if (kind === "prometheus") return [{ kind }];
  return nodes.flatMap(({ name, gpus }) => (kind === "gpu" ? gpus.map(({ index }) => ({ kind, node: name, gpu: index })) : [{ kind, node: name }]));
}

function nameOf({ kind, node, gpu }) {
  return { gpu: `GPU ${gpu} of ${node}`, agent: `The agent of ${node}`, node, prometheus: "Prometheus" }[kind];
}

function createBroken({ kind, node, gpu, since }) {
  const name = nameOf({ kind, node, gpu });
  return element("li", {}, element("span", {}, `${name}, since ${clock(since)}`),
    element("button", { type: "button", class: "quiet", "aria-label": `Mend ${name}`, onclick: () => setFault({ kind, node, gpu }, false) }, "Mend"));
}

function setFault(part, broken) {
  order("fault", { ...part, broken }, byId("fault-message"), broken ? `${nameOf(part)} ${CONSEQUENCES[part.kind]}.` : `${nameOf(part)} works again.`, "Nothing was changed");
}

byId("fault-kind").addEventListener("change", () => drawFaults(lastState));
byId("fault-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const kind = byId("fault-kind").value;
  setFault(kind === "prometheus" ? { kind } : JSON.parse(byId("fault-part").value), true);
});

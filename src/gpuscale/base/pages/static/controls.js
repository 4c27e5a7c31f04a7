// What a viewer can do to a live run: pause it, set its speed and its load. Where the server offers none of that, nothing is shown.
import { byId, element, keyed, part, setAttribute, setText } from "./dom.js";
import { number } from "./format.js";

const SPEEDS = [1, 2, 5, 10, 20, 50, 100];

let drawAnswer = () => {};

// `draw` is called with the new state that an order is answered with.
export function whenOrdered(draw) {
  drawAnswer = draw;
}

export function drawControls(state) {
  drawPace(state);
  drawLoads(state);
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
byId("speed").addEventListener("change", ({ target }) => setPace({ speed: Number(target.value) }, ""));

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

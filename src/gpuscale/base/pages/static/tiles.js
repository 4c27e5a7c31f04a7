// The loop as it stands now, in six tiles. All numbers come from the server as numbers; none is read out of a text.
import { part, setAttribute, setText } from "./dom.js";
import { NO_DATA, amount, isNumber, number, withUnit } from "./format.js";

function stage(name) {
  return document.querySelector(`[data-stage="${name}"]`);
}

function drawStage(name, values, level = "plain") {
  const cell = stage(name);
  setAttribute(cell, "data-level", level);
  for (const [key, text] of Object.entries(values)) setText(part(cell, key), text || "\u00a0");
}

export function drawTiles(state, focused) {
  const workload = state.workloads.find(({ name }) => name === focused);
  const hpa = state.hpas.find(({ workload: of }) => of === focused) ?? state.hpas[0];
  drawLoadStage(state, workload);
  drawGpuStage(state);
  drawValueStage(hpa);
  drawReplicaStage(state, workload, hpa);
  drawPendingStage(state, workload);
  drawNodeStage(state);
}

function drawLoadStage(state, workload) {
  if (workload && !isNumber(workload.rate)) {
    const above = state.hpas.filter(({ metrics }) => metrics[0]?.ratio > 1.1).length;
    const silent = state.hpas.filter(({ metrics }) => !isNumber(metrics[0]?.value)).length;
    const note = [above && `${above} above target`, silent && `${silent} without a value`].filter(Boolean).join(" · ");
    drawStage("load", { title: "Workloads", value: number(state.hpas.length), unit: "with an HPA", note: note || "all have values" }, silent ? "quiet" : "plain");
    return;
  }
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

export function gpusOf(state) {
  return state.nodes.flatMap((node) => node.gpus);
}

function drawGpuStage(state) {
  const gpus = gpusOf(state);
  const measured = gpus.map((gpu) => gpu.util).filter(isNumber);
  const mean = measured.length ? measured.reduce((sum, util) => sum + util, 0) / measured.length : null;
  const used = gpus.filter((gpu) => gpu.pod).length;
  const silent = gpus.length - measured.length;
  const faulty = gpus.filter((gpu) => gpu.faults?.length).length;
  const note = `${used} of ${gpus.length} in use${silent ? ` · ${silent} without data` : ""}${faulty ? ` · ${faulty} with a fault` : ""}`;
  drawStage("gpus", { value: withUnit(mean, "%"), note }, faulty ? "high" : "plain");
}

function drawValueStage(hpa) {
  const metrics = hpa?.metrics ?? [];
  const { value, target, ratio, unit, name, decides } = metrics.find(({ decides }) => decides) ?? metrics[0] ?? {};
  const share = isNumber(ratio) ? `${ratio < 1000 ? Number(ratio.toPrecision(3)) : number(ratio)} times the target` : isNumber(value) ? "" : "no value";
  const note = !hpa ? "no HPA" : metrics.length === 0 ? "no metric" : metrics.length > 1 ? `${share || "no ratio"} · ${decides ? `${name} decides, of` : "first of"} ${metrics.length} metrics` : share;
  drawStage("value", {
    value: isNumber(value) ? amount(value, unit) : metrics.length ? "unknown" : NO_DATA,
    target: isNumber(target) ? `target ${amount(target, unit)}` : "",
    note,
  }, !isNumber(ratio) ? "quiet" : ratio > 1.1 ? "high" : "plain");
}

function drawReplicaStage(state, workload, hpa) {
  if (!workload) {
    const running = state.pods.filter(({ phase }) => phase === "Running").length;
    drawStage("replicas", { value: number(running), wanted: running === 1 ? "pod running" : "pods running", note: "of jobs" });
    return;
  }
  const wanted = hpa ? `ready, ${number(hpa.desired)} wanted` : "ready";
  const note = hpa ? `between ${number(hpa.min)} and ${number(hpa.max)}` : "";
  drawStage("replicas", { value: number(workload.ready), wanted, note }, hpa && hpa.desired !== workload.ready ? "moving" : "plain");
}

function drawPendingStage(state, workload) {
  const count = workload ? workload.pending : state.pods.filter(({ phase }) => phase === "Pending").length;
  drawStage("pending", { value: number(count), unit: count === 1 ? "pod" : "pods", note: count > 0 ? "without a GPU, starting or not ready" : "none waiting" },
    count > 0 ? "high" : "plain");
}

function drawNodeStage(state) {
  const ready = state.nodes.filter((node) => node.ready).length;
  const coming = state.nodes.length - ready;
  const pools = new Set(state.nodes.map((node) => node.pool)).size;
  drawStage("nodes", { value: number(ready), total: `ready of ${state.nodes.length}`, note: coming ? `${coming} not ready` : `${pools} ${pools === 1 ? "pool" : "pools"}` },
    coming ? "moving" : "plain");
}

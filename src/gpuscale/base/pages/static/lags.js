// Where the time goes from a rise of the load to ready pods: the latest scale-out as a waterfall, and how long each hop takes.
import { byId, element, keyed, part, setText } from "./dom.js";
import { NO_DATA, clock, isNumber, number } from "./format.js";

export function drawLags({ lags }) {
  byId("lag-panel").hidden = !lags?.latest;
  if (!lags?.latest) return;
  const { workload, from, to, at, hops } = lags.latest;
  const whole = hops.at(-1)[2] || 1;
  setText(byId("lag-note"), `${workload}, ${from} to ${to} from ${clock(at)}`);
  const took = new Map([...hops, ["in all", 0, whole]].map(([name, start, end]) => [name, { start, end }]));
  const rows = lags.spread.map(([name, count, p50, p95]) => ({ name, count, p50, p95, ...took.get(name) }));
  keyed(byId("lag-table").tBodies[0], rows, ({ name }) => name, create, (row, hop) => update(row, hop, whole));
}

function create({ name }) {
  const cell = (key, title) => element("td", { class: "number", "data-part": key, "data-title": title });
  return element("tr", {}, element("th", { scope: "row" }, name),
    element("td", { class: "lag-bar", "aria-hidden": "true" }, element("i", { "data-part": "bar" })), cell("took", "This one"), cell("p50", "P50"), cell("p95", "P95"));
}

function update(row, { start, end, count, p50, p95 }, whole) {
  const seconds = (value) => (isNumber(value) ? `${number(value)} s` : NO_DATA);
  const bar = part(row, "bar");
  bar.style.marginLeft = `${(100 * (start ?? 0)) / whole}%`;
  bar.style.width = isNumber(end) ? `${(100 * (end - start)) / whole}%` : "0";
  setText(part(row, "took"), seconds(end - start));
  setText(part(row, "p50"), seconds(p50));
  setText(part(row, "p95"), seconds(p95));
  row.title = `${count} scale-outs had it`;
}

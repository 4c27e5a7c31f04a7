// The report of a finished run: its summary as tables, its charts, its events.
import { ChartStack } from "./charts.js";
import { byId, element } from "./dom.js";
import { EventList } from "./events.js";
import { NO_DATA, clock, isNumber, label, number } from "./format.js";
import { readFragment, writeFragment, writeRange } from "./fragment.js";
import { RunStore } from "./store.js";

function isTable(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

// Seconds read as a clock once they are minutes; the unit stands beside the number, never in it.
function figureOf(key, value) {
  if (value === null || value === undefined) return [NO_DATA, ""];
  if (key === "duration") return [clock(value), ""];
  if (/(Lag|Seconds|Time|Delay)(P\d+)?$/.test(key)) return [number(value), "s"];
  if (/Hours$/.test(key)) return [number(value), "h"];
  if (isNumber(value)) return [number(value), ""];
  return [String(value), ""];
}

function total([key, value]) {
  const [text, unit] = figureOf(key, value);
  return element("div", {}, element("dt", {}, label(key)), element("dd", {}, text, element("span", { class: "unit" }, unit)));
}

function table(key, rows) {
  const names = Object.keys(rows);
  const columns = [...new Set(names.flatMap((name) => Object.keys(rows[name])))];
  const head = element("tr", {}, element("th", { scope: "col" }, "Name"),
    ...columns.map((column) => element("th", { scope: "col", class: "number" }, label(column))));
  const body = names.map((name) => element("tr", {}, element("th", { scope: "row" }, name),
    ...columns.map((column) => element("td", { class: "number", "data-title": label(column) }, figureOf(column, rows[name][column]).join(" ").trim()))));
  return element("div", {}, element("h3", {}, label(key)),
    element("div", { class: "table-scroll" }, element("table", { class: "stacking" }, element("thead", {}, head), element("tbody", {}, ...body))));
}

function hasRows(value) {
  return isTable(value) && Object.keys(value).length > 0 && Object.values(value).every(isTable);
}

// A group of plain numbers joins the totals under both names.
function totalsOf([key, value]) {
  if (!isTable(value)) return [[key, value]];
  return Object.entries(value).filter(([, inner]) => !isTable(inner)).map(([name, inner]) => [`${key} ${name}`, inner]);
}

function drawSummary(root, summary) {
  const entries = Object.entries(summary);
  const totals = entries.flatMap(totalsOf);
  root.append(element("dl", { class: "totals" }, ...totals.map(total)));
  const tables = entries.filter(([, value]) => hasRows(value)).map(([key, rows]) => table(key, rows));
  root.append(element("div", { class: "tables" }, ...tables));
}

const run = JSON.parse(byId("run").textContent);
delete run.started; // a report is of a whole run, also where the run was live
const store = new RunStore(run);
drawSummary(byId("summary"), run.summary ?? {});
const { zoom, words, hidden } = readFragment();
const stack = new ChartStack(byId("charts"), store, {
  zoom, onEvent: (event) => events.reveal(event), onRange: (range) => writeRange(range, null),
});
const events = new EventList(byId("events"), store, {
  newestFirst: false, words, hidden,
  onPick: (event) => stack.showTime(event.t),
  onFilter: (filter) => {
    stack.setMarks(filter.shown);
    writeFragment({ words: filter.words, hide: filter.hidden.join(",") });
  },
});
addEventListener("hashchange", () => {
  const now = readFragment();
  if (now.zoom) stack.setZoom(now.zoom);
  if (now.words !== undefined || now.hidden) events.setFilter(now.words ?? "", now.hidden ?? []);
});

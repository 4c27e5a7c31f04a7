// The workloads of a cluster as a table: what each one's HPA sees and wants, and why.
import { element, keyed, part, setAttribute, setText } from "./dom.js";
import { NO_DATA, age, amount, isNumber, number, shortSelectors } from "./format.js";

const MOST = 200; // rows at once; the filter finds the others
const COLUMNS = [
  ["signal", "Signal"], ["value", "Value"], ["age", "Age"], ["target", "Target"], ["current", "Replicas"], ["wanted", "Wanted"],
  ["ready", "Ready"], ["pending", "Pending"], ["why", "Why"],
];
const WORDS = ["signal", "why"];

export class WorkloadTable {
  // `onFocus` hears of the workload that was chosen.
  constructor(root, onFocus) {
    this.onFocus = onFocus;
    this.search = element("input", { type: "search", placeholder: "Filter by word, e.g. a namespace", "aria-label": "Filter workloads by word", oninput: () => this.redraw() });
    this.body = element("tbody");
    const head = element("tr", {}, element("th", { scope: "col" }, "Workload"),
      ...COLUMNS.map(([key, title]) => element("th", { scope: "col", class: WORDS.includes(key) ? null : "number" }, title)));
    this.note = element("p", { class: "note", role: "status" });
    root.replaceChildren(this.search,
      element("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Rows of workloads" }, element("table", { class: "stacking workloads" }, element("thead", {}, head), this.body)),
      this.note);
  }

  update(state, focused) {
    this.state = state;
    this.focused = focused;
    this.redraw();
  }

  redraw() {
    const { hpas, workloads } = this.state;
    const pods = new Map(workloads.map((workload) => [workload.name, workload]));
    const words = this.search.value.trim().toLowerCase();
    const found = hpas.filter(({ name, reference, reason }) => `${name} ${reference} ${reason}`.toLowerCase().includes(words));
    this.search.hidden = hpas.length < 6;
    setText(this.note, found.length > MOST ? `${found.length - MOST} more: filter by word` : found.length === 0 ? "no workload has that word" : "");
    this.note.hidden = this.note.textContent === "";
    keyed(this.body, found.slice(0, MOST), ({ name }) => name, (hpa) => this.create(hpa), (row, hpa) => this.fill(row, hpa, pods.get(hpa.workload) ?? {}));
  }

  create({ name, workload }) {
    return element("tr", {},
      element("th", { scope: "row" }, element("button", { type: "button", onclick: () => this.onFocus(workload) }, name)),
      ...COLUMNS.map(([key, title]) => element("td", { "data-part": key, "data-title": title, class: WORDS.includes(key) ? null : "number" })));
  }

  fill(row, hpa, pods) {
    const { name = "", value, target, unit, ratio } = hpa.metrics[0] ?? {};
    const texts = {
      signal: name, value: isNumber(value) ? amount(value, unit) : "unknown", age: isNumber(hpa.valueAge) ? age(hpa.valueAge) : NO_DATA, target: amount(target, unit),
      current: number(hpa.current), wanted: number(hpa.desired), ready: number(pods.ready), pending: number(pods.pending), why: shortSelectors(hpa.reason),
    };
    for (const [key, text] of Object.entries(texts)) setText(part(row, key), text);
    setAttribute(part(row, "value"), "title", `${hpa.targets}, of ${hpa.reference}`);
    setAttribute(part(row, "value"), "data-level", ratio > 1.1 ? "high" : isNumber(ratio) ? "plain" : "quiet");
    setAttribute(row, "data-level", pods.pending > 0 ? "notice" : "plain");
    setAttribute(row.querySelector("button"), "aria-pressed", hpa.workload === this.focused);
  }
}

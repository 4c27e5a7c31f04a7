// Events in Kubernetes' own words: as a list, newest first, that can be filtered and searched.
import { element, keyed, setAttribute, setText } from "./dom.js";
import { clock, isNumber, shortSelectors } from "./format.js";

export const CATEGORIES = {
  load: { name: "Load", short: "load", symbol: "triangle-up" },
  scaling: { name: "Scaling", short: "scaling", symbol: "diamond" },
  pods: { name: "Pods", short: "pods", symbol: "circle" },
  nodes: { name: "Nodes", short: "nodes", symbol: "square" },
  warning: { name: "Warnings", short: "warnings", symbol: "x" },
};

const WARNINGS = /^(Failed|BackOff|Unhealthy|Evicted|OOMKill|NotTriggerScaleUp|SpotInterrupted|DeletingNode|GPULost|ReservationEnds|Invalid|Ambiguous|KEDA\w*Failed)/;
const OF_NODES = /^(TriggeredScaleUp|ScaleDown|ScaledUpGroup|Node)/;
const NODE_OBJECTS = /^node/i;
const AUTOSCALERS = /^(hpa|horizontalpodautoscaler|scaledobject)\//i;
const PAGE = 200; // rows made at once; thousands of rows would slow the page down

export function categoryOf(event) {
  if (WARNINGS.test(event.kind) || event.warning) return "warning";
  if (event.kind === "LoadChanged") return "load";
  if (OF_NODES.test(event.kind) || NODE_OBJECTS.test(event.object ?? "")) return "nodes";
  if (AUTOSCALERS.test(event.object ?? "") || event.kind === "ScalingReplicaSet") return "scaling";
  return "pods";
}

export class EventList {
  // `onPick` hears of the event whose row was chosen, `onFilter` of the categories and the words that are shown.
  constructor(root, store, { newestFirst = true, words = "", hidden = [], onPick = () => {}, onFilter = () => {} } = {}) {
    this.store = store;
    this.newestFirst = newestFirst;
    this.onPick = onPick;
    this.onFilter = onFilter;
    this.limit = PAGE;
    this.build(root);
    this.setFilter(words, hidden);
  }

  build(root) {
    this.filters = element("div", { class: "filters", role: "group", "aria-label": "Kinds of events shown" });
    this.search = element("input", {
      type: "search", placeholder: "Filter by word, e.g. a pod's name", "aria-label": "Filter events by word",
      oninput: () => this.changeText(),
    });
    this.list = element("ol", { class: "event-list", tabindex: "0", "aria-label": "Events" });
    this.count = element("p", { class: "note", role: "status" });
    this.more = element("button", { type: "button", class: "quiet", onclick: () => this.showMore() }, "Show more");
    root.replaceChildren(this.filters, this.search, this.list, element("div", { class: "event-foot" }, this.count, this.more));
  }

  setFilter(words, hidden) {
    this.shown = new Set(Object.keys(CATEGORIES).filter((category) => !hidden.includes(category)));
    this.search.value = words;
    this.changeText();
  }

  changeText() {
    this.text = this.search.value.trim().toLowerCase();
    this.limit = PAGE;
    this.filtered();
    this.refresh();
  }

  filtered() {
    this.onFilter({ shown: [...this.shown], hidden: Object.keys(CATEGORIES).filter((category) => !this.shown.has(category)), words: this.text });
  }

  showMore() {
    this.limit += PAGE;
    this.refresh();
  }

  toggle(category) {
    if (this.shown.has(category)) this.shown.delete(category);
    else this.shown.add(category);
    this.filtered();
    this.refresh();
  }

  refresh() {
    const numbered = this.store.events.map((event, index) => ({ event, index: this.store.eventsDropped + index }));
    const found = numbered.filter(({ event }) => this.matches(event));
    const ordered = this.newestFirst ? found.reverse() : found;
    this.drawFilters();
    const rows = ordered.slice(0, this.limit);
    keyed(this.list, rows, ({ index }) => String(index), ({ event }) => this.row(event), () => {});
    this.more.hidden = ordered.length <= this.limit;
    setText(this.count, this.summary(ordered.length, numbered.length));
  }

  summary(found, total) {
    if (total === 0) return "No events yet";
    return found === total ? `${total} events` : `${found} of ${total} events`;
  }

  matches(event) {
    if (!this.shown.has(categoryOf(event))) return false;
    if (!this.text) return true;
    return `${event.kind} ${event.object} ${event.reason ?? ""}`.toLowerCase().includes(this.text);
  }

  drawFilters() {
    keyed(this.filters, Object.keys(CATEGORIES), (category) => category,
      (category) => this.filterButton(category),
      (button, category) => setAttribute(button, "aria-pressed", this.shown.has(category)));
  }

  filterButton(category) {
    return element("button", { type: "button", class: "chip", onclick: () => this.toggle(category) },
      element("span", { class: `dot dot-${category}` }), CATEGORIES[category].name);
  }

  row(event) {
    const change = isNumber(event.from) && isNumber(event.to) && event.from !== event.to ? `${event.from} → ${event.to}` : "";
    const why = event.why?.length ? [element("ul", { class: "event-why" }, ...event.why.map((line) => element("li", {}, shortSelectors(line))))] : [];
    const head = element("span", { class: "event-head" },
      element("span", { class: `dot dot-${categoryOf(event)}` }),
      element("strong", {}, event.kind), element("span", { class: "event-object" }, event.object ?? ""),
      ...(event.why?.length ? [element("span", { class: "event-more" }, "why")] : []), element("span", { class: "event-change" }, change));
    const reason = event.reason ?? "", short = shortSelectors(reason);
    const exact = short === reason ? [] : [element("code", { class: "event-exact" }, reason)];
    const item = element("li", {}, element("button", { type: "button", onclick: () => { this.mark(item); this.onPick(event); } },
      element("time", {}, clock(event.t)),
      element("span", { class: "event-text" }, head, element("span", { class: "event-reason" }, short), ...exact)), ...why);
    return item;
  }

  // The row that was picked last; it shows the controller's exact text too.
  mark(row) {
    for (const other of this.list.querySelectorAll(".picked")) other.classList.remove("picked");
    row?.classList.add("picked");
  }

  // Brings an event into view and points at it, showing its kind again if it was filtered out.
  reveal(event) {
    if (!this.matches(event)) this.clearFilter(categoryOf(event));
    const index = this.store.events.indexOf(event);
    const position = this.newestFirst ? this.store.events.length - 1 - index : index;
    this.limit = Math.max(this.limit, position + 1);
    this.refresh();
    const row = this.list.querySelector(`[data-key="${this.store.eventsDropped + index}"]`);
    this.mark(row);
    row?.scrollIntoView({ block: "nearest" });
  }

  clearFilter(category) {
    this.shown.add(category);
    this.search.value = "";
    this.text = "";
    this.filtered();
  }
}

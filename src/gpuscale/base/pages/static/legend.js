// The legends of a stack of charts: what each line is, its value under the cursor or now, and whether it is drawn.
import { element, keyed, part, setAttribute, setText } from "./dom.js";
import { number } from "./format.js";

export const MAX_LINES = 60; // more than this can't be told apart, and costs a redraw its smoothness

export class Legends {
  constructor(stack) {
    this.stack = stack;
    this.chosen = new Map(); // which lines were switched on or off by hand
    this.pointed = null; // the keys of the lines whose legend is pointed at
  }

  draw(chart, lines) {
    const groups = [...new Set(lines.map((line) => line.group).filter(Boolean))];
    const items = [
      ...groups.map((group) => ({ key: `group:${group}`, name: group, members: lines.filter((line) => line.group === group) })),
      ...lines.slice(0, MAX_LINES),
    ];
    if (lines.length > MAX_LINES) items.push({ key: "more", name: `${lines.length - MAX_LINES} more not drawn`, note: true });
    keyed(chart.legend, items, (item) => item.key, (item) => this.create(item), (node, item) => this.update(node, item));
  }

  create(item) {
    if (item.note) return element("span", { class: "legend-note" }, item.name);
    const text = element("span", { class: "legend-name" }, item.name);
    const title = item.members ? `All ${item.name}` : (item.full ?? item.name);
    const button = element("button", { type: "button", class: item.members ? "legend-item legend-group" : "legend-item", title });
    if (!item.members) button.append(element("span", { class: "swatch", "data-part": "swatch" }));
    button.append(text);
    if (!item.members) button.append(element("span", { class: "legend-value", "data-part": "value" }));
    button.addEventListener("click", () => this.toggle(button));
    button.addEventListener("pointerenter", () => this.point(button.keys));
    button.addEventListener("pointerleave", () => this.point(null));
    button.addEventListener("focus", () => button.matches(":focus-visible") && this.point(button.keys));
    button.addEventListener("blur", () => this.point(null));
    return button;
  }

  update(node, item) {
    if (item.note) {
      setText(node, item.name);
      return;
    }
    const lines = item.members ?? [item];
    node.keys = lines.map((line) => line.key); // not in an attribute: names may hold any letter
    setAttribute(node, "aria-pressed", lines.some((line) => this.shows(line)));
    if (item.members) return;
    const swatch = part(node, "swatch");
    swatch.style.borderTopColor = this.stack.colour(item);
    swatch.style.borderTopStyle = item.dash ? (item.dash[0] === 1 ? "dotted" : "dashed") : "solid";
  }

  shows(line) {
    return this.chosen.get(line.key) ?? line.off !== true;
  }

  toggle(button) {
    const show = button.getAttribute("aria-pressed") !== "true";
    for (const key of button.keys) this.chosen.set(key, show);
    this.stack.refresh();
  }

  // The other lines fade while one's legend is pointed at: colours alone don't tell many apart.
  point(keys) {
    if (keys === this.pointed) return;
    this.pointed = keys;
    this.stack.refresh();
  }

  fades(line) {
    return this.pointed !== null && !this.pointed.includes(line.key);
  }

  updateValues(charts) {
    for (const chart of charts) {
      for (const node of chart.legend.children) {
        const value = part(node, "value");
        if (value) setText(value, number(this.stack.valueAt(node.keys[0])));
      }
    }
  }
}

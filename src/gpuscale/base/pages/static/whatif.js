// What the HPA that is looked at would do with other numbers: asked of the server, which decides as the controller does.
import { element, keyed, setAttribute, setText } from "./dom.js";
import { number, shortSelectors } from "./format.js";

const FIELDS = [["target", "Target"], ["value", "Value"], ["min", "Min"], ["max", "Max"]];
const PAUSE_MS = 300; // after the last key

export class WhatIf {
  constructor(root) {
    this.asked = 0;
    this.inputs = FIELDS.map(([name]) => element("input", { name, autocomplete: "off", inputmode: "decimal", size: "6", oninput: () => this.soon() }));
    this.form = element("form", { onsubmit: (event) => { event.preventDefault(); this.ask(); } },
      ...FIELDS.map(([, title], index) => element("label", {}, title, this.inputs[index])));
    this.answer = element("p", { class: "message", role: "status", "data-part": "answer" });
    this.reasons = element("ul", { class: "explanation" });
    root.replaceChildren(this.form, this.answer, this.reasons);
  }

  // Another workload's numbers are not carried over.
  update(hpa) {
    const { value, target } = hpa.metrics[0] ?? {};
    const now = { target, value, min: hpa.min, max: hpa.max };
    for (const input of this.inputs) setAttribute(input, "placeholder", number(now[input.name]));
    if (this.name === hpa.name) return;
    this.name = hpa.name;
    this.form.reset();
    this.show("", [], "plain");
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PAUSE_MS);
  }

  async ask() {
    const asked = (this.asked += 1);
    const given = new URLSearchParams({ hpa: this.name });
    for (const { name, value } of this.inputs) if (value.trim()) given.set(name, value.trim());
    if ([...given].length === 1) return this.show("", [], "plain");
    let shown;
    try {
      const response = await fetch(`/ui/what-if?${given}`, { cache: "no-store" });
      const said = await response.json();
      if (!response.ok) throw new Error(said.error);
      shown = [`${inWords(said.current, said.desired)} As it is: ${inWords(said.current, said.asItIs)}`, said.explanation, "done"];
    } catch (error) {
      shown = [error.message, [], "failed"];
    }
    if (asked === this.asked) this.show(...shown); // an older answer may come later
  }

  show(text, reasons, level) {
    setText(this.answer, text);
    setAttribute(this.answer, "data-level", level);
    keyed(this.reasons, reasons.map((line, index) => ({ line, index })), ({ index }) => String(index), () => element("li"), (node, { line }) => setText(node, shortSelectors(line)));
  }
}

function inWords(current, desired) {
  return desired === null ? "can't decide." : desired === current ? `stays at ${number(current)}.` : `goes from ${number(current)} to ${number(desired)}.`;
}

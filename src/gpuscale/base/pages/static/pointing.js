// The time cursor, the zoom by dragging and the keys of a stack of charts.
import { element, setText } from "./dom.js";
import { categoryOf } from "./events.js";
import { clock, number } from "./format.js";
import { LANES } from "./lines.js";

const MIN_ZOOM_SECONDS = 2;
const MIN_DRAG = 6; // pixels; less is a click
const NEAR = 8; // pixels from an event's symbol

export class Pointing {
  constructor(stack) {
    this.stack = stack;
    this.body = stack.body;
    this.dragFrom = null;
    this.line = element("div", { class: "cursor", hidden: true }, element("span", { class: "cursor-time" }));
    this.band = element("div", { class: "band", hidden: true });
    this.callout = element("p", { class: "callout", hidden: true });
    this.body.append(this.band, this.line, this.callout);
    this.listen();
  }

  listen() {
    this.body.addEventListener("pointermove", (event) => this.onMove(event));
    this.body.addEventListener("pointerleave", () => this.onLeave());
    this.body.addEventListener("pointerdown", (event) => this.onDown(event));
    this.body.addEventListener("pointerup", (event) => this.onUp(event));
    this.body.addEventListener("pointercancel", () => this.endDrag());
    // While it holds the pointer, the body is the target of what happens over a chart.
    this.body.addEventListener("dblclick", (event) => !event.target.closest("button") && this.stack.setZoom(null));
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("blur", () => this.stack.setCursor(null));
  }

  // ---- pixels and times

  // Pixels of the page to seconds of the run, over the area that the axes span.
  area() {
    const box = this.stack.charts.find((chart) => !chart.figure.hidden).plot.getBoundingClientRect();
    const { left, right } = this.stack.margins();
    return { left: box.left + left, width: box.width - left - right, offset: this.body.getBoundingClientRect().left };
  }

  timeAt(clientX) {
    const { left, width } = this.area();
    const [from, to] = this.stack.extent();
    return from + Math.min(1, Math.max(0, (clientX - left) / width)) * (to - from);
  }

  xOf(time) {
    const { left, width, offset } = this.area();
    const [from, to] = this.stack.extent();
    return left - offset + ((time - from) / (to - from)) * width;
  }

  // ---- pointer

  onMove(event) {
    if (this.dragFrom) this.drawBand(event.clientX);
    this.drawCallout(event.target.closest('[data-chart="events"] .plot') ? this.eventAt(event.clientX, event.clientY) : undefined);
    this.stack.setCursor(this.dragFrom || event.target.closest(".plot") ? this.timeAt(event.clientX) : null);
  }

  onLeave() {
    this.drawCallout(undefined);
    this.stack.legends.point(null);
    if (!this.dragFrom) this.stack.setCursor(null);
  }

  onDown(event) {
    if (event.button !== 0 || !event.target.closest(".plot")) return;
    this.dragFrom = { x: event.clientX, y: event.clientY };
    this.body.setPointerCapture(event.pointerId);
  }

  onUp(event) {
    const start = this.dragFrom;
    this.endDrag();
    if (!start) return;
    if (Math.abs(event.clientX - start.x) < MIN_DRAG) {
      const picked = this.eventAt(start.x, start.y);
      if (picked) this.stack.onEvent(picked);
      return;
    }
    this.zoomTo(this.timeAt(start.x), this.timeAt(event.clientX));
  }

  endDrag() {
    this.dragFrom = null;
    this.band.hidden = true;
  }

  zoomTo(a, b) {
    const middle = (a + b) / 2;
    const half = Math.max(Math.abs(a - b), MIN_ZOOM_SECONDS) / 2;
    this.stack.setZoom([middle - half, middle + half]);
  }

  drawBand(clientX) {
    const from = this.xOf(this.timeAt(this.dragFrom.x));
    const to = this.xOf(this.timeAt(clientX));
    this.band.hidden = Math.abs(clientX - this.dragFrom.x) < MIN_DRAG;
    this.band.style.left = `${Math.min(from, to)}px`;
    this.band.style.width = `${Math.abs(to - from)}px`;
  }

  // The event drawn under the pointer, if it is over the lanes and close to one.
  eventAt(clientX, clientY) {
    const lanes = this.stack.charts[0];
    const unit = this.stack.theme.unit;
    const box = lanes.plot.getBoundingClientRect();
    const share = (clientY - box.top - 6 * unit) / ((lanes.height - 14) * unit);
    const lane = LANES[Math.floor(share * LANES.length)];
    const { offset } = this.area();
    const distance = (event) => Math.abs(this.xOf(event.t) + offset - clientX);
    return this.stack.eventsWithin(...this.stack.extent())
      .filter((event) => categoryOf(event) === lane && distance(event) < NEAR * unit)
      .sort((a, b) => distance(a) - distance(b))[0];
  }

  drawCallout(event) {
    this.callout.hidden = event === undefined;
    if (event === undefined) return;
    setText(this.callout, `${clock(event.t)}  ${event.kind}  ${event.object}\n${[event.reason ?? "", ...(event.why ?? [])].join("\n")}`);
    const room = this.body.clientWidth - this.callout.offsetWidth - 12;
    this.callout.style.transform = `translateX(${Math.max(12, Math.min(this.xOf(event.t) + 10, room))}px)`;
  }

  // ---- keys

  onKey(event) {
    if (event.target !== this.body || event.ctrlKey || event.altKey || event.metaKey) return;
    const [from, to] = this.stack.extent();
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: -step, ArrowRight: step };
    if (event.key in moves) this.stepCursor(moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoomAround(from, to, 0.5);
    else if (event.key === "-") this.zoomAround(from, to, 2);
    else if (event.key === "Escape") {
      this.stack.setZoom(null);
      this.stack.setCursor(null);
    } else return;
    event.preventDefault();
  }

  stepCursor(points) {
    const { stack } = this;
    const { store } = stack;
    const now = stack.cursor === null ? store.t.length : store.indexAt(stack.cursor);
    const index = Math.min(store.t.length - 1, Math.max(0, now + points));
    stack.showTime(store.t[index] ?? 0);
    const said = stack.charts.filter((chart) => !chart.lanes && !chart.spans && !chart.figure.hidden).map((chart) => {
      const line = chart.lineItems?.[0];
      return line ? `${chart.title} ${number(stack.valueAt(line.key))}` : chart.title;
    });
    setText(stack.spoken, `${clock(stack.cursor)}: ${said.join(", ")}`);
  }

  zoomAround(from, to, factor) {
    const middle = this.stack.cursor ?? (from + to) / 2;
    const first = Math.max(this.stack.store.first(), middle - (middle - from) * factor);
    const last = Math.min(this.stack.end(this.stack.store.last()), middle + (to - middle) * factor);
    this.zoomTo(first, last);
  }

  placeCursor() {
    const time = this.stack.cursor;
    const [from, to] = this.stack.extent();
    const shown = time !== null && time >= from && time <= to;
    this.line.hidden = !shown;
    if (!shown) return;
    const x = this.xOf(time);
    this.line.style.transform = `translateX(${x}px)`;
    setText(this.line.firstChild, clock(time));
    const width = this.line.firstChild.offsetWidth;
    this.line.firstChild.classList.toggle("left", x + width + 16 > this.body.clientWidth);
  }
}

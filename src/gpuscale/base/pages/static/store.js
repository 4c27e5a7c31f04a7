// The run as the page knows it: one time axis, the series over it, and the events in order.

const MAX_KEPT = 120000; // points; the oldest sixth goes once a page has followed a run for days

export class RunStore {
  constructor(document) {
    this.focus = null; // the one workload whose series are shown; null is all
    this.replace(document);
  }

  // A producer may have dropped its oldest points and events: `totals` counts those too.
  replace(document) {
    const { t = [], ...series } = document.series ?? {};
    this.document = document;
    this.t = [...t];
    this.series = new Map(Object.entries(series).map(([key, values]) => [key, [...values]]));
    this.events = [...(document.events ?? [])];
    this.pointsDropped = (document.totals?.points ?? this.t.length) - this.t.length;
    this.eventsDropped = (document.totals?.events ?? this.events.length) - this.events.length;
  }

  totals() {
    return { points: this.pointsDropped + this.t.length, events: this.eventsDropped + this.events.length };
  }

  // Returns false where the update doesn't join on to what is here; the caller then asks for all of it.
  append(since) {
    const { points, events } = this.totals();
    const firstEvent = since.totals.events - since.events.length;
    if (since.points > points || firstEvent > events) return false;
    if (since.totals.points < points || since.totals.events < events) return false;
    if (since.points < this.pointsDropped) return false;
    this.appendPoints(since, since.points - this.pointsDropped);
    for (const event of since.events.slice(events - firstEvent)) this.events.push(event);
    if (this.t.length > MAX_KEPT) this.dropOldest(MAX_KEPT / 6);
    return true;
  }

  appendPoints(since, start) {
    this.t.length = start;
    for (const time of since.t) this.t.push(time);
    for (const key of Object.keys(since.series)) {
      if (!this.series.has(key)) this.series.set(key, []);
    }
    for (const [key, values] of this.series) extend(values, start, since.series[key], this.t.length);
  }

  dropOldest(count) {
    this.t.splice(0, count);
    for (const values of this.series.values()) values.splice(0, count);
    const first = this.events.findIndex((event) => event.t >= this.t[0]);
    this.eventsDropped += this.events.splice(0, Math.max(0, first)).length;
    this.pointsDropped += count;
  }

  // A series and its times, which a store may have apart for each; neither is to be changed.
  points(key) {
    return { t: this.t, values: this.series.get(key) ?? [] };
  }

  keys(prefix) {
    return [...this.series.keys()].filter((key) => key.startsWith(prefix));
  }

  last() {
    return this.t.length ? this.t[this.t.length - 1] : 0;
  }

  // Where the time axis begins: a run's at 0, a cluster's when it was first looked at, with the events of the hour before.
  first() {
    if (this.document.clock !== "wall") return 0;
    const [point, event] = [this.t[0] ?? 0, this.events[0]?.t ?? Infinity];
    return Math.max(point - 3600, Math.min(point, event));
  }

  // The position of the last point at or before `time`; -1 before the first.
  indexAt(time) {
    return upperBound(this.t, time) - 1;
  }

}

// Positions [start, end) that draw the range from edge to edge: one point beyond either side.
export function slice(t, from, to) {
  return [Math.max(0, upperBound(t, from) - 1), Math.min(t.length, upperBound(t, to) + 1)];
}

function extend(values, start, more, length) {
  while (values.length < start) values.push(null);
  values.length = start;
  for (const value of more ?? []) values.push(value);
  while (values.length < length) values.push(null);
}

export function upperBound(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// First, lowest, highest and last value of each pixel column draw the same line as all of them
// (M4 aggregation, Jugel et al., VLDB 2014). Where a gap starts and ends is kept, so gaps stay gaps.
export function decimate(t, values, [start, end], [from, to], columns) {
  if (end - start <= 4 * columns) return { x: t.slice(start, end), y: values.slice(start, end).map(orGap) };
  const x = [];
  const y = [];
  const width = (to - from) / columns;
  for (let first = start; first < end; ) {
    const edge = from + (Math.floor((t[first] - from) / width) + 1) * width;
    let next = first + 1;
    while (next < end && t[next] < edge) next += 1;
    for (const index of telling(values, first, next)) {
      x.push(t[index]);
      y.push(orGap(values[index]));
    }
    first = next;
  }
  return { x, y };
}

function orGap(value) {
  return Number.isFinite(value) ? value : null;
}

function telling(values, from, to) {
  let first = -1, last = -1, low = -1, high = -1, gap = -1, lastGap = -1;
  for (let index = from; index < to; index += 1) {
    const value = values[index];
    if (!Number.isFinite(value)) {
      if (gap < 0) gap = index;
      lastGap = index;
      continue;
    }
    if (first < 0) first = low = high = index;
    if (value < values[low]) low = index;
    if (value > values[high]) high = index;
    last = index;
  }
  const found = [first, low, high, last, gap, lastGap].filter((index) => index >= 0);
  return [...new Set(found)].sort((a, b) => a - b);
}

// Scales and their ticks: round numbers on the value axis, round times on the time axis.
import { number, tick, zoneShift } from "./format.js";

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
];
const MAX_TICKS = 100;
const LARGEST = 1e300; // room above for the sums and products of a scale
const SMALLEST = 1e-300;

// `room` is how many labels fit side by side.
export function timeTicks([from, to], room) {
  const step = TIME_STEPS.find((candidate) => (to - from) / candidate <= room) ?? TIME_STEPS.at(-1) * Math.ceil((to - from) / TIME_STEPS.at(-1) / room);
  const shift = zoneShift(from);
  const first = Math.ceil((from + shift) / step - 1e-9);
  const last = Math.floor((to + shift) / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step - shift).map((at) => ({ at, text: tick(at, step) }));
}

// The lowest and highest of all lines, which are `{ y }` with gaps as null; zero is always part of the axis.
export function valueExtent(lines) {
  let lowest = 0;
  let highest = 0;
  for (const { y } of lines) {
    for (const value of y) {
      if (value > highest) highest = value;
      else if (value < lowest) lowest = value;
    }
  }
  return [lowest, highest];
}

// Returns `{ range: [bottom, top], ticks }`. `tops` are the only upper ends below their last, `least` is the least
// upper end, and `whole` allows no halves.
export function valueAxis([lowest, highest], { tops, least = 0, whole }) {
  if (lowest < 0) return roundAxis(Math.max(lowest, -LARGEST), Math.min(highest, LARGEST), whole);
  const size = Math.min(LARGEST, Math.max(highest, least, whole ? 2 : 0)) || 1;
  const [top, step] = tops ? fixedTop(tops, size) : roundTop(size, whole);
  return { range: [0, top * 1.05], ticks: ticksOf(0, Math.round(top / step), step) };
}

function fixedTop(tops, size) {
  const top = tops.find((candidate) => size <= candidate);
  if (top === undefined) return roundTop(size, false);
  return [top, top <= 60 ? Math.max(10, Math.floor(top / 40) * 20) : 50];
}

function roundTop(size, whole) {
  const step = niceStep(size / 3, whole);
  return [Math.ceil(size / step - 1e-9) * step, step];
}

function roundAxis(lowest, highest, whole) {
  const step = niceStep(highest / 4 - lowest / 4, whole);
  const [first, last] = [Math.floor(lowest / step + 1e-9), Math.ceil(highest / step - 1e-9)];
  return { range: [first * step * 1.05, last * step + step * 0.05], ticks: ticksOf(first, last, step) };
}

function ticksOf(first, last, step) {
  const count = Math.min(MAX_TICKS, last - first + 1);
  return Array.from({ length: count }, (_, i) => ({ at: (first + i) * step, text: number((first + i) * step) }));
}

function niceStep(wanted, whole) {
  const size = Math.max(wanted, SMALLEST);
  const power = 10 ** Math.floor(Math.log10(size));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= size * (1 - 1e-9));
  return whole ? Math.max(1, Math.round(step)) : step;
}

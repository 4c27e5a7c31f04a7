// What a chart shows, in words: the text alternative of its canvas.
import { CATEGORIES, categoryOf } from "./events.js";
import { clock, withUnit } from "./format.js";

const MAX_DESCRIBED = 6; // lines; the legend has the others

export function linesInWords(lines, unit, range) {
  const sentences = lines.slice(0, MAX_DESCRIBED).map((line) => lineInWords(line, unit, range));
  if (lines.length > MAX_DESCRIBED) sentences.push(`${lines.length - MAX_DESCRIBED} more lines.`);
  return `${rangeInWords(range)} ${sentences.join(" ") || "No data yet."}`;
}

export function eventsInWords(events, range) {
  const counts = Object.entries(CATEGORIES).map(([category, { name }]) => `${name} ${events.filter((event) => categoryOf(event) === category).length}`);
  return `${rangeInWords(range)} ${events.length} events: ${counts.join(", ")}.`;
}

// What the first lanes were in, each state with its times; `states` has their words by key.
export function lanesInWords(lanes, states, range) {
  const word = new Map(states.map(({ key, name }) => [key, name]));
  const sentences = lanes.slice(0, MAX_DESCRIBED).map(({ full, bars }) => {
    const parts = bars.map(({ state, from, to }) => `${word.get(state)} from ${clock(from)} to ${clock(to)}`);
    return `${full}: ${parts.join(", ") || "nothing"}.`;
  });
  if (lanes.length > MAX_DESCRIBED) sentences.push(`${lanes.length - MAX_DESCRIBED} more rows.`);
  return `${rangeInWords(range)} ${sentences.join(" ")}`;
}

function rangeInWords([from, to]) {
  return `From ${clock(from)} to ${clock(to)}.`;
}

// Where a line starts and ends, and its lowest and highest with their times.
function lineInWords({ x, y, name, full }, unit, [from, to]) {
  const points = x.map((time, index) => ({ time, value: y[index] })).filter(({ time, value }) => value !== null && time >= from && time <= to);
  if (points.length === 0) return `${full ?? name}: no data.`;
  const text = ({ time, value }) => `${withUnit(value, unit === "%" ? "%" : "").trim()} at ${clock(time)}`;
  const low = points.reduce((least, point) => (point.value < least.value ? point : least));
  const high = points.reduce((most, point) => (point.value > most.value ? point : most));
  return `${full ?? name}: first ${text(points[0])}, lowest ${text(low)}, highest ${text(high)}, last ${text(points.at(-1))}.`;
}

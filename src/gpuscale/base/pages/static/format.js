// How numbers, times and names read on the page. Absent values are a dash, never a zero.

export const NO_DATA = "–";

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

const written = (options) => new Intl.NumberFormat("en", options); // made once: each takes as long as writing many numbers
const COMPACT = written({ notation: "compact", maximumSignificantDigits: 4 });
const SMALL = written({ maximumSignificantDigits: 2 });
const USUAL = [0, 1, 2].map((digits) => written({ maximumFractionDigits: digits, useGrouping: false }));
const GROUPED = written({ maximumFractionDigits: 0 });

// Three or four digits that count, whatever the size: 18.4, 1,200, 524.3M, 0.0032, 1.5e-9.
export function number(value) {
  if (!isNumber(value)) return NO_DATA;
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1e6) return COMPACT.format(value);
  if (size < 0.1) return SMALL.format(value);
  if (size >= 10000) return GROUPED.format(value);
  return USUAL[size >= 100 ? 0 : size >= 10 ? 1 : 2].format(value);
}

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

// A metric's value or target in the unit that the server names: "%", "binary" (bytes with Ki, Mi, ...) or none.
export function amount(value, unit) {
  if (!isNumber(value)) return NO_DATA;
  if (unit !== "binary") return unit === "%" ? withUnit(value, "%") : number(value);
  const power = Math.min(BINARY.length - 1, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10));
  return `${number(value / 1024 ** power)}${power ? ` ${BINARY[power]}` : ""}`;
}

export function withUnit(value, unit) {
  if (!isNumber(value)) return NO_DATA;
  return unit === "%" ? `${number(value)}%` : `${number(value)} ${unit}`;
}

let wall = false; // whether seconds are those since 1970 and not of a run

export function useWallClock() {
  wall = true;
}

// How far the local clock is ahead of the seconds that are counted.
export function zoneShift(seconds) {
  return wall ? -60 * new Date(seconds * 1000).getTimezoneOffset() : 0;
}

// A moment for a file: seconds of the run, or date and time.
export function moment(seconds) {
  return wall ? new Date(seconds * 1000).toISOString() : String(seconds);
}

export function clock(seconds) {
  if (!isNumber(seconds)) return NO_DATA;
  if (wall) return timeOfDay(new Date(seconds * 1000));
  const whole = Math.max(0, Math.floor(seconds));
  const two = (part) => String(part).padStart(2, "0");
  return `${two(Math.floor(whole / 3600))}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

const TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// With the day where it is another than today's.
function timeOfDay(at) {
  return at.toDateString() === new Date().toDateString() ? TIME.format(at) : `${DAY.format(at)} ${TIME.format(at)}`;
}

// A time on an axis; of the day's, seconds are left out where all ticks are whole minutes.
export function tick(seconds, step) {
  return wall && step >= 60 ? clock(seconds).replace(/:\d\d$/, "") : clock(seconds);
}

export function memory(usedMib, totalMib) {
  const gibibytes = (mib) => (isNumber(mib) ? number(mib / 1024) : NO_DATA);
  return `${gibibytes(usedMib)} of ${gibibytes(totalMib)} GiB`;
}

// The ends of a long name tell pods apart, so the middle goes.
export function shortName(name, length = 26) {
  if (name.length <= length) return name;
  const tail = Math.floor(length * 0.45);
  return `${name.slice(0, length - tail - 1)}…${name.slice(-tail)}`;
}

// A pod of a ReplicaSet by its first word and the random end that tells it from its siblings.
export function shortPod(name) {
  const words = name.split("-");
  return name.length <= 16 || words.length < 3 ? shortName(name, 18) : `${shortName(words[0], 9)}…${words.at(-1)}`;
}

// As kubectl prints ages: two units while the first is small (apimachinery util/duration).
export function age(seconds) {
  if (!isNumber(seconds)) return NO_DATA;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 600) return twoUnits(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 10800) return `${Math.floor(whole / 60)}m`;
  if (whole < 28800) return twoUnits(Math.floor(whole / 3600), "h", Math.floor(whole / 60) % 60, "m");
  if (whole < 172800) return `${Math.floor(whole / 3600)}h`;
  return twoUnits(Math.floor(whole / 86400), "d", Math.floor(whole / 3600) % 24, "h");
}

function twoUnits(first, firstUnit, second, secondUnit) {
  return second ? `${first}${firstUnit}${second}${secondUnit}` : `${first}${firstUnit}`;
}

export function podName(reference) {
  return reference.startsWith("default/") ? reference.slice("default/".length) : reference;
}

// The controller's texts with the selectors that Go prints in them as kubectl writes them.
export function shortSelectors(text) {
  return text.replace(/&LabelSelector\{MatchLabels:map\[string\]string\{([^{}]*)\},MatchExpressions:\[\]LabelSelectorRequirement\{((?:LabelSelectorRequirement\{[^{}]*\},)*)\},\}/g,
    (_, labels, expressions) => [...labels.split(",").filter(Boolean).map((label) => label.replace(/: ?/, "=")),
      ...[...expressions.matchAll(/Key:([^,]*),Operator:([^,]*),Values:\[([^\]]*)\]/g)].map(requirement)].join(",") || "everything");
}

function requirement([, key, operator, values]) {
  const list = `(${values.split(" ").join(",")})`;
  return { In: `${key} in ${list}`, NotIn: `${key} notin ${list}`, Exists: key, DoesNotExist: `!${key}` }[operator] ?? `${key} ${operator} ${list}`;
}

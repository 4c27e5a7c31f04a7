// A chart as a file: its lines over the time that it shows as CSV, and what it looks like as PNG. Nothing is asked of a server.
import { element } from "./dom.js";
import { moment } from "./format.js";

export function save(name, blob) {
  const link = element("a", { download: name, href: URL.createObjectURL(blob) });
  link.click();
  URL.revokeObjectURL(link.href);
}

// Numbers as they were sent; where there is none, nothing.
export function linesCsv(store, lines, from, to) {
  const columns = lines.map((line) => store.points(line.key));
  const times = [...new Set(columns.flatMap(({ t }) => t))].filter((time) => time >= from && time <= to).sort((a, b) => a - b);
  const at = columns.map(({ t, values }) => new Map(t.map((time, index) => [time, values[index]])));
  return table(["time", ...lines.map((line) => line.full ?? line.name)], times.map((time) => [moment(time), ...at.map((values) => values.get(time) ?? null)]));
}

export function eventsCsv(events) {
  return table(["time", "kind", "object", "from", "to", "reason"],
    events.map(({ t, kind, object, from, to, reason }) => [moment(t), kind, object, from, to, reason]));
}

export function barsCsv(lanes) {
  return table(["row", "state", "from", "to"], lanes.flatMap(({ full, bars }) => bars.map(({ state, from, to }) => [full, state, moment(from), moment(to)])));
}

// Texts that a spreadsheet would run as a formula are kept from it by a blank.
function table(heading, rows) {
  const cell = (value) => (value === null || value === undefined ? "" : typeof value === "number" ? value : `"${value.replace(/^(?=[=+\-@\t\r])/, " ").replaceAll('"', '""')}"`);
  const text = [heading, ...rows].map((cells) => cells.map(cell).join(",")).join("\n");
  return new Blob([`${text}\n`], { type: "text/csv" });
}

// The canvas below its title and the names of its lines, as sharp as on the screen.
export function savePng(name, canvas, { title, items, range }, theme) {
  const ratio = canvas.width / Number.parseFloat(canvas.style.width);
  const [width, unit] = [canvas.width / ratio, theme.unit];
  const [row, edge] = [18 * unit, 10 * unit];
  const picture = element("canvas");
  const context = picture.getContext("2d");
  const font = () => (context.font = `${12 * unit}px ${theme.font}`);
  font();
  let [x, y] = [edge, edge + row];
  const placed = items.map((item) => {
    const taken = 22 * unit + context.measureText(item.name).width + 12 * unit;
    if (x > edge && x + taken > width - edge) [x, y] = [edge, y + row];
    x += taken;
    return { ...item, x: x - taken, y };
  });
  const top = (placed.length ? y + row : edge + row) + 4 * unit;
  [picture.width, picture.height] = [canvas.width, Math.round(top * ratio) + canvas.height];
  context.scale(ratio, ratio);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, picture.height);
  font();
  context.textBaseline = "middle";
  context.fillStyle = theme.target;
  context.fillText(`${title} · ${range}`, edge, edge + row / 2, width - 2 * edge);
  for (const { name: text, colour, dash, x: left, y: line } of placed) {
    context.strokeStyle = colour;
    context.lineWidth = 2 * unit;
    context.setLineDash((dash ?? []).map((length) => length * unit));
    context.beginPath();
    context.moveTo(left, line + row / 2);
    context.lineTo(left + 16 * unit, line + row / 2);
    context.stroke();
    context.fillText(text, left + 22 * unit, line + row / 2);
  }
  context.drawImage(canvas, 0, Math.round(top * ratio) / ratio, width, canvas.height / ratio);
  picture.toBlob((blob) => save(name, blob), "image/png");
}

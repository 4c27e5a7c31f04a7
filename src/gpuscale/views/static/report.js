// The report of a finished run: its charts and its events; its summary is in the file as it is.
import { ChartStack } from "./charts.js";
import { byId } from "./dom.js";
import { EventList } from "./events.js";
import { readFragment, writeFragment, writeRange } from "./fragment.js";
import { RunStore } from "./store.js";

const run = JSON.parse(byId("run").textContent);
delete run.started; // a report is of a whole run, also where the run was live
const store = new RunStore(run);
const { zoom, words, hidden } = readFragment();
const stack = new ChartStack(byId("charts"), store, {
  zoom, onEvent: (event) => events.reveal(event), onRange: (range) => writeRange(range, null),
});
const events = new EventList(byId("events"), store, {
  newestFirst: false, words, hidden,
  onPick: (event) => stack.showTime(event.t),
  onFilter: (filter) => {
    stack.setMarks(filter.shown);
    writeFragment({ words: filter.words, hide: filter.hidden.join(",") });
  },
});
addEventListener("hashchange", () => {
  const now = readFragment();
  if (now.zoom) stack.setZoom(now.zoom);
  if (now.words !== undefined || now.hidden) events.setFilter(now.words ?? "", now.hidden ?? []);
});

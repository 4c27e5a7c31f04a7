// A finished run on a page: its charts, its events, and the address that keeps what is shown.
import { ChartStack } from "./charts.js";
import { byId } from "./dom.js";
import { EventList } from "./events.js";
import { readFragment, writeFragment, writeRange } from "./fragment.js";

// `charts` are as those of `lines.js`, which stand where none are given.
export function showFinished(store, charts) {
  const { zoom, words, hidden } = readFragment();
  const stack = new ChartStack(byId("charts"), store, {
    charts, zoom, onEvent: (event) => events.reveal(event), onRange: (range) => writeRange(range, null),
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
}

// What a page shows, kept in its address behind the "#", so that a link shows the same times and events.

// Returns `{ window, zoom, workload, words, hidden }`, with undefined for what the address leaves open or has wrong.
export function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [seconds(given.get("from")), seconds(given.get("to"))];
  return {
    window: given.get("window") === "all" ? null : seconds(given.get("window")) || undefined,
    zoom: from !== undefined && to !== undefined && to - from >= 1 ? [from, to] : undefined,
    workload: given.get("workload") ?? undefined,
    words: given.get("words") ?? undefined,
    hidden: given.get("hide")?.split(",") ?? undefined,
  };
}

// Sets or, where the value is null or empty, removes what is named; the rest stays.
export function writeFragment(changes) {
  const params = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

// `usual` is the window that a page shows on its own.
export function writeRange({ window, zoom }, usual) {
  writeFragment({
    window: window === usual ? null : (window ?? "all"),
    from: zoom && zoom[0].toFixed(1),
    to: zoom && zoom[1].toFixed(1),
  });
}

function seconds(text) {
  const value = Number(text);
  return text !== null && text !== "" && Number.isFinite(value) ? value : undefined;
}

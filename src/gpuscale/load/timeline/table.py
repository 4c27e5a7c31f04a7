"""The timeline as text for a terminal: a row for each stretch of time, and a line for each lane."""

from bisect import bisect_left
from collections.abc import Sequence

from gpuscale.base.pages.columns import GAP, aligned, fits, shortened
from gpuscale.base.pages.words import NO_DATA, clock_text, number_text, plain_text
from gpuscale.base.words import counted
from gpuscale.load.timeline.types import HOPS, Span, Timeline, TimelineMark, Track

ROWS = 20
"""Stretches of time in a table; the document has every point."""
MOST_MARKS = 40
MOST_LANES = 40
_SHORT_NAME = 10
"""Letters that are left of a heading where not every hop has room."""
_LETTERS = {"pending": "░", "running": "▓", "done": "█", "failed": "✗"}
_OTHERS = "abcdefghijklmnopqrstuvwxyz"
_MEASURED = ("load", "latency")
_HOP_WORDS = dict(
    zip(HOPS, ("load", "latency", "GPU", "metric", "HPA", "replicas", "nodes"), strict=True)
)


def timeline_text(timeline: Timeline, width: int = 100) -> str:
    """Return a timeline as text within a terminal's width.

    First a row for each of up to 20 stretches of time, with the last value of each track in it, and the
    marks between the rows; then the lanes, one letter for a stretch of time.
    """
    parts = [_table(timeline, width), _lanes(timeline, width)]
    return "\n".join(line for part in parts for line in part)


def _table(timeline: Timeline, width: int) -> list[str]:
    if not timeline.tracks:
        return [_mark_line(each, timeline, width) for each in timeline.marks[:MOST_MARKS]]
    edges_ms = _edges(timeline)
    tracks = list(timeline.in_order())
    left_out: list[Track] = []
    names_width = width
    rows = _rows(tracks, edges_ms, timeline, names_width)
    while len(tracks) > 1 and not fits(rows, width):
        if len({track.hop for track in tracks}) == len(tracks) and names_width != _SHORT_NAME:
            names_width = _SHORT_NAME  # a hop's figures matter more than its full name
        else:
            left_out.insert(0, tracks.pop(_least(tracks)))
        rows = _rows(tracks, edges_ms, timeline, names_width)
    lines = aligned(rows)
    merged = [*lines[:3], *_with_marks(lines[3:], edges_ms, timeline, width)]
    if left_out:
        names = ", ".join(plain_text(track.name) for track in left_out)
        line = f"no room for {names}"
        if len(line) > width:
            line = f"no room for {counted(len(left_out), 'more column')}; -o json has them"
        merged.append(shortened(line, width))
    return merged


def _least(tracks: Sequence[Track]) -> int:
    """Return which track is left out first: every hop keeps its first track longest."""
    ranks = [
        sum(other.hop == track.hop for other in tracks[:index])
        for index, track in enumerate(tracks)
    ]
    return max(range(len(tracks)), key=lambda index: (ranks[index], index))


def _edges(timeline: Timeline) -> list[int]:
    """Return the ends of the intervals, which are whole seconds."""
    length_ms = max(1, timeline.ended_ms - timeline.started_ms)
    step_ms = -(-length_ms // (ROWS * 1000)) * 1000
    count = -(-length_ms // step_ms)
    return [
        min(timeline.ended_ms, timeline.started_ms + (index + 1) * step_ms)
        for index in range(count)
    ]


def _rows(
    tracks: Sequence[Track], edges_ms: list[int], timeline: Timeline, names_width: int
) -> list[tuple[str, ...]]:
    """Return three heading rows (hop, name, unit), then one for each interval."""
    hops = [_HOP_WORDS[track.hop] for track in tracks]
    shown = [hop if index == 0 or hop != hops[index - 1] else "" for index, hop in enumerate(hops)]
    heads = [
        ("", *shown),
        ("time", *(shortened(plain_text(track.name), names_width) for track in tracks)),
        ("", *(plain_text(track.unit) for track in tracks)),
    ]
    columns = [_values(track, edges_ms, timeline.started_ms) for track in tracks]
    times = [clock_text((edge - timeline.started_ms) / 1000) for edge in edges_ms]
    return [*heads, *zip(times, *columns, strict=True)]


def _values(track: Track, edges_ms: list[int], started_ms: int) -> list[str]:
    """Return the last value in each interval; a dash if it has none.

    A value holds until the next one, but for load and latency, which each second measures by itself.
    """
    times = [at_ms for at_ms, _ in track.points]
    texts: list[str] = []
    before_ms = started_ms
    held: float | None = None
    for edge_ms in edges_ms:
        first, end = bisect_left(times, before_ms), bisect_left(times, edge_ms + 1)
        found = [value for _, value in track.points[first:end]]
        if track.hop in _MEASURED:
            held = next((value for value in reversed(found) if value is not None), None)
        elif found:
            held = found[-1]
        texts.append(NO_DATA if held is None else number_text(held))
        before_ms = edge_ms + 1
    return texts


def _with_marks(lines: list[str], edges_ms: list[int], timeline: Timeline, width: int) -> list[str]:
    """Return the rows with each mark before the row of its interval."""
    marks = sorted(timeline.marks, key=lambda each: each.at_ms)
    merged: list[str] = []
    position = 0
    for line, edge_ms in zip(lines, edges_ms, strict=True):
        while position < min(len(marks), MOST_MARKS) and marks[position].at_ms <= edge_ms:
            merged.append(_mark_line(marks[position], timeline, width))
            position += 1
        merged.append(line)
    merged += [_mark_line(each, timeline, width) for each in marks[position:MOST_MARKS]]
    if len(marks) > MOST_MARKS:
        merged.append(f"{len(marks) - MOST_MARKS} more events, all in the document")
    return merged


def _mark_line(mark: TimelineMark, timeline: Timeline, width: int) -> str:
    time = clock_text((mark.at_ms - timeline.started_ms) / 1000)
    text = GAP.join(plain_text(each) for each in (mark.kind, mark.object, mark.text) if each)
    line = f"{time}{GAP}{text}"
    return line if len(line) <= width else line[: width - 1] + "…"


def _lanes(timeline: Timeline, width: int) -> list[str]:
    """Return a line of letters for each lane, and the meanings of the letters."""
    lanes: dict[str, list[Span]] = {}
    for span in timeline.spans:
        lanes.setdefault(span.lane, []).append(span)
    if not lanes:
        return []
    letters = dict(_LETTERS)
    for state in dict.fromkeys(span.state for span in timeline.spans):
        letters.setdefault(state, _OTHERS[(len(letters) - len(_LETTERS)) % len(_OTHERS)])
    shown = list(lanes)[:MOST_LANES]
    room = min(max(len(plain_text(lane)) for lane in shown), max(8, width // 3))
    columns = max(8, width - room - len(GAP))
    lines = [
        shortened(plain_text(lane), room).ljust(room)
        + GAP
        + _lane(lanes[lane], letters, timeline, columns).rstrip()
        for lane in shown
    ]
    if len(lanes) > len(shown):
        lines.append(f"{len(lanes) - len(shown)} more, all in the document")
    used = dict.fromkeys(span.state for span in timeline.spans)
    lines.append(GAP.join(f"{letters[state]} {plain_text(state)}" for state in used))
    return ["", *lines]


def _lane(spans: list[Span], letters: dict[str, str], timeline: Timeline, columns: int) -> str:
    """Return one lane's letters; a state shorter than a column still gets one."""
    length_ms = max(1, timeline.ended_ms - timeline.started_ms)
    cells = [" "] * columns
    for span in sorted(spans, key=lambda each: each.from_ms):
        first = (span.from_ms - timeline.started_ms) * columns // length_ms
        last = -(-(span.to_ms - timeline.started_ms) * columns // length_ms)
        for index in range(max(0, first), min(columns, max(last, first + 1))):
            cells[index] = letters[span.state]
    return "".join(cells)

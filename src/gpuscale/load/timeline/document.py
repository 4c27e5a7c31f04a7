"""The timeline as JSON-shaped data, and back."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.load.timeline.types import HOPS, Span, Timeline, TimelineMark, Track

API_VERSION = "gpuscale.dev/v1alpha1"
KIND = "LoadTimeline"
MAX_POINTS = 2_000_000
"""Of all tracks of a document that is read: three weeks of a second each."""
MAX_ITEMS = 100_000
"""Tracks, marks and spans of a document that is read, of each."""
_LATEST_MS = 253_402_300_800_000  # the year 10000
_LARGEST = 1e300
_MOST_PROBLEMS = 100
_T = TypeVar("_T")


def timeline_document(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as plain data: kind LoadTimeline, tracks in the order of the hops.

    Times are milliseconds since the epoch. `points` has `[time, value]`, with null for a value that was
    not there.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "title": timeline.title,
        "startedMs": timeline.started_ms,
        "endedMs": timeline.ended_ms,
        "tracks": [
            {
                "name": track.name,
                "unit": track.unit,
                "hop": track.hop,
                "points": [[at_ms, _finite(value)] for at_ms, value in track.points],
            }
            for track in timeline.in_order()
        ],
        "marks": [
            {"atMs": each.at_ms, "kind": each.kind, "object": each.object, "text": each.text}
            for each in timeline.marks
        ],
        "spans": [
            {"lane": each.lane, "state": each.state, "fromMs": each.from_ms, "toMs": each.to_ms}
            for each in timeline.spans
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read_timeline(document: Mapping[str, Any], source: str) -> Timeline:
    """Return the timeline of a document.

    Args:
        document: as `timeline_document` makes it; keys beside those it knows are passed over.
        source: the document's name, for messages.

    Raises:
        ConfigError: it is none, or is wrong or too large; with every fault.
    """
    reader = _Reader(source)
    found = reader.timeline(document)
    if reader.problems:
        raise ConfigError(*reader.problems)
    return found


class _Reader:
    """Reads a timeline, and collects faults; a wrong value becomes a harmless one."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._points = 0
        self.problems: list[Problem] = []

    def timeline(self, document: Mapping[str, Any]) -> Timeline:
        found = (document.get("apiVersion"), document.get("kind"))
        if found != (API_VERSION, KIND):
            self._fault("kind", f"{found[1]!r} of {found[0]!r}", f"{KIND} of {API_VERSION}")
            return Timeline("", 0, 0)
        started_ms, ended_ms = self._period(document, "", "startedMs", "endedMs")
        return Timeline(
            title=self._text(document, "title", "title"),
            started_ms=started_ms,
            ended_ms=ended_ms,
            tracks=self._items(document, "tracks", self._track),
            marks=self._items(document, "marks", self._mark),
            spans=self._items(document, "spans", self._span),
        )

    def _track(self, item: Mapping[str, Any], path: str) -> Track:
        hop = item.get("hop")
        if hop not in HOPS:
            self._fault(f"{path}.hop", repr(hop), f"one of: {', '.join(HOPS)}")
            hop = HOPS[0]
        return Track(
            name=self._text(item, "name", f"{path}.name"),
            unit=self._text(item, "unit", f"{path}.unit"),
            hop=hop,
            points=self._read_points(item.get("points"), f"{path}.points"),
        )

    def _read_points(self, points: object, path: str) -> tuple[tuple[int, float | None], ...]:
        if not isinstance(points, list):
            self._fault(path, _kind(points), "a list of [time, value]")
            return ()
        self._points += len(points)
        if self._points > MAX_POINTS:
            self._fault(path, "more points", f"at most {MAX_POINTS} in all tracks")
            return ()
        read: list[tuple[int, float | None]] = []
        for index, point in enumerate(points):
            match point:
                case [int() as at_ms, None | int() | float() as value] if self._fits(at_ms, value):
                    if not read or at_ms >= read[-1][0]:
                        read.append((at_ms, value))
                        continue
                    expected = "times that ascend"
                case _:
                    expected = "[milliseconds since the epoch, a finite number or null]"
            self._fault(f"{path}[{index}]", str(point)[:60], expected)
            return ()
        return tuple(read)

    @staticmethod
    def _fits(at_ms: int, value: float | None) -> bool:
        if bool in (type(at_ms), type(value)) or not 0 <= at_ms < _LATEST_MS:
            return False
        return value is None or abs(value) <= _LARGEST

    def _mark(self, item: Mapping[str, Any], path: str) -> TimelineMark:
        return TimelineMark(
            at_ms=self._time(item, "atMs", f"{path}.atMs"),
            kind=self._text(item, "kind", f"{path}.kind"),
            object=self._text(item, "object", f"{path}.object"),
            text=self._text(item, "text", f"{path}.text"),
        )

    def _span(self, item: Mapping[str, Any], path: str) -> Span:
        from_ms, to_ms = self._period(item, f"{path}.", "fromMs", "toMs")
        return Span(
            lane=self._text(item, "lane", f"{path}.lane"),
            state=self._text(item, "state", f"{path}.state"),
            from_ms=from_ms,
            to_ms=to_ms,
        )

    def _items(
        self, item: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any], str], _T]
    ) -> tuple[_T, ...]:
        found: object = item.get(key, [])
        if not isinstance(found, list) or len(found) > MAX_ITEMS:
            self._fault(key, _kind(found), f"a list of at most {MAX_ITEMS}")
            return ()
        items: list[_T] = []
        for index, each in enumerate(found):
            if isinstance(each, Mapping):
                items.append(read(each, f"{key}[{index}]"))
            else:
                self._fault(f"{key}[{index}]", _kind(each), "a mapping")
        return tuple(items)

    def _period(self, item: Mapping[str, Any], path: str, first: str, last: str) -> tuple[int, int]:
        from_ms = self._time(item, first, f"{path}{first}")
        to_ms = self._time(item, last, f"{path}{last}")
        if to_ms < from_ms:
            self._fault(f"{path}{last}", str(to_ms), f"no less than {first}, {from_ms}")
        return from_ms, to_ms

    def _time(self, item: Mapping[str, Any], key: str, path: str) -> int:
        found = item.get(key)
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _LATEST_MS:
            return found
        self._fault(path, str(found)[:60], "milliseconds since the epoch")
        return 0

    def _text(self, item: Mapping[str, Any], key: str, path: str) -> str:
        found = item.get(key)
        if isinstance(found, str):
            return found
        self._fault(path, _kind(found), "text")
        return ""

    def _fault(self, path: str, found: str, expected: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(Problem(self._source, None, path, found, expected))


def _kind(value: object) -> str:
    """Return a value's type for a message."""
    if value is None:
        return "nothing"
    size = f" of {len(value)}" if isinstance(value, (list, dict)) else ""
    return f"{type(value).__name__}{size}"

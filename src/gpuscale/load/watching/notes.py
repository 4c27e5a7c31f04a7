"""Notes taken while watching, in bounded memory, and their conversion to tracks, marks and spans."""

from dataclasses import dataclass

from gpuscale.load.timeline.types import Hop, Span, TimelineMark, Track

MAX_POINTS = 50_000
"""Of one track; of a longer run the first ones are kept, and the rest is a gap."""
MAX_TRACKS = 200
MAX_MARKS = 5_000
MAX_LANES = 1_000
_BESIDE = ("target", "wanted", "total", "pods", "not ready yet")
"""Ends of the names that come after the others of their hop."""
_SLOPING: frozenset[Hop] = frozenset({"load", "latency", "gpu"})
"""Hops whose lines are drawn from point to point; the others hold a value until the next."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Everything that was observed during a load."""

    tracks: tuple[Track, ...] = ()
    marks: tuple[TimelineMark, ...] = ()
    spans: tuple[Span, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be watched, or was left out, in words."""


class Notes:
    """Takes values, events and states as they change.

    Args:
        started_ms: what was so before counts as so from then on.
    """

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._tracks: dict[tuple[Hop, str, str], list[tuple[int, float | None]]] = {}
        self._held_ms: dict[tuple[Hop, str, str], int] = {}
        """When each line was last seen at its last value."""
        self._marks: dict[tuple[int, str, str, str], TimelineMark] = {}
        self._states: dict[str, tuple[str, int]] = {}
        self._spans: list[Span] = []
        self._lanes: set[str] = set()
        self._left_out: dict[str, None] = {}

    def value(self, hop: Hop, unit: str, name: str, at_ms: int, value: float | None) -> None:
        """Record a track's new value; None means unknown."""
        key = (hop, unit, name)
        if key not in self._tracks:
            if value is None:
                return
            if len(self._tracks) >= MAX_TRACKS:
                self.say(f"more than {MAX_TRACKS} lines; the others are left out")
                return
            self._tracks[key] = []
        points = self._tracks[key]
        at_ms = max(at_ms, self._started_ms, points[-1][0] if points else 0)
        held_ms = self._held_ms.get(key, 0)
        self._held_ms[key] = at_ms
        if points and points[-1][1] == value:
            return
        if hop in _SLOPING and points and held_ms > points[-1][0]:
            points.append(
                (held_ms, points[-1][1])
            )  # else the chart would slope from the last change to this one
        if len(points) >= MAX_POINTS - 2:  # keep one to end with
            self.say(f"{name}: more than {MAX_POINTS} values; the later ones are left out")
            value = None
            if points[-1][1] is None:
                return
        points.append((at_ms, value))

    def lost(self, hop: Hop, at_ms: int) -> None:
        """Record that all of a hop's tracks are unknown from now on."""
        for own_hop, unit, name in tuple(self._tracks):
            if own_hop == hop:
                self.value(hop, unit, name, at_ms, None)

    def mark(self, at_ms: int, kind: str, object_: str, text: str) -> None:
        """Record an event; one before the start, or recorded already, is skipped."""
        if at_ms < self._started_ms // 1000 * 1000:  # Kubernetes writes most times in whole seconds
            return
        key = (max(at_ms, self._started_ms), kind, object_, text)
        if key not in self._marks and len(self._marks) >= MAX_MARKS:
            self.say(f"more than {MAX_MARKS} events; the later ones are left out")
            return
        self._marks[key] = TimelineMark(*key)

    def state(self, lane: str, state: str | None, at_ms: int) -> None:
        """Record an object's new state; None means it is gone."""
        before = self._states.get(lane)
        if before is not None and before[0] == state:
            return
        at_ms = max(at_ms, self._started_ms)
        if before is not None:
            del self._states[lane]
            self._spans.append(Span(lane, before[0], before[1], max(before[1], at_ms)))
        if state is None:
            return
        if lane not in self._lanes and len(self._lanes) >= MAX_LANES:
            self.say(f"more than {MAX_LANES} pods; the later ones are left out")
            return
        self._lanes.add(lane)
        self._states[lane] = (state, at_ms)

    def only(self, lanes: set[str], at_ms: int) -> None:
        """Record that only these objects still exist."""
        for lane in tuple(self._states):
            if lane not in lanes:
                self.state(lane, None, at_ms)

    def say(self, text: str) -> None:
        """Record once what could not be watched."""
        if len(self._left_out) < 100:
            self._left_out[text] = None

    def finish(self, ended_ms: int) -> Watched:
        """Return all notes; values that last to the end get a point there."""
        tracks = []
        for (hop, unit, name), points in sorted(
            self._tracks.items(), key=lambda item: item[0][2].endswith(_BESIDE)
        ):
            last_ms, last = points[-1]
            if last is not None and last_ms < ended_ms:
                points.append((ended_ms, last))
            tracks.append(Track(name, unit, hop, tuple(points)))
        for lane in tuple(self._states):
            self.state(lane, None, ended_ms)
        marks = sorted(self._marks.values(), key=lambda mark: mark.at_ms)
        spans = sorted(self._spans, key=lambda span: span.from_ms)
        return Watched(tuple(tracks), tuple(marks), tuple(spans), tuple(self._left_out))

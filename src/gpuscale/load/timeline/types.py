"""The timeline of a load: tracks of values, marks, and spans of states.

Times are whole milliseconds since the epoch. A value that was not there is None, never 0.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Hop = Literal["load", "latency", "gpu", "metric", "hpa", "replicas", "nodes"]
HOPS: tuple[Hop, ...] = get_args(Hop)
"""In the order in which a load travels: requests or Jobs; what users wait; the GPU; the served metric; what
the HPA made of it; pods, or Jobs by state; nodes."""


@dataclass(frozen=True, slots=True)
class Track:
    """A track of values over time."""

    name: str
    unit: str
    """In words or as a symbol: `requests/s`, `ms`, `%`, `pods`. Lines of one hop and unit share a chart."""
    hop: Hop
    points: tuple[tuple[int, float | None], ...]
    """(time, value), ascending; None begins a time without data, which the next value ends."""


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """An event on the timeline."""

    at_ms: int
    kind: str
    """The event's reason as Kubernetes words it, such as SuccessfulRescale."""
    object: str
    """Kind/name, such as HorizontalPodAutoscaler/bert."""
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time in one state; the spans of a lane make one row of the Gantt chart."""

    lane: str
    state: str
    """`pending`, `running`, `done`, `failed` have colours of their own; any other word may stand here."""
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A load run, as seen at each hop."""

    title: str
    started_ms: int
    ended_ms: int
    tracks: tuple[Track, ...] = ()
    marks: tuple[TimelineMark, ...] = ()
    spans: tuple[Span, ...] = ()

    def in_order(self) -> tuple[Track, ...]:
        """Return the tracks in the order of hops; those of one hop keep their order."""
        return tuple(sorted(self.tracks, key=lambda track: HOPS.index(track.hop)))

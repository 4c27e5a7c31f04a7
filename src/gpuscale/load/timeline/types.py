"""The timeline of a load: lines over time, moments, and what was in which state for how long.

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
    """One line over time."""

    name: str
    unit: str
    """In words or as a symbol: `requests/s`, `ms`, `%`, `pods`. Lines of one hop and unit share a chart."""
    hop: Hop
    points: tuple[tuple[int, float | None], ...]
    """(time, value), ascending; None begins a time without data, which the next value ends."""


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """Something that happened."""

    at_ms: int
    kind: str
    """The event's reason as Kubernetes words it, such as SuccessfulRescale."""
    object: str
    """Kind/name, such as HorizontalPodAutoscaler/bert."""
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """How long something was in a state; those of one lane are one row of the Gantt picture."""

    lane: str
    state: str
    """`pending`, `running`, `done`, `failed` have colours of their own; any other word may stand here."""
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run of load, and what each hop saw of it."""

    title: str
    started_ms: int
    ended_ms: int
    tracks: tuple[Track, ...] = ()
    marks: tuple[TimelineMark, ...] = ()
    spans: tuple[Span, ...] = ()

    def in_order(self) -> tuple[Track, ...]:
        """Return the tracks as a load travels; those of one hop stay in their order."""
        return tuple(sorted(self.tracks, key=lambda track: HOPS.index(track.hop)))

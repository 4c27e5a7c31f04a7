"""Observations of a workload, its load and its wake sources at one time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.hpa import PodInfo
from gpuscale.hpa.replicas import PodSample
from gpuscale.triggers.startup import UNKNOWN_DEADLINE_S


@dataclass(frozen=True, slots=True)
class Missing:
    """An unknown value with the reason; never 0."""

    reason: str


@dataclass(frozen=True, slots=True)
class PodsSeen:
    """The workload's pods."""

    desired: int
    """`spec.replicas` of its scale."""
    pods: tuple[PodInfo, ...] = ()
    """Those that its selector finds."""
    starting_s: tuple[float, ...] = ()
    """How long each pod that was never ready has been starting; one entry more for pods not yet there."""
    deadline_s: float = UNKNOWN_DEADLINE_S
    """How long pods like these may take, as learned from them."""
    longest_start_s: float | None = None
    """The longest of the last starts; None where no pod was ever ready."""


@dataclass(frozen=True, slots=True)
class PodLoads:
    """A metric's value for each pod that has one."""

    samples: Mapping[str, PodSample]
    measured_ms: int


@dataclass(frozen=True, slots=True)
class TotalLoad:
    """The load of the whole workload."""

    value: float
    measured_ms: int


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """A load's waiting requests, and its completion rate per second."""

    waiting: float
    finished_per_s: float


def flow_seen(
    waiting: TotalLoad | Missing, finished_per_s: TotalLoad | Missing
) -> FlowSeen | Missing:
    """Return the flow from two answers; the first missing one if any is."""
    if isinstance(waiting, Missing):
        return waiting
    if isinstance(finished_per_s, Missing):
        return finished_per_s
    return FlowSeen(max(0.0, waiting.value), max(0.0, finished_per_s.value))


@dataclass(frozen=True, slots=True)
class WakeSeen:
    """A wake source's answer."""

    source: str
    is_active: bool | None
    """None where the source is away."""
    shown: str
    """The value and the threshold, or why there is none, for people."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of a decision about a trigger."""

    now_ms: int
    """Wall time, for what is shown."""
    now_s: float
    """Monotonic time, for ages and waits."""
    load: PodLoads | TotalLoad | Missing = Missing("the load was not asked for")
    pods: PodsSeen | Missing | None = None
    """None for a trigger without a workload."""
    wakes: tuple[WakeSeen, ...] = field(default=())
    """Of every wake source, the schedule too."""
    flow: FlowSeen | Missing | None = None
    """Of a trigger with credit."""
    policy: tuple[str, ...] = ()
    """What the replicas that a policy wants rest on; they are the load then."""

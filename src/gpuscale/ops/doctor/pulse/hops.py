"""The times of the hops from load on a GPU to a ready pod, computed from observations; no I/O.

A hop has moved at the first sight in which its value is over all those before the load. What is absent is
never a change: a value that was not there before the load has nothing to be compared with.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum

GPU_RISE_PERCENT = 5.0
"""By how much a GPU has to be busier than before, in points of utilization."""
VALUE_RISE_RATIO = 0.05
"""By how much a value has to rise, as a share of its target: half of what an HPA tolerates."""


class PulseHop(Enum):
    """The hops that load passes, in order."""

    GPU = "GPU at agent"
    VALUE = "value served"
    HPA = "HPA wants more"
    CREATED = "pod created"
    SCHEDULED = "pod scheduled"
    READY = "pod ready"


HOPS = tuple(PulseHop)


class PodStage(IntEnum):
    """How far a pod has started."""

    CREATED = 0
    SCHEDULED = 1
    READY = 2


_STAGES = {
    PulseHop.CREATED: PodStage.CREATED,
    PulseHop.SCHEDULED: PodStage.SCHEDULED,
    PulseHop.READY: PodStage.READY,
}


@dataclass(frozen=True, slots=True)
class PulseSight:
    """One observation of the chain."""

    at_ms: int
    gpu_percent: float | None = None
    """Of the busiest GPU that the agents give to the workload's pods; None where none is known."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The highest item of each metric, by its name; those without a value are left out."""
    wanted: int | None = None
    """Replicas that the HPA wants."""
    pods: Mapping[str, PodStage] = field(default_factory=dict)
    """By UID."""
    faults: Mapping[PulseHop, str] = field(default_factory=dict)
    """What the cluster says of hops that can't be seen or don't move."""


@dataclass(frozen=True, slots=True)
class HopTime:
    """When a hop reacted."""

    hop: PulseHop
    after_ms: int | None
    """Since the start; None where it was not seen to move."""


@dataclass(frozen=True, slots=True)
class LoadCount:
    """Counts of the requests that made the load."""

    answered: int = 0
    failed: int = 0
    fault: str = ""
    """The last failure."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The result of one pulse."""

    about: str
    """The HPA, as `hpa/namespace/name`."""
    times: tuple[HopTime, ...]
    every_ms: int
    """From one look to the next, which is how exact the times are."""
    fault: str = ""
    """What the cluster says of the hop that is stuck."""
    fix: str = ""
    """What likely helps there."""
    load: LoadCount | None = None
    """None where somebody else made it."""

    @property
    def stuck(self) -> PulseHop | None:
        """Return the first hop that did not react, after those that did; None if the load came through."""
        return stuck_hop(self.times)


class PulseObserver:
    """Compares observations with the state before the load.

    Args:
        before: at least one sight.
        targets: of the metrics, by name, as far as they have one.
    """

    def __init__(self, before: Sequence[PulseSight], targets: Mapping[str, float]) -> None:
        self._gpu = _highest(sight.gpu_percent for sight in before)
        self._wanted = _highest(sight.wanted for sight in before)
        self._pods = frozenset(uid for sight in before for uid in sight.pods)
        names = {name for sight in before for name in sight.values}
        self._limits = {
            name: highest + VALUE_RISE_RATIO * abs(targets.get(name, highest))
            for name in names
            if (highest := _highest(sight.values.get(name) for sight in before)) is not None
        }
        self._moved: dict[PulseHop, int] = {}

    def see(self, sight: PulseSight) -> None:
        """Record the hops that have reacted in an observation."""
        for hop in HOPS:
            if hop not in self._moved and self._has_moved(hop, sight):
                self._moved[hop] = sight.at_ms

    @property
    def first_ms(self) -> int | None:
        return min(self._moved.values(), default=None)

    @property
    def is_through(self) -> bool:
        return PulseHop.READY in self._moved

    def times(self, start_ms: int) -> tuple[HopTime, ...]:
        """Return when each hop reacted, since the start."""
        return tuple(
            HopTime(hop, self._moved[hop] - start_ms if hop in self._moved else None)
            for hop in HOPS
        )

    def _has_moved(self, hop: PulseHop, sight: PulseSight) -> bool:
        match hop:
            case PulseHop.GPU:
                seen, before = sight.gpu_percent, self._gpu
                return seen is not None and before is not None and seen > before + GPU_RISE_PERCENT
            case PulseHop.VALUE:
                limits = self._limits
                return any(limits.get(name, value) < value for name, value in sight.values.items())
            case PulseHop.HPA:
                wanted, usual = sight.wanted, self._wanted
                return wanted is not None and usual is not None and wanted > usual
            case _:
                stage = _STAGES[hop]
                new = sight.pods.keys() - self._pods
                return any(sight.pods[uid] >= stage for uid in new)


def stuck_hop(times: Sequence[HopTime]) -> PulseHop | None:
    """Return the first hop after all that reacted; None if the last one did.

    One that was not seen to move before one that did was passed all the same, as where an agent can't be
    asked from here.
    """
    last = max((place for place, each in enumerate(times) if each.after_ms is not None), default=-1)
    return times[last + 1].hop if last + 1 < len(times) else None


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)

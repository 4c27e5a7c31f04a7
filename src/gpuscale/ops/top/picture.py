"""What a cluster or machine does at one moment, as `gpuscale top` shows it. Plain values, no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from gpuscale.base.words import rfc3339


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU, or a MIG instance of one. None where nobody says."""

    node: str
    index: str
    """As the driver counts: `0`; an instance is `0/7`."""
    uuid: str
    model: str
    use_percent: float | None
    """Share of time in which a kernel ran; of an instance, how far its engines were active."""
    memory_used_mib: float | None
    memory_total_mib: float | None
    power_watts: float | None
    temperature_celsius: float | None
    owners: tuple[str, ...]
    """Who has it: `namespace/pod`, or a process of this machine."""
    faults: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.node} {self.index}" if self.node else self.index


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs."""

    name: str
    instance_type: str
    pool: str
    """As its cloud or Karpenter labels it; empty where it has no such label."""
    status: str
    """As `kubectl get nodes` writes it."""
    gpus: int
    """Allocatable; partitions and shares count as one each."""
    asked_gpus: int
    """By the pods on it."""
    use_percent: float | None
    """Mean over its GPUs that say."""
    age_s: float | None
    notes: tuple[str, ...]
    """Why pods stay off it for now."""
    is_spot: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload that an HPA scales."""

    namespace: str
    name: str
    """The HPA's."""
    target: str
    """`Kind/name`."""
    metrics: str
    """Value and target of each metric, as `kubectl get hpa` writes them; the deciding one first."""
    times_target: float | None
    """The highest value of a metric, as a multiple of its target."""
    least: int
    most: int
    replicas: int
    """At the controller's last sync."""
    wanted: int
    running: int
    """Pods that are Ready."""
    pending: int
    """Pods without a node."""
    reason: str
    """Why it has the replicas that it has; why pods wait, where some do."""
    signal: str = ""
    """Name of the deciding metric."""
    value: float | None = None
    """Of it, as the controller saw it last."""
    target_value: float | None = None
    is_percent: bool = False
    """Whether both are percent of the request."""
    use_percent: float | None = None
    """Mean over the GPUs that its pods have."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A Job whose pods ask for GPUs."""

    namespace: str
    name: str
    pending: int
    running: int
    succeeded: int
    failed: int
    planned: int | None
    """Completions that it needs; None where it ends with any."""
    age_s: float | None
    state: str
    """`Suspended`, `Complete`, `Failed`, `Running`, or `Waiting`."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event about scaling, nodes or pods that wait."""

    at_ms: int
    kind: str
    """`Normal` or `Warning`."""
    reason: str
    about: str
    """`kind/name`, with the namespace where it has one."""
    message: str
    count: int


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    at_ms: int
    source: str
    """Where it is from, in words."""
    gpus: tuple[GpuRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    """The newest first."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, each with the reason and what would let it."""


class Reader(Protocol):
    """What takes pictures."""

    async def look(self) -> Picture:
        """Return what is there now.

        Raises:
            GpuscaleError: nothing of it can be looked at.
        """
        ...


def mean_use(gpus: Sequence[GpuRow]) -> float | None:
    """Return the mean use of the GPUs that say, in percent."""
    known = [each.use_percent for each in gpus if each.use_percent is not None]
    return sum(known) / len(known) if known else None


def picture_document(picture: Picture) -> Mapping[str, object]:
    """Return a picture for programs: units are in the names, what nobody says is null."""
    document = asdict(picture)
    at_ms = document.pop("at_ms")
    for event in document["events"]:
        event["time"] = rfc3339(event.pop("at_ms") / 1000)
    return {"time": rfc3339(at_ms / 1000), **document}

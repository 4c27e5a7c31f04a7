"""Who uses a GPU: containers by device, as the kubelet allocates, and by process, as cgroups show.

And how many GPUs of a node Kubernetes counts, which is served also where nothing asks for owners.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """One container of one pod."""

    namespace: str
    pod: str
    container: str
    pod_uid: str = ""
    """Empty where only names are known."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The pod's own labels, as far as they may be served."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The resource claim that a GPU was given by, and the device's name in it."""

    namespace: str
    name: str
    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Holding:
    """One container's hold of one GPU."""

    container: ContainerRef
    replica: str = ""
    """Which share of a GPU that is shared; empty for all of it."""
    claim: ClaimRef | None = None
    """None where it was given by a device plugin."""


@dataclass(frozen=True, slots=True)
class Grant:
    """How much of one GPU a container was given. None is what is not limited, or not known."""

    memory_mib: int | None = None
    memory_part: float | None = None
    """0 to 1, where memory is given as a part of the GPU's."""
    cores_percent: float | None = None
    """Of the GPU's time or multiprocessors."""

    def memory_of(self, total_mib: int | None) -> int | None:
        """Return the memory in MiB of a GPU that has so much."""
        if self.memory_mib is not None:
            return self.memory_mib
        if self.memory_part is None or total_mib is None:
            return None
        return round(self.memory_part * total_mib)

    def plus(self, other: "Grant") -> "Grant":
        """Return both together."""
        return Grant(
            _sum(self.memory_mib, other.memory_mib),
            _sum(self.memory_part, other.memory_part),
            _sum(self.cores_percent, other.cores_percent),
        )


Amount = TypeVar("Amount", int, float)


def _sum(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


@dataclass(frozen=True, slots=True)
class Unattributed:
    """A thing whose owner was looked for and not found."""

    reason: str
    """One of a fixed set of words, fit for a metric's label, such as `socket_unreachable`."""
    subject: str = ""
    """The device id, PID or path that it is about."""
    detail: str = ""
    """What a log line adds: what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The owners of a node's GPUs at one time."""

    by_gpu: Mapping[str, tuple[ContainerRef, ...]] = field(default_factory=dict)
    """UUID of a GPU or MIG instance (`GpuIdentity.allocated_as`) to the containers that it is allocated to;
    several when it is shared."""
    by_pid: Mapping[int, ContainerRef] = field(default_factory=dict)
    """Host PID to its container; a PID that is missing, and not in `unknown_pids`, belongs to none."""
    missing: tuple["Unattributed", ...] = ()
    """What could not be tied to a container, and why."""
    unknown_pids: frozenset[int] = frozenset()
    """Processes whose container could not be found out: they may be anybody's."""
    is_known: bool = True
    """Whether it was found out what the containers were given; if not, a GPU without one may have one."""
    holdings: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict, compare=False)
    """The UUIDs of `by_gpu` to what each container was given: several where it has several shares."""
    grants: Mapping[str, Mapping[ContainerRef, Grant]] = field(default_factory=dict)
    """UUID of a GPU that is handed out in parts, to what each container was given of it. All of them are
    in `by_gpu` too."""
    unplaced: frozenset[ContainerRef] = frozenset()
    """Containers that were given a part of a GPU, without it being known which GPU."""


@dataclass(frozen=True, slots=True)
class NodeGpuResources:
    """GPUs as Kubernetes counts them. None and missing mean unknown."""

    capacity: int | None = None
    """What the node has; only the API server knows."""
    allocatable: int | None = None
    """What pods may be given."""
    containers: Mapping[ContainerRef, int] = field(default_factory=dict)
    """GPUs that each container asked for, which is its request and its limit."""

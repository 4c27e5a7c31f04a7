"""Readings of pods' GPUs, taken once for all pods that work alike.

The pods of a workload share its requests, so those that were ready throughout a window read the same. A
moment costs a reading for each kind of pod, and a look at the pods of workloads where something has changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.agent.gpu import GpuReading
from gpuscale.base.objects.pods import Pod
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.containers import Process
from gpuscale.lab.sim.load.agents import SimulatedGpus
from gpuscale.lab.sim.pod_index import FINISHED, OwnerKey

_SETTLED_MS = 0
"""Since when a pod has worked that has worked for longer than a window."""
_NEVER_MS = -1

_Kind = tuple[int, int, int]
"""The GPU model by its identity, how many GPUs the pod holds, and since when it works."""


@dataclass(slots=True, eq=False)
class AlikeReadings:
    """The latest reading, shared by pods that work alike."""

    node: str
    index: int
    """A GPU that one of them holds."""
    gpus: int
    """How many each of them holds."""
    values: dict[str, list[float]] = field(default_factory=dict)
    """Series to the values of a pod's GPUs; none where it has no sample."""
    utilization: float | None = None
    results: dict[str, int] = field(default_factory=dict)
    """What was made of the values of a series, for as long as they hold."""


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod with its GPUs."""

    node: str
    indices: tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Workload:
    version: int = -1
    members: dict[str, GpuPod] = field(default_factory=dict)
    kinds: dict[_Kind, AlikeReadings] = field(default_factory=dict)

    def has_settled(self, from_ms: int) -> bool:
        """Return whether pods of different kinds have become alike by now."""
        return any(_SETTLED_MS < since_ms <= from_ms for _, _, since_ms in self.kinds)


class SharedReadings:
    """The readings of all GPUs held by pods.

    Args:
        cluster: who holds which.
        gpus: reads them.
        processes: pod key to its process while one runs.
        window_ms: what a reading is a mean over.
        series: those that are looked at.
        values_of: the samples of a series that one GPU gives.
        percent_of: how busy a reading says its GPU was.
    """

    def __init__(
        self,
        cluster: Cluster,
        gpus: SimulatedGpus,
        processes: Mapping[str, Process],
        window_ms: int,
        series: Sequence[str],
        values_of: Callable[[GpuReading, str], Iterator[float]],
        percent_of: Callable[[GpuReading], float | None],
    ) -> None:
        self.by_pod: dict[str, AlikeReadings] = {}
        """Pod key to what its GPUs read."""
        self._cluster = cluster
        self._gpus = gpus
        self._processes = processes
        self._window_ms = window_ms
        self._series = series
        self._values_of = values_of
        self._percent_of = percent_of
        self._workloads: dict[OwnerKey, _Workload] = {}

    def read(self, now_ms: int) -> frozenset[str]:
        """Read all GPUs; return the series that had a sample."""
        index, from_ms = self._cluster.index, now_ms - self._window_ms
        for owner in [owner for owner in self._workloads if owner not in index.owners()]:
            self._forget(self._workloads.pop(owner))
        found: set[str] = set()
        for owner in index.owners():
            if owner[0] == "DaemonSet":
                continue
            workload = self._workloads.setdefault(owner, _Workload())
            if workload.version != index.owner_versions[owner] or workload.has_settled(from_ms):
                self._sort(workload, index.owned_by(owner), from_ms)
                workload.version = index.owner_versions[owner]
            for shared in workload.kinds.values():
                self._read_one(shared, now_ms)
                found.update(shared.values)
        return frozenset(found)

    def utilization(self) -> dict[str, float | None]:
        """Return utilization in percent by series: `gpu/NODE/INDEX`, and `pod/NAMESPACE/POD` if known."""
        shown: dict[str, float | None] = {}
        for workload in self._workloads.values():
            for key, member in workload.members.items():
                percent = self.by_pod[key].utilization
                for index in member.indices:
                    shown[f"gpu/{member.node}/{index}"] = percent
                if percent is not None:
                    shown[f"pod/{key}"] = percent
        return shown

    def _forget(self, workload: _Workload) -> None:
        for key in workload.members:
            self.by_pod.pop(key, None)

    def _sort(self, workload: _Workload, pods: Sequence[Pod], from_ms: int) -> None:
        """Group a workload's pods with GPUs into kinds that have equal readings."""
        self._forget(workload)
        known, workload.members, workload.kinds = workload.members, {}, {}
        for pod in pods:
            node, key = pod.spec.node_name, pod.metadata.key
            if not node or pod.status.phase in FINISHED:
                continue
            member = known.get(key) or GpuPod(node, self._indices(node, key))
            if not member.indices:
                continue
            model = id(self._gpus.readers[node].model)
            kind = (model, len(member.indices), self._since_ms(pod, from_ms))
            shared = workload.kinds.get(kind)
            if shared is None:
                shared = AlikeReadings(node, member.indices[0], len(member.indices))
                workload.kinds[kind] = shared
            workload.members[key] = member
            self.by_pod[key] = shared

    def _indices(self, node: str, key: str) -> tuple[int, ...]:
        holders = self._cluster.devices.holders(node)
        return tuple(index for index, keys in enumerate(holders) if key in keys)

    def _since_ms(self, pod: Pod, from_ms: int) -> int:
        process = self._processes.get(pod.metadata.key)
        since_ms = self._gpus.works_since_ms(pod, process) if process else None
        if since_ms is None:
            return _NEVER_MS if process is None else _NEVER_MS - 1
        return _SETTLED_MS if since_ms <= from_ms else since_ms

    def _read_one(self, shared: AlikeReadings, now_ms: int) -> None:
        reading = self._gpus.read_one(shared.node, shared.index, now_ms)
        shared.values = {
            name: values * shared.gpus
            for name in self._series
            if (values := list(self._values_of(reading, name)))
        }
        shared.utilization = self._percent_of(reading)
        shared.results = {}

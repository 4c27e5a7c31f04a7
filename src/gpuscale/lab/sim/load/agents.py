"""The GPUs of simulated nodes: the work on them, and the pods they belong to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.agent.gpu import (
    Attribution,
    ContainerRef,
    GpuModel,
    GpuReading,
    GpuWork,
    SimulatedReader,
)
from gpuscale.base.objects.pods import Pod
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.containers import Process
from gpuscale.lab.sim.load.service import SimulatedService

COPY_PER_BUSY = 0.45
"""Memory-copy time per busy time of an inference kernel; a plausible middle, no measurement."""


@dataclass(frozen=True, slots=True)
class PodWork:
    """The work of a pod's process on each of its GPUs."""

    memory_mib: int
    service: SimulatedService | None
    """Whose requests keep it busy once it is ready."""
    steady_ratio: float = 0.0
    """How busy it is from its start on, where no service says so."""
    group_since_ms: Callable[[Pod], int | None] | None = None
    """Returns since when the group of a pod works; None: each pod works by itself."""

    def since_ms(self, pod: Pod, started_ms: int) -> int | None:
        """Return since when a pod whose process started then does its work; None if it does not yet."""
        if self.group_since_ms is not None:
            group_ms = self.group_since_ms(pod)
            return None if group_ms is None else max(group_ms, started_ms)
        if self.service is None:
            return started_ms
        return pod.status.ready_transition_ms if pod.status.ready else None


class SimulatedGpus:
    """A GPU reader for each node, fed by the work of its pods.

    Args:
        cluster: which pod holds which GPU.
        processes: pod key to its process while one runs.
        seed: of the readings' small noise.
        window_ms: what utilisation is averaged over.
        fields: what to read; None is all.
    """

    def __init__(
        self,
        cluster: Cluster,
        processes: Mapping[str, Process],
        seed: int,
        window_ms: int,
        fields: frozenset[str] | None,
    ) -> None:
        self.readers: dict[str, SimulatedReader] = {}
        self.work: dict[str, PodWork] = {}
        """Workload key (`kind namespace/name` of the pod's owner) to what its pods do."""
        self._cluster = cluster
        self._processes = processes
        self._seed = seed
        self._window_ms = window_ms
        self._fields = fields

    def join(self, node: str, model: GpuModel, count: int) -> None:
        """Add `count` GPUs of one model to a node."""

        def work(index: int, from_ms: int, to_ms: int) -> Sequence[GpuWork]:
            return self._work_on(node, index, from_ms, to_ms)

        self.readers[node] = SimulatedReader(
            node, model, count, self._seed, work, self._window_ms, fields=self._fields
        )

    def leave(self, node: str) -> None:
        del self.readers[node]

    def attribution(self, node: str) -> Attribution:
        """Return the pods and processes on a node's GPUs; none for a removed node."""
        if node not in self.readers:
            return Attribution()
        by_gpu: dict[str, tuple[ContainerRef, ...]] = {}
        by_pid: dict[int, ContainerRef] = {}
        holders = self._cluster.devices.holders(node)
        for gpu, keys in zip(self.readers[node].gpus(), holders, strict=False):
            for key in keys:
                container = _container(self._cluster.pods[key])
                by_gpu[gpu.allocated_as] = (*by_gpu.get(gpu.allocated_as, ()), container)
                process = self._processes.get(key)
                if process is not None:
                    by_pid[process.pid] = container
        return Attribution(by_gpu, by_pid)

    def read(self, node: str, now_ms: int) -> tuple[GpuReading, ...]:
        return self.readers[node].read(now_ms)

    def read_one(self, node: str, index: int, now_ms: int) -> GpuReading:
        return self.readers[node].read_one(index, now_ms)

    def works_since_ms(self, pod: Pod, process: Process) -> int | None:
        """Return since when a pod does its owner's work; None if it does not yet."""
        return self.work[owner_key(pod)].since_ms(pod, process.started_ms)

    def _work_on(self, node: str, index: int, from_ms: int, to_ms: int) -> Sequence[GpuWork]:
        found: list[GpuWork] = []
        for key in self._cluster.devices.holders(node)[index]:
            process = self._processes.get(key)
            if process is None:
                continue
            pod = self._cluster.pods[key]
            work = self.work[owner_key(pod)]
            busy = _busy_ratio(pod, work, process.started_ms, from_ms, to_ms)
            name = pod.spec.containers[0].name
            found.append(GpuWork(process.pid, name, busy, busy * COPY_PER_BUSY, work.memory_mib))
        return tuple(found)


def owner_key(pod: Pod) -> str:
    """Return the key of a pod owner's work."""
    owner = pod.metadata.owner
    return f"{owner.kind} {pod.metadata.namespace}/{owner.name}" if owner else ""


def _busy_ratio(pod: Pod, work: PodWork, started_ms: int, from_ms: int, to_ms: int) -> float:
    """Return the busy share of a window, in which the pod may have worked at the end only."""
    if to_ms <= from_ms:
        return 0.0
    since_ms = work.since_ms(pod, started_ms)
    if since_ms is None:
        return 0.0
    if work.service is None:
        return work.steady_ratio * _share(since_ms, from_ms, to_ms)
    busy = work.service.busy_ratio(max(from_ms, since_ms), to_ms)
    return busy * _share(since_ms, from_ms, to_ms)


def _share(since_ms: int, from_ms: int, to_ms: int) -> float:
    return max(0.0, (to_ms - max(from_ms, since_ms)) / (to_ms - from_ms))


def _container(pod: Pod) -> ContainerRef:
    """Return the container that requests the GPU; the first one if several do."""
    for container in pod.spec.containers:
        if any("gpu" in resource for resource in container.requests):
            return ContainerRef(pod.metadata.namespace, pod.metadata.name, container.name)
    return ContainerRef(pod.metadata.namespace, pod.metadata.name, pod.spec.containers[0].name)

"""The owners of a node's GPUs, updated in the background and answered from memory.

Three sources are followed at their own pace: the kubelet's allocations, the API server's pods (when asked
for), and the cgroups of processes. An answer only joins what they last said. The one thing read while
answering is the cgroup of a process that was never seen before; without it, each new process would count as
unattributed once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.agent.attribution.cluster import ClusterFollower, ViewSource
from gpuscale.agent.attribution.join import (
    GpuOwners,
    gpu_owners,
    process_owners,
    unknown_processes,
    with_shares,
)
from gpuscale.agent.attribution.kubelet.allocations import NodeAllocations
from gpuscale.agent.attribution.kubelet.kubelet import AllocationSource, KubeletFollower
from gpuscale.agent.attribution.processes.host_processes import HostProcesses
from gpuscale.agent.attribution.processes.processes import PodDirectory
from gpuscale.agent.attribution.resources import gpu_resources
from gpuscale.agent.attribution.settings import AttributionSettings, KubeletSettings, NodeSettings
from gpuscale.agent.attribution.sharing.shared_gpus import SharedGpus, shared_gpus
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, NodeGpuResources, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import UsageError
from gpuscale.kube.informers import DeviceKey, NodeView

_log = logging.getLogger(__name__)
_RESTART_S = 30.0
"""Wait before a follower that broke off by a fault of ours is started again."""
_NO_DIRECTORY = PodDirectory()
_NO_VIEW = NodeView()


@dataclass(frozen=True, slots=True)
class _JoinInputs:
    """The inputs of the join, compared to see whether it must run again."""

    allocations: NodeAllocations
    directory: PodDirectory
    claim_devices: Mapping[DeviceKey, str]
    gpus: tuple[GpuIdentity, ...]

    def is_same(self, other: "_JoinInputs | None") -> bool:
        return (
            other is not None
            and self.allocations is other.allocations
            and self.directory is other.directory
            and self.claim_devices is other.claim_devices
            and self.gpus == other.gpus
        )


class NodeAttribution:
    """Answers who uses the node's GPUs; pass it to a `NodeAgent` and let `run` run beside.

    Args:
        settings: where to look.
        clock: paces the refreshes and ages what is known.

    Raises:
        UsageError: a package is missing, or there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
        ValueError: an expression for pod labels is not RE2.
    """

    def __init__(self, settings: AttributionSettings, clock: Clock | None = None) -> None:
        clock = clock or WallClock()
        kubelet, keep_s = settings.kubelet, settings.keep_s
        self._settings = settings
        self._clock = clock
        self._kubelet = KubeletFollower(_source(kubelet), str(kubelet.socket), keep_s, clock)
        self._cluster = (
            ClusterFollower(_watcher(settings.kubernetes, clock), keep_s, clock)
            if settings.kubernetes
            else None
        )
        self._processes = HostProcesses(settings.proc_root, settings.own_proc_root)
        self._inputs: _JoinInputs | None = None
        self._owners = GpuOwners()
        self._shared = SharedGpus()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._asked = asyncio.Event()

    def __call__(self, readings: Sequence[GpuReading]) -> Attribution:
        """Return the current owners of the GPUs in these readings."""
        owners = self._gpu_owners(tuple(reading.gpu for reading in readings))
        by_pid: dict[int, ContainerRef] = {}
        process_gaps: tuple[Unattributed, ...]
        hidden = self._processes.look_at(readings)
        if hidden is None:
            by_pid, process_gaps = process_owners(
                readings, owners.by_gpu, self._directory, self._processes.place
            )
        else:
            process_gaps = (hidden,)
        kubelet_gap = self._kubelet.gap()
        kubelet_gaps = () if kubelet_gap is None else (kubelet_gap,)
        cluster_gaps = self._cluster.gaps() if self._cluster is not None else ()
        shared = self._shared
        return Attribution(
            owners.by_gpu,
            by_pid,
            (*kubelet_gaps, *cluster_gaps, *owners.missing, *shared.missing, *process_gaps),
            unknown_processes(readings, by_pid, process_gaps, has_unplaced=bool(shared.unplaced)),
            is_known=self._kubelet.allocations is not None,
            holdings=owners.holdings,
            grants=shared.grants,
            unplaced=shared.unplaced,
        )

    async def asked(self) -> None:
        """Wait until the kubelet was asked once, with any result."""
        await self._asked.wait()

    def gpu_resources(self) -> NodeGpuResources:
        """Return the node's GPUs as Kubernetes counts them, and how many each container asked for."""
        return gpu_resources(
            self._kubelet.allocations,
            self._view,
            self._directory,
            self._settings.kubelet.resource_names,
        )

    async def refresh(self) -> None:
        """Ask the kubelet once, and read known processes again."""
        self._processes.refresh()
        await self._kubelet.refresh()
        if self._cluster is not None and self._kubelet.has_claims:
            self._cluster.want_claims()

    async def run(self) -> None:
        """Update the owners in the background until cancelled or closed."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_refresh(), name="attribution-refresh")]
                if self._cluster is not None:
                    tasks.append(
                        group.create_task(self._run_cluster(self._cluster), name="attribution-kube")
                    )
                self._tasks = tuple(tasks)
        finally:
            await self._release()

    async def close(self) -> None:
        """End `run` and close the connection to the API server; a second call does nothing."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._release()

    @property
    def _view(self) -> NodeView:
        return self._cluster.view if self._cluster is not None else _NO_VIEW

    @property
    def _directory(self) -> PodDirectory:
        return self._cluster.directory if self._cluster is not None else _NO_DIRECTORY

    def _gpu_owners(self, gpus: tuple[GpuIdentity, ...]) -> GpuOwners:
        allocations = self._kubelet.allocations
        if allocations is None:
            self._shared = SharedGpus()
            return GpuOwners()
        inputs = _JoinInputs(allocations, self._directory, self._view.claim_devices, gpus)
        if not inputs.is_same(self._inputs):
            self._inputs = inputs
            owners = gpu_owners(allocations, inputs.directory, gpus, inputs.claim_devices)
            self._shared = shared_gpus(allocations, self._view.pods, inputs.directory, gpus)
            self._owners = with_shares(owners, self._shared)
        return self._owners

    async def _release(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    async def _run_refresh(self) -> None:
        while True:
            await _guarded("looking for the owners of GPUs", self.refresh)
            self._asked.set()
            await self._clock.sleep(self._settings.refresh_interval_s)

    async def _run_cluster(self, cluster: ClusterFollower) -> None:
        while True:
            await _guarded("following the API server", cluster.run)
            await self._clock.sleep(_RESTART_S)


async def _guarded(what: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # noqa: BLE001 - the task's top: GPUs are worth serving without owners
        _log.exception("%s broke off", what)


def _source(settings: KubeletSettings) -> AllocationSource:
    try:
        from gpuscale.agent.attribution.kubelet.podresources import PodResourcesClient
    except ImportError as error:
        raise UsageError(_missing_package("the kubelet", error)) from error
    return PodResourcesClient(settings)


def _watcher(settings: NodeSettings, clock: Clock) -> ViewSource:
    try:
        from gpuscale.agent.attribution.pods.node_pods import NodeWatcher

        return NodeWatcher(settings, clock)
    except ImportError as error:
        raise UsageError(_missing_package("the API server", error)) from error


def _missing_package(who: str, error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    return f"asking {who} needs the package {package}; install gpuscale[kubernetes]"

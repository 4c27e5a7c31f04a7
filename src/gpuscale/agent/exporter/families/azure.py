"""The seven GPU metrics of Azure Monitor's Container Insights, as Prometheus families.

Names are Azure's. Dimensions become labels; `/` and `.`, which a label name can't have, become `_`, so
`container.azm.ms/clusterId` is `container_azm_ms_clusterId`. As there, a container is named by its pod's
UID and its own name. Values that change are means of the last 60 s.

Source: Microsoft, "Monitor GPU clusters with Container insights"; microsoft/Docker-Provider,
    source/plugins/ruby/CAdvisorMetricsAPIClient.rb (the value of containerName).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuscale.agent.exporter.families.containers import GpuShares
from gpuscale.agent.gpu.owners import ContainerRef, NodeGpuResources
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.agent.panels import SERIES
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.settings import TEXT

ABSENT = "gpuscale_exporter_azure_absent_metrics"
WINDOW_MS = 60_000
_MIB = 1024 * 1024
_TOTAL_FIELD = "DCGM_FI_DEV_FB_TOTAL"
AZURE_FIELDS = frozenset({_TOTAL_FIELD})
"""What a reader has to read for these families, whatever the counters file says."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AzureCluster:
    """The cluster's labels on every sample."""

    id: str = SERIES.option(
        TEXT,
        "azure-cluster-id",
        "Resource id of the cluster in Azure, for /metrics/azure.",
        env="GPUSCALE_EXPORTER_AZURE_CLUSTER_ID",
        is_ours=True,
    )
    name: str = SERIES.option(
        TEXT,
        "azure-cluster-name",
        "Name of the cluster in Azure, for /metrics/azure.",
        env="GPUSCALE_EXPORTER_AZURE_CLUSTER_NAME",
        is_ours=True,
    )
    vendor: str = "nvidia"

    @property
    def labels(self) -> Labels:
        """Return the two dimensions that every metric has."""
        return (
            ("container_azm_ms_clusterId", self.id),
            ("container_azm_ms_clusterName", self.name),
        )


@dataclass(frozen=True, slots=True)
class _Use:
    """One container's use of one GPU in one collect."""

    at_ms: int
    util_percent: int
    memory_mib: int | None
    total_mib: int | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A container on a GPU."""

    gpu: GpuIdentity
    container: ContainerRef


class AzureMetrics:
    """The last minute of each container's GPU use."""

    def __init__(self, cluster: AzureCluster) -> None:
        self._cluster = cluster
        self._uses: dict[_Place, deque[_Use]] = {}

    def observe(self, gpus: Iterable[GpuShares], now_ms: int) -> None:
        for gpu in gpus:
            total = gpu.reading.values.get(_TOTAL_FIELD)
            total_mib = None if total is None else int(total)
            for share in gpu.shares:
                if share.container is not None:
                    place = _Place(gpu.reading.gpu, share.container)
                    use = _Use(now_ms, share.sm_util, share.memory_used_mib, total_mib)
                    self._uses.setdefault(place, deque()).append(use)
        self._forget(now_ms)

    def families(self, resources: NodeGpuResources) -> tuple[Family, ...]:
        families = (
            *self._use_families(),
            *self._container_families(resources),
            self._node_family("nodeGpuAllocatable", "GPUs to give to pods.", resources.allocatable),
            self._node_family("nodeGpuCapacity", "GPUs of the node.", resources.capacity),
            _absent_family(resources),
        )
        return tuple(family for family in families if family.samples)

    def _forget(self, now_ms: int) -> None:
        """Drop values older than the window, and those from before a clock was set back."""
        for place, uses in tuple(self._uses.items()):
            while uses and not now_ms - WINDOW_MS < uses[0].at_ms <= now_ms:
                uses.popleft()
            if not uses:
                del self._uses[place]

    def _use_families(self) -> tuple[Family, ...]:
        duty, total, used = [], [], []
        for place, uses in self._uses.items():
            labels = self._place_labels(place)
            duty.append(Sample(labels, _mean([use.util_percent for use in uses])))
            held = [use.memory_mib for use in uses if use.memory_mib is not None]
            if held:
                used.append(Sample(labels, round(_mean(held) * _MIB)))
            if uses[-1].total_mib is not None:
                total.append(Sample(labels, uses[-1].total_mib * _MIB))
        busy = "Time in which the container kept the GPU busy, mean of 60 s (%)."
        return (
            _gauge("containerGpuDutyCycle", busy, duty),
            _gauge("containerGpumemoryTotalBytes", "Memory of the GPU (bytes).", total),
            _gauge("containerGpumemoryUsedBytes", "Memory held, mean of 60 s (bytes).", used),
        )

    def _container_families(self, resources: NodeGpuResources) -> tuple[Family, ...]:
        samples = [
            Sample((*self._cluster.labels, ("containerName", container_name(container))), count)
            for container, count in resources.containers.items()
        ]
        return (
            _gauge("containerGpuLimits", "Limit of the container (GPUs).", samples),
            _gauge("containerGpuRequests", "Request of the container (GPUs).", samples),
        )

    def _node_family(self, name: str, help_: str, count: int | None) -> Family:
        labels = (*self._cluster.labels, ("gpuVendor", self._cluster.vendor))
        return _gauge(name, help_, [] if count is None else [Sample(labels, count)])

    def _place_labels(self, place: _Place) -> Labels:
        return (
            *self._cluster.labels,
            ("containerName", container_name(place.container)),
            ("gpuId", place.gpu.allocated_as),
            ("gpuModel", place.gpu.model),
            ("gpuVendor", self._cluster.vendor),
        )


def _absent_family(resources: NodeGpuResources) -> Family:
    """Return which of the node's counts are unknown, and why."""
    counts = {
        # The kubelet does not report it.
        "nodeGpuCapacity": (resources.capacity, "no_api_server"),
        "nodeGpuAllocatable": (resources.allocatable, "no_kubelet"),
    }
    absent = [
        Sample((("metric", name), ("reason", reason)), 1)
        for name, (count, reason) in counts.items()
        if count is None
    ]
    return _gauge(ABSENT, "Metrics of Container Insights without a value, by reason.", absent)


def container_name(container: ContainerRef) -> str:
    """Return Azure's name of a container; without a UID the pod's namespace and name are used."""
    pod = container.pod_uid or f"{container.namespace}/{container.pod}"
    return f"{pod}/{container.container}"


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _gauge(name: str, help_: str, samples: Iterable[Sample]) -> Family:
    return Family(name, "gauge", help_, tuple(samples))

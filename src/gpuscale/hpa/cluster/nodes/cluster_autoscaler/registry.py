"""What the autoscaler knows of its pools: who is ready, on the way or late, and which pools have failed.

Source: cluster-autoscaler/clusterstate/clusterstate.go, utils/backoff/exponential_backoff.go and
processors/customresources/gpu_processor.go (1.35).
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from gpuscale.base.objects.nodes import Node
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.clouds import CLOUDS, CloudProvider
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import AutoscalerSettings

GPU_RESOURCES = (
    "nvidia.com/gpu",
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "amd.com/gpu",
    "microsoft.com/directx",
)
"""Source: utils/gpu/gpu.go (GPUVendorResourceNames)."""
_DRA_LABEL = "cloud.google.com/gke-gpu-dra-driver"


@dataclass(slots=True)
class Readiness:
    """The nodes of one pool."""

    ready: list[PoolNode] = field(default_factory=list)
    unready: list[PoolNode] = field(default_factory=list)
    """That took too long to become ready."""
    not_started: list[PoolNode] = field(default_factory=list)
    unregistered: list[PoolNode] = field(default_factory=list)
    long_unregistered: list[PoolNode] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return how many nodes the pool is to have."""
        here = len(self.ready) + len(self.unready)
        return here + self.upcoming + len(self.long_unregistered)

    @property
    def upcoming(self) -> int:
        """Return how many nodes are on the way."""
        return len(self.not_started) + len(self.unregistered)


@dataclass(slots=True)
class _Backoff:
    duration_ms: int
    until_ms: int
    failed_ms: int


@dataclass(slots=True)
class _ScaleUpRequest:
    increase: int
    expected_ms: int


class Registry:
    """The state of the pools, and what is remembered of it from pass to pass."""

    def __init__(self) -> None:
        self.pools: dict[str, Readiness] = {}
        self.settings = AutoscalerSettings()
        self._requests: dict[str, _ScaleUpRequest] = {}
        self._unregistered_since: dict[str, int] = {}
        self._backoffs: dict[str, _Backoff] = {}

    @property
    def cloud(self) -> CloudProvider:
        return CLOUDS.get(self.settings.cloud_provider, CLOUDS[""])

    def update(self, request: NodeRequest) -> None:
        """Take in the nodes of a pass and what has failed since the one before."""
        self.settings, now_ms = request.settings, request.now_ms
        self.pools = {pool.name: Readiness() for pool in request.pools}
        waiting = self._unregistered_since
        self._unregistered_since = {}
        for node in request.nodes:
            of_pool = self.pools[node.pool]
            if node.ready:
                of_pool.ready.append(node)
            elif node.joined_ms is None:
                name = node.state.name
                since_ms = self._unregistered_since[name] = waiting.get(name, now_ms)
                is_late = since_ms + self.settings.max_node_provision_time_ms < now_ms
                (of_pool.long_unregistered if is_late else of_pool.unregistered).append(node)
            else:
                without = _without_gpus(node)
                if has_gpus(node.state.node) and self._seems_ready(node.state.node):
                    of_pool.ready.append(without)
                elif node.joined_ms + self.settings.max_node_startup_time_ms > now_ms:
                    of_pool.not_started.append(node)
                else:
                    of_pool.unready.append(without)
        self._update_requests(request)

    def _seems_ready(self, node: Node) -> bool:
        """Return whether a node that is Ready, and lacks its GPUs still, passes for one without any."""
        labels = node.metadata.labels
        labelled = self.cloud.labels_nodes or self.cloud.gpu_label in labels
        return not labelled or _DRA_LABEL in labels

    def _update_requests(self, request: NodeRequest) -> None:
        now_ms = request.now_ms
        reset_ms = self.settings.node_group_backoff_reset_timeout_ms
        self._backoffs = {
            pool: backoff
            for pool, backoff in self._backoffs.items()
            if backoff.failed_ms + reset_ms >= now_ms
        }
        failed = Counter(failure.pool for failure in request.failures)
        for pool, count in failed.items():
            self.register_scale_up(pool, -count, now_ms)
            self._back_off(pool, now_ms)
        for pool, asked in list(self._requests.items()):
            state = self.pools.get(pool)
            if state is None or not (state.upcoming or state.long_unregistered):
                del self._requests[pool]
            elif asked.expected_ms < now_ms:
                self._back_off(pool, now_ms)
                del self._requests[pool]

    def register_scale_up(self, pool: str, delta: int, now_ms: int) -> None:
        """Note that a pool was asked for more nodes, or that some of them failed."""
        asked = self._requests.get(pool)
        increase = (asked.increase if asked else 0) + delta
        if increase <= 0:
            self._requests.pop(pool, None)
        elif delta > 0:
            expected_ms = now_ms + self.settings.max_node_provision_time_ms
            self._requests[pool] = _ScaleUpRequest(increase, expected_ms)
        elif asked:
            asked.increase = increase

    def _back_off(self, pool: str, now_ms: int) -> None:
        """Close a pool for a while: longer each time, unless it is closed already."""
        known = self._backoffs.get(pool)
        duration_ms = self.settings.initial_node_group_backoff_duration_ms
        if known is not None:
            duration_ms = known.duration_ms
            if known.until_ms < now_ms:
                longest_ms = self.settings.max_node_group_backoff_duration_ms
                duration_ms = min(2 * duration_ms, longest_ms)
        self._backoffs[pool] = _Backoff(duration_ms, now_ms + duration_ms, now_ms)

    def is_backed_off(self, pool: str, now_ms: int) -> bool:
        known = self._backoffs.get(pool)
        return known is not None and known.until_ms >= now_ms

    def is_healthy(self, pool: str) -> bool:
        """Return whether not too many nodes of a pool are missing."""
        state, asked = self.pools[pool], self._requests.get(pool)
        expected = state.size - len(state.long_unregistered) - (asked.increase if asked else 0)
        missing = max(0, expected - len(state.ready))
        registered = len(state.ready) + len(state.unready) + len(state.not_started)
        return not self._too_many(missing, registered)

    def is_cluster_healthy(self) -> bool:
        """Return whether not too many nodes of all pools are unready."""
        unready = sum(len(state.unready) for state in self.pools.values())
        registered = sum(
            len(state.ready) + len(state.unready) + len(state.not_started)
            for state in self.pools.values()
        )
        return not self._too_many(unready, registered)

    def _too_many(self, unready: int, registered: int) -> bool:
        settings = self.settings
        share = settings.max_total_unready_percentage / 100 * registered
        return unready > settings.ok_total_unready_count and unready > share


def has_gpus(node: Node) -> bool:
    """Return whether a node offers GPUs."""
    return any(name in node.allocatable and node.allocatable[name].nano for name in GPU_RESOURCES)


def _without_gpus(node: PoolNode) -> PoolNode:
    """Return a node as it is before its device plugin has registered the GPUs."""
    state = node.state
    allocatable = {
        name: amount for name, amount in state.node.allocatable.items() if name not in GPU_RESOURCES
    }
    return replace(node, state=replace(state, node=replace(state.node, allocatable=allocatable)))

"""How much of each node is used, by the pods that count.

Source: cluster-autoscaler/simulator/utilization/info.go, core/scaledown/eligibility/eligibility.go and
core/utils/expendable.go (1.35).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.devices import DeviceKey, NodeDevices
from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.objects.requests import Amounts
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import have_repelling
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.drainability import (
    is_daemon,
    is_mirror,
    long_terminating_ms,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import GPU_RESOURCES, has_gpus
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import AutoscalerSettings
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.hpa.cluster.scheduling.resources import pod_requests

_FINISHED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass(frozen=True, slots=True)
class _Known:
    given: NodeState
    counted: NodeState
    is_underused: bool
    is_repelling: bool
    """Its pods keep others away."""
    until_ms: int | None
    """When a pod that is ending counts for nothing; None where no pod is."""


class Usage:
    """The use of nodes; each is looked at again once its pods have changed, and not in every pass."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._request: NodeRequest | None = None
        self._gpu_label = ""

    def begin(self, request: NodeRequest, gpu_label: str) -> None:
        """Take in a pass.

        Args:
            request: its facts.
            gpu_label: of nodes that have GPUs, or should.
        """
        self._request, self._gpu_label = request, gpu_label
        if len(self._known) > 2 * len(request.nodes):
            here = {node.state.name for node in request.nodes}
            self._known = {name: known for name, known in self._known.items() if name in here}

    def pods(self, node: str) -> list[Pod]:
        """Return the pods of a node without those that have finished or are expendable."""
        request = self._asked()
        cutoff = request.settings.expendable_pods_priority_cutoff
        return [
            pod
            for pod in request.pods.get(node, ())
            if pod.status.phase not in _FINISHED and pod.spec.priority >= cutoff
        ]

    def counted(self, node: PoolNode) -> NodeState:
        """Return a node's state without what expendable pods ask for."""
        return self._of(node).counted

    def is_repelling(self, node: PoolNode) -> bool:
        """Return whether a node's pods keep others away."""
        return self._of(node).is_repelling

    def is_underused(self, node: PoolNode, placed: Sequence[Amounts]) -> bool:
        """Return whether so little of a node is asked for that it may go.

        Args:
            node: with its pods.
            placed: what pending pods ask for that are to go there.
        """
        known = self._of(node)
        if not placed or not known.is_underused:
            return known.is_underused
        used = dict(known.counted.used)
        for amounts in placed:
            for name, nano in amounts.items():
                used[name] = used.get(name, 0) + nano
        return self._judge(node, replace(known.counted, used=used))

    def _asked(self) -> NodeRequest:
        assert self._request is not None  # noqa: S101 - a pass has begun
        return self._request

    def _of(self, node: PoolNode) -> _Known:
        name, now_ms = node.state.name, self._asked().now_ms
        known = self._known.get(name)
        if known is None or known.given is not node.state or _is_over(known.until_ms, now_ms):
            known = self._known[name] = self._look(node)
        return known

    def _look(self, node: PoolNode) -> _Known:
        request = self._asked()
        cutoff, now_ms = request.settings.expendable_pods_priority_cutoff, request.now_ms
        expendable: Counter[str] = Counter()
        ends = []
        for pod in request.pods.get(node.state.name, ()):
            if pod.spec.priority < cutoff and pod.status.phase not in _FINISHED:
                expendable.update(pod_requests(pod.spec))
            end_ms = long_terminating_ms(pod)
            if end_ms is not None and end_ms >= now_ms:
                ends.append(end_ms)
        counted = node.state
        if expendable:
            used = {name: nano - expendable[name] for name, nano in counted.used.items()}
            counted = replace(counted, used=used)
        return _Known(
            node.state,
            counted,
            self._judge(node, counted),
            have_repelling(self.pods(node.state.name)),
            min(ends, default=None),
        )

    def _judge(self, node: PoolNode, state: NodeState) -> bool:
        """Compare the use of a node with the threshold; on a node with GPUs only those count."""
        settings = self._asked().settings
        is_gpu_node = has_gpus(state.node) or (
            bool(self._gpu_label) and self._gpu_label in state.node.metadata.labels
        )
        if is_gpu_node:
            # Where its GPUs are not there yet, none of them is used.
            resources = [name for name in GPU_RESOURCES if _offers(state, name)][:1]
            threshold = settings.scale_down_gpu_utilization_threshold
        elif state.node.devices and state.node.devices.pools:
            threshold = settings.scale_down_utilization_threshold
            return _most_of_devices(state.node.devices, state.held) <= threshold
        else:
            resources, threshold = ["cpu", "memory"], settings.scale_down_utilization_threshold
        return all(
            _offers(state, name)
            and self._share(node.state.name, state, name, settings) <= threshold
            for name in resources
        )

    def _share(
        self, name: str, state: NodeState, resource: str, settings: AutoscalerSettings
    ) -> float:
        used = state.used.get(resource, 0)
        allocatable = state.node.allocatable[resource].nano
        if not used:
            return 0.0
        for pod in self.pods(name):
            # DaemonSets' pods, where they are ignored, make the node smaller.
            is_ignored = (settings.ignore_daemonsets_utilization and is_daemon(pod)) or (
                settings.ignore_mirror_pods_utilization and is_mirror(pod)
            )
            if is_ignored or _is_over(long_terminating_ms(pod), self._asked().now_ms):
                amount = pod_requests(pod.spec).get(resource, 0)
                used -= amount
                allocatable -= amount if is_ignored else 0
        return used / allocatable if allocatable else 0.0


def _most_of_devices(devices: NodeDevices, held: frozenset[DeviceKey]) -> float:
    """Return the use of the fullest pool of devices, of its counters where it has any."""
    shares = [0.0]
    for pool in devices.pools:
        had = [each for each in pool.devices if (pool.driver, pool.name, each.name) in held]
        if not pool.counters:
            shares.append(len(had) / max(1, len(pool.devices)))
        taken = Counter[tuple[str, str]]()
        for set_, counter, amount in (each for device in had for each in device.counters):
            taken[set_, counter] += amount
        shares += (taken[each] / most for each, most in pool.counters.items() if most)
    return max(shares)


def _is_over(time_ms: int | None, now_ms: int) -> bool:
    return time_ms is not None and time_ms < now_ms


def _offers(state: NodeState, resource: str) -> bool:
    amount = state.node.allocatable.get(resource)
    return amount is not None and amount.nano > 0

"""Pools, nodes and pods for cases of node autoscalers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Container, Pod, PodSpec
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    ClusterAutoscaler,
    InstanceType,
    LaunchFailure,
    NodePool,
    NodeRequest,
    Offering,
    PoolNode,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.nodes.policy import CapacityBuffer, ProvisioningRequest
from gpuscale.hpa.cluster.scheduling import NodeState

SECOND = 1_000
MINUTE = 60_000


Pairs = Mapping[str, str]


def amounts(gpus: int = 0, cpu: str = "0", memory: str = "0", pods: int = 0) -> dict[str, Quantity]:
    given: dict[str, int | str] = {
        "nvidia.com/gpu": gpus,
        "cpu": cpu,
        "memory": memory,
        "pods": pods,
    }
    return {name: parse_quantity(amount) for name, amount in given.items() if str(amount) != "0"}


def pool(
    name: str = "gpu",
    *,
    low: int = 0,
    high: int = 10,
    gpus: int = 8,
    cpu: str = "96",
    memory: str = "1000Gi",
    labels: Pairs | None = None,
    taints: Sequence[Taint] = (),
    price: float | None = None,
) -> NodePool:
    shape = InstanceType(
        name, amounts(gpus, cpu, memory, 110), offerings=(Offering(price_per_hour=price),)
    )
    return NodePool(name, low, high, (shape,), dict(labels or {}), tuple(taints))


def pod(
    name: str,
    gpus: int = 0,
    cpu: str = "0",
    memory: str = "0",
    *,
    at: int = 0,
    owner: str | None = "ReplicaSet",
    namespace: str = "default",
    labels: Pairs | None = None,
    annotations: Pairs | None = None,
    ending_at: int | None = None,
    **spec: Any,
) -> Pod:
    """Return a pod that was made at `at` milliseconds."""
    made_by = OwnerReference(owner, "web") if owner else None
    own = dict(annotations or {})
    meta = ObjectMeta(name, namespace, dict(labels or {}), own, at, ending_at, made_by)
    return Pod(meta, PodSpec((Container("c", requests=amounts(gpus, cpu, memory)),), **spec))


def pods(count: int, *args: Any, prefix: str = "p", **kwargs: Any) -> list[Pod]:
    return [pod(f"{prefix}{number}", *args, **kwargs) for number in range(count)]


@dataclass
class Cluster:
    """What an autoscaler is shown, and told by; its orders are not carried out.

    Each scan is a loop: the flag `frequent-loops-enabled` is off unless a case is about it.
    """

    pools: list[NodePool]
    settings: AutoscalerSettings = AutoscalerSettings()  # noqa: RUF009 - frozen
    frequent: bool = False
    nodes: dict[str, PoolNode] = field(default_factory=dict)
    on: dict[str, list[Pod]] = field(default_factory=dict)
    budgets: tuple[PodDisruptionBudget, ...] = ()
    provisioning_requests: tuple[ProvisioningRequest, ...] = ()
    capacity_buffers: tuple[CapacityBuffer, ...] = ()
    policy: ClusterAutoscaler = field(default_factory=ClusterAutoscaler)

    def node(
        self,
        name: str,
        holding: Sequence[Pod] = (),
        *,
        of: NodePool | None = None,
        annotations: Pairs | None = None,
        ready: bool = True,
        joined_ms: int | None = None,
        leaving: bool = False,
    ) -> None:
        """Have a node with these pods."""
        of = of or self.pools[0]
        node = of.node(name)
        node = replace(node, metadata=replace(node.metadata, annotations=dict(annotations or {})))
        state = NodeState(node)
        for each in holding:
            state = state.with_pod(each.spec)
        empty = ready and not holding
        self.nodes[name] = PoolNode(
            of.name, state, ready, empty, joined_ms=joined_ms, leaving=leaving
        )
        self.on[name] = list(holding)

    def coming(self, name: str, *, of: NodePool | None = None, joined: int | None = None) -> None:
        """Have a node on its way, or one that is Ready and lacks its GPUs since `joined`."""
        self.node(name, of=of, ready=False, joined_ms=joined)

    def remove(self, name: str) -> None:
        del self.nodes[name], self.on[name]

    def scan(
        self, at: int, pending: Sequence[Pod] = (), failures: Sequence[LaunchFailure] = ()
    ) -> list[Any]:
        """Return the actions of a scan, of whatever types."""
        request = NodeRequest(
            tuple(self.pools),
            tuple(self.nodes.values()),
            tuple(pending),
            at,
            replace(self.settings, frequent_loops_enabled=self.frequent),
            self.on,
            self.budgets,
            tuple(failures),
            self.provisioning_requests,
            self.capacity_buffers,
        )
        return list(self.policy.scan(request))

    def grown(
        self, at: int, pending: Sequence[Pod] = (), failures: Sequence[LaunchFailure] = ()
    ) -> dict[str, int]:
        """Return how many nodes each pool gets."""
        actions = self.scan(at, pending, failures)
        return {
            each.pool: each.to_nodes - each.from_nodes
            for each in actions
            if isinstance(each, ScaleUp)
        }

    def gone(self, at: int, pending: Sequence[Pod] = ()) -> list[str]:
        """Return the nodes that are told to go."""
        return [each.node for each in self.scan(at, pending) if isinstance(each, ScaleDown)]

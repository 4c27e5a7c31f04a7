"""The interface of node autoscalers.

The caller of a policy gathers a `NodeRequest`, asks `scan` and applies the actions, as
`lab.sim.control.cloud`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Pod, PodTemplate
from gpuscale.hpa.cluster.nodes.pools import (
    Action,
    AutoscalerSettings,
    LaunchFailure,
    NodePool,
    Offering,
)
from gpuscale.hpa.cluster.scheduling import NodeState


@dataclass(frozen=True, slots=True)
class PoolNode:
    """One node of a pool as the autoscaler sees it."""

    pool: str
    state: NodeState
    """While it is on its way: as it will be, with the GPUs and without taints that go by themselves."""
    ready: bool
    """False while it is on its way, or Ready without its GPUs; what it will have counts all the same."""
    empty: bool
    """No pod on it but those of DaemonSets."""
    instance_type: str = ""
    offering: Offering = Offering()  # noqa: RUF009 - frozen
    ordered_ms: int = 0
    """When it was asked for."""
    joined_ms: int | None = None
    """When its Node became Ready, with GPUs or still without."""
    ready_ms: int | None = None
    """When it was Ready with its GPUs; None while it is not."""
    changed_ms: int | None = None
    """When a pod last came to it or left it; None where none did."""
    leaving: bool = False
    """It is being removed already."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of a ProvisioningRequest."""

    count: int
    template: PodTemplate


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """Room that is asked for before its pods exist; Kueue makes them.

    Source: cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1 types.go (1.35).
    """

    metadata: ObjectMeta
    provisioning_class_name: str
    """`check-capacity...` only looks; `best-effort-atomic-scale-up...` grows a pool for all its pods."""
    pod_sets: tuple[PodSet, ...]


@dataclass(frozen=True, slots=True)
class CapacityBuffer:
    """Room that is to stay free for pods to come.

    Source: cluster-autoscaler/apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1 types.go (1.35).
    """

    metadata: ObjectMeta
    replicas: int
    template: PodTemplate


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """The facts for one scan."""

    pools: tuple[NodePool, ...]
    """In order of preference."""
    nodes: tuple[PoolNode, ...]
    """Of all pools, those on their way included."""
    unschedulable: tuple[Pod, ...]
    """The pods that the scheduler found no node for, oldest first."""
    now_ms: int
    """Milliseconds since the epoch."""
    settings: AutoscalerSettings
    pods: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    """Node to the pods on it; only nodes with pods need be there."""
    budgets: tuple[PodDisruptionBudget, ...] = ()
    failures: tuple[LaunchFailure, ...] = ()
    """What was asked for and did not come, since the scan before."""
    provisioning_requests: tuple[ProvisioningRequest, ...] = ()
    """Oldest first."""
    capacity_buffers: tuple[CapacityBuffer, ...] = ()
    daemons: tuple[Pod, ...] = ()
    """A pod of each DaemonSet as it would be on a node."""
    reserved: Mapping[tuple[str, Offering], int] = field(default_factory=dict)
    """How many nodes more each reservation gives now, by instance type and offering."""


class NodePolicy(Protocol):
    """Decides the nodes of a cluster. It may keep state between scans.

    It is asked at each regular scan, and where it has set `on_unschedulable`, also when the scheduler has
    found no node for a pod.
    """

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return actions: pools to grow within their bounds, nodes to remove, when to ask again."""


NodePolicyFactory = Callable[[], NodePolicy]
"""Makes the policy of one cluster; a class is one."""

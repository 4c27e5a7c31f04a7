"""Node pools, what node autoscalers want done with them, and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node, Taint
from gpuscale.base.objects.selectors import Requirement
from gpuscale.base.quantity import Quantity

CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Offering:
    """How an instance type can be had."""

    zone: str = ""
    """Empty where zones don't matter."""
    capacity_type: str = ""
    """`reserved`, `spot` or `on-demand`; empty where that doesn't matter."""
    price_per_hour: float | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Return what a node that was had like this is labelled with."""
        found = {ZONE: self.zone, CAPACITY_TYPE: self.capacity_type}
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A shape of node."""

    name: str
    allocatable: Mapping[str, Quantity]
    """What a node of it offers once it is ready, GPUs included."""
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    """What it has before reservations, which limits of a pool count; empty: as allocatable."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """That each node of it has, beside name, zone and capacity type."""
    offerings: tuple[Offering, ...] = (Offering(),)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many nodes of a pool may be disrupted at once; `spec.disruption.budgets` of a NodePool."""

    nodes: str
    """A number or a percentage, as text."""
    reasons: tuple[str, ...] = ()
    """`Underutilized`, `Empty`, `Drifted`; empty: all."""
    schedule: str = ""
    """When it begins to hold, as cron in UTC; empty: always."""
    duration_ms: int = 0
    """For how long from each time of the schedule."""


@dataclass(frozen=True, slots=True)
class Disruption:
    """What Karpenter may take away: `spec.disruption` and `expireAfter` of a NodePool."""

    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    consolidate_after_ms: int | None = 0
    """None: `Never`."""
    budgets: tuple[DisruptionBudget, ...] = (DisruptionBudget("10%"),)
    expire_after_ms: int | None = 720 * 3_600_000
    """None: `Never`."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes that are asked for together: Cluster Autoscaler's node group, or Karpenter's NodePool.

    A node group has one instance type. A NodePool has as many as its requirements allow.
    """

    name: str
    min_nodes: int
    max_nodes: int
    instance_types: tuple[InstanceType, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    """That new nodes have until they are usable; pods need not tolerate them."""
    requirements: tuple[Requirement, ...] = ()
    """On labels of instance types and offerings."""
    weight: int = 0
    """Karpenter tries pools of a larger weight first."""
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    """Karpenter's: the most capacity that the pool's nodes may have in all."""
    disruption: Disruption = Disruption()

    @property
    def template(self) -> InstanceType:
        """Return the instance type of a pool that has only one, or the first."""
        return self.instance_types[0]

    def node(
        self,
        name: str,
        creation_ms: int = 0,
        instance_type: InstanceType | None = None,
        offering: Offering | None = None,
    ) -> Node:
        """Return a new, ready node of this pool; of its first instance type and offering by default."""
        kind = instance_type or self.template
        sold = offering or kind.offerings[0]
        labels = {"kubernetes.io/hostname": name, **kind.labels, **sold.labels, **self.labels}
        meta = ObjectMeta(name, namespace="", labels=labels, creation_ms=creation_ms)
        return Node(meta, kind.allocatable, self.taints)


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The options of node autoscalers by their own names, with their defaults.

    Source: cluster-autoscaler/config/flags/flags.go (1.33 and later); the GPU wait is
    core/static_autoscaler.go. Karpenter 1.15 pkg/operator/options.
    """

    gpu_pod_age_ms: int = 30_000
    """Pods that ask for a GPU must be this old before they make nodes; the autoscaler's own constant."""
    unneeded_time_ms: int = 600_000
    """`scale-down-unneeded-time`: for how long a node must not have been needed."""
    delay_after_add_ms: int = 600_000
    """`scale-down-delay-after-add`: no removal for this long after nodes were added."""


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """Ask the pool for more nodes."""

    pool: str
    from_nodes: int
    to_nodes: int
    pods: tuple[str, ...]
    """The pods that the new nodes are for."""
    instance_types: tuple[str, ...] = ()
    """Names of those that will do; the cheapest that can be had is taken. Empty: any of the pool."""
    offerings: tuple[Offering, ...] = ()
    """Those that will do; empty: any."""
    replaces: tuple[str, ...] = ()
    """Nodes that take no new pods from now on, and will be removed once the new one is ready."""


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Remove one node; pods that are on it are evicted first."""

    pool: str
    node: str
    from_nodes: int
    reason: str = "node removed by cluster autoscaler"
    taint: Taint | None = None
    """What the node gets until it is gone; None for `ToBeDeletedByClusterAutoscaler`."""
    delay_ms: int = 0
    """From the taint until pods are evicted, or an empty node goes."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Scan once more at that time, before the next regular scan."""

    at_ms: int


Action = ScaleUp | ScaleDown | LookAgain


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """A node that was asked for and did not come."""

    pool: str
    instance_type: str
    offering: Offering
    time_ms: int
    code: str
    """The cloud's, such as `InsufficientInstanceCapacity`."""

"""Node pools, what node autoscalers want done with them, and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.objects.devices import (
    DeviceClasses,
    NodeDevices,
    ResourceSlice,
    node_devices,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.selectors import Requirement
from gpuscale.base.objects.taints import Taint
from gpuscale.base.quantity import Quantity

CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
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
    slices: tuple[ResourceSlice, ...] = ()
    """That drivers publish of each node of it."""
    classes: DeviceClasses | None = None
    """Of devices; None where nothing is known of claims."""

    def devices(self, node: str) -> NodeDevices | None:
        """Return the devices for claims of a node of this name."""
        return None if self.classes is None else node_devices(self.slices, node, self.classes)


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
        return Node(meta, kind.allocatable, self.taints, devices=kind.devices(name))


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The options of node autoscalers by their own names, with their defaults.

    Source: cluster-autoscaler/config/flags/flags.go and config/const.go (1.33 to 1.35), where a flag `a-b` is
    the field `a_b` here; the two waits are core/static_autoscaler.go. Karpenter 1.15 pkg/operator/options.
    """

    gpu_pod_age_ms: int = 30_000
    """Pods that ask for a GPU must be this old before they make nodes; the autoscaler's own constant."""
    pod_age_ms: int = 2_000
    """The same for all pods."""
    cloud_provider: str = ""
    """`aws`, `azure`, `gce` or `alicloud`; empty: one that labels its GPU nodes."""
    seed: int = 0
    """Of what the expander `random` draws."""
    scan_interval_ms: int = 10_000
    frequent_loops_enabled: bool = True
    """Loop also when a pod has become unschedulable, and after a loop that changed something.

    On since 1.35 (kubernetes/autoscaler #8019, of October 2025); 1.33 and 1.34 have it off.
    """

    expander: str = "least-waste"
    """`least-waste`, `most-pods`, `least-nodes`, `price`, `priority`, `random`, or several, with commas."""
    expander_priorities: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Priority to expressions of pools' names: ConfigMap `cluster-autoscaler-priority-expander`."""
    new_pod_scale_up_delay_ms: int = 0
    expendable_pods_priority_cutoff: int = -10
    max_nodes_total: int = 0
    """0: no limit."""
    cores_total: tuple[int, int] = (0, 320_000)
    """Fewest and most."""
    memory_total: tuple[int, int] = (0, 6_400_000)
    """Fewest and most, GiB."""
    max_nodes_per_scaleup: int = 1_000
    scale_up_from_zero: bool = True
    enforce_node_group_min_size: bool = False
    balance_similar_node_groups: bool = False
    balancing_ignore_label: tuple[str, ...] = ()
    balancing_label: tuple[str, ...] = ()
    memory_difference_ratio: float = 0.015
    max_free_difference_ratio: float = 0.05
    max_allocatable_difference_ratio: float = 0.05

    max_node_provision_time_ms: int = 900_000
    max_node_startup_time_ms: int = 900_000
    initial_node_group_backoff_duration_ms: int = 300_000
    max_node_group_backoff_duration_ms: int = 1_800_000
    node_group_backoff_reset_timeout_ms: int = 10_800_000
    force_delete_unregistered_nodes: bool = False
    ok_total_unready_count: int = 3
    max_total_unready_percentage: float = 45.0

    scale_down_enabled: bool = True
    unneeded_time_ms: int = 600_000
    """`scale-down-unneeded-time`: for how long a node must not have been needed."""
    scale_down_unready_enabled: bool = True
    scale_down_unready_time_ms: int = 1_200_000
    delay_after_add_ms: int = 600_000
    """`scale-down-delay-after-add`: no removal for this long after nodes were added."""
    scale_down_delay_after_delete_ms: int = 0
    scale_down_delay_after_failure_ms: int = 180_000
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ignore_daemonsets_utilization: bool = False
    ignore_mirror_pods_utilization: bool = False
    unremovable_node_recheck_timeout_ms: int = 300_000
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    blocking_system_pod_distruption_timeout_ms: int = 3_600_000
    node_delete_delay_after_taint_ms: int = 5_000
    """How long a node has its taint before it goes; for whoever carries removals out, as the next two."""
    max_graceful_termination_sec: int = 600
    max_pod_eviction_time_ms: int = 120_000

    enable_provisioning_requests: bool = False
    provisioning_request_initial_backoff_time_ms: int = 60_000
    provisioning_request_max_backoff_time_ms: int = 600_000
    capacity_buffer_pod_injection_enabled: bool = False


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
    end_ms: int = 0
    """From the end of the last pod until the node is gone."""
    give_up_ms: int | None = None
    """After so long with a pod that may not be evicted the node stays; None: never."""


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Let nodes take pods again that were to be replaced, and now stay."""

    nodes: tuple[str, ...]
    message: str
    """Why: `replacement was deleted`."""
    kind: str = "DisruptionFailed"
    """Of the event."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Scan once more at that time, before the next regular scan."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class NotTriggered:
    """A pod for which no pool grows; event NotTriggerScaleUp."""

    pod: str
    """Its key."""
    message: str
    """As the event has it: `pod didn't trigger scale-up: 1 max node group size reached`."""
    kind: str = "NotTriggerScaleUp"
    """Of the event."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nodes that stay although less might do, for one reason."""

    nodes: tuple[str, ...]
    message: str
    """Why, in the autoscaler's words: `Can't replace with a cheaper node`."""
    kind: str = "Unconsolidatable"
    """Of the event."""


@dataclass(frozen=True, slots=True)
class ProvisioningCondition:
    """What became of a ProvisioningRequest: the condition `Provisioned` of its status."""

    request: str
    """Its key."""
    status: bool
    reason: str
    """`CapacityIsFound`, `CapacityIsProvisioned` or `CapacityIsNotFound`."""


Action = (
    ScaleUp | ScaleDown | Uncordon | LookAgain | NotTriggered | LeftAlone | ProvisioningCondition
)


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """A node that was asked for and did not come."""

    pool: str
    instance_type: str
    offering: Offering
    time_ms: int
    code: str
    """The cloud's, such as `InsufficientInstanceCapacity`."""

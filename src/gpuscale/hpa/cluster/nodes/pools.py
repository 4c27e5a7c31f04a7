"""Node pools, and the node autoscaler's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node, Taint
from gpuscale.base.quantity import Quantity


@dataclass(frozen=True, slots=True)
class NodePool:
    """A group of equal nodes between a smallest and a largest size."""

    name: str
    min_nodes: int
    max_nodes: int
    allocatable: Mapping[str, Quantity]
    """What each node offers once it is ready, GPUs included."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    def node(self, name: str, creation_ms: int = 0) -> Node:
        """Return a new, ready node of this pool."""
        labels = {"kubernetes.io/hostname": name, **self.labels}
        meta = ObjectMeta(name, namespace="", labels=labels, creation_ms=creation_ms)
        return Node(meta, self.allocatable, self.taints)


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The Cluster Autoscaler's own names and defaults.

    Source: cluster-autoscaler/config/flags/flags.go; the GPU wait is core/static_autoscaler.go.
    """

    gpu_pod_age_ms: int = 30_000
    """Pods that ask for a GPU must be this old before they make nodes; the autoscaler's own constant."""
    unneeded_time_ms: int = 600_000
    """`scale-down-unneeded-time`: how long a node must stand empty."""
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


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Remove one empty node."""

    pool: str
    node: str
    from_nodes: int


Action = ScaleUp | ScaleDown

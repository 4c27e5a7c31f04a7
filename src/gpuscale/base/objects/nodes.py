"""Nodes: what they offer, and what keeps pods off them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.taints import EFFECTS, Taint
from gpuscale.base.quantity import Quantity

if TYPE_CHECKING:
    from gpuscale.base.objects.devices import NodeDevices
    from gpuscale.base.objects.fields import Fields  # it loads YAML, which most commands don't need

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
POOL_LABELS = (
    *("karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool"),
    *("agentpool", "cloud.google.com/gke-nodepool", "alibabacloud.com/nodepool-id"),
)
"""Labels by which clouds and Karpenter name a node's pool; the first that a node has counts."""
SPOT_LABELS = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
}
"""Labels of nodes, and the value that says that their cloud may take them back."""
NODE_LABELS = (INSTANCE_TYPE_LABEL, *POOL_LABELS, *SPOT_LABELS)
"""What `offer_of` looks at."""


def offer_of(labels: Mapping[str, str]) -> tuple[str, str, bool]:
    """Return a node's instance type, its pool, and whether its cloud may take it back."""
    pool = next((labels[each] for each in POOL_LABELS if labels.get(each)), "")
    is_spot = any(labels.get(key) == spot for key, spot in SPOT_LABELS.items())
    return labels.get(INSTANCE_TYPE_LABEL, ""), pool, is_spot


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    metadata: ObjectMeta
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    """Resource name to amount; `pods` limits the number of pods where it is given."""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    devices: "NodeDevices | None" = None
    """For claims; None where none is known."""


def read_node(fields: "Fields") -> Node:
    """Return the node of a manifest."""
    spec = fields.child("spec")
    return Node(
        metadata=read_meta(fields, namespaced=False),
        allocatable=fields.child("status").quantities("allocatable"),
        taints=tuple(read_taint(item) for item in spec.items("taints")),
        unschedulable=spec.boolean("unschedulable"),
    )


def read_taint(fields: "Fields") -> Taint:
    """Return one taint of a node's or node pool's list."""
    effect = fields.text("effect", required=True)
    if effect and effect not in EFFECTS:
        fields.note(("effect",), f"one of {', '.join(EFFECTS)}", found=repr(effect))
    return Taint(fields.text("key", required=True), fields.text("value"), effect)

"""What gpuscale knows of a cloud: how its GPU nodes are recognized, how a pool of them is created.

A `Provider` is one object, and the only place for what is special about a cloud. A new cloud is one module,
and the type checker reports a field that it lacks. `registry` lists built-in ones; plug-ins add others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuscale.base.objects.taints import Taint
from gpuscale.ops.providers.files import PoolFile

OWN_LABEL = "gpuscale.dev/gpu"
"""For nodes without another label: `kubectl label node NAME gpuscale.dev/gpu=true`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool of equal GPU nodes; its texts contain no whitespace, quotes or shell characters."""

    name: str
    cluster: str
    region: str
    instance_type: str
    gpu: str
    """The accelerator's name as the provider spells it."""
    taint: Taint
    """Of its nodes; with a value."""
    resource_group: str | None = None
    zone: str | None = None
    """None leaves it to the provider."""
    networks: tuple[str, ...] = ()
    gpus: int = 1
    """Per node."""
    min_nodes: int = 0
    max_nodes: int = 8
    spot: bool = False
    disk_gib: int = 200
    slices: int = 1
    """Pods that take turns on one GPU."""
    has_own_plugin: bool = False
    """Whether the installation brings the device plugin, which makes the slices."""
    ready_taint: Taint | None = None
    """Of new nodes, with a value: the node agent takes it off once their GPUs are of use."""

    def shared_gpus(self) -> int:
        """Return a node's number of `nvidia.com/gpu` once the device plugin runs."""
        return self.gpus * (self.slices if self.has_own_plugin else 1)


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A label of GPU nodes, with certain values or any value."""

    key: str
    values: tuple[str, ...] = ()

    def term(self) -> dict[str, object]:
        """Return a node affinity term for the label."""
        match: dict[str, object] = {"key": self.key, "operator": "In" if self.values else "Exists"}
        if self.values:
            match["values"] = list(self.values)
        return {"matchExpressions": [match]}

    def is_on(self, labels: Mapping[str, str]) -> bool:
        return self.key in labels and (not self.values or labels[self.key] in self.values)


_ANYWHERE = (
    NodeLabel("nvidia.com/gpu.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-10de.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-0302_10de.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-0300_10de.present", ("true",)),
    NodeLabel(OWN_LABEL, ("true",)),
)
"""By the GPU Operator, NFD and GFD, whatever the provider."""


@dataclass(frozen=True, slots=True)
class AcceleratorLabel:
    """The label by which Cluster Autoscaler knows to wait for a new node's GPUs."""

    key: str
    pool_key: str
    """Label of every node, whose value is the name of its pool."""


@dataclass(frozen=True, slots=True)
class TemplateFix:
    """How Cluster Autoscaler learns the GPUs of an empty pool's future nodes."""

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class Karpenter:
    """A provider's part of a Karpenter NodePool."""

    node_class: Callable[[Pool], dict[str, Any]]
    """Makes the manifest of the node class, which the NodePool refers to."""
    notes: tuple[str, ...]


_USUAL_TAINT = Taint("nvidia.com/gpu", "present")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A cloud, or another environment of clusters."""

    name: str
    """In values files, scenarios and flags: lower-case letters and digits. A built-in one has the page
    docs/providers/NAME.md."""
    title: str
    """In full, for the questions of `init`."""
    node_labels: tuple[NodeLabel, ...]
    """A GPU node has at least one of them, or one that any provider's may have."""
    has_device_plugin: bool
    """Whether clusters come with a device plugin."""
    taint: Taint = _USUAL_TAINT
    """Of GPU nodes, by custom; `init` proposes it."""
    id_schemes: tuple[str, ...] = ()
    """A node's `providerID` begins with one of them, before `://`."""
    label_prefixes: tuple[str, ...] = ()
    """A label of each node begins with one of them; for nodes without a `providerID`."""
    device_access: Literal["runtime", "host"] = "runtime"
    """How the driver gets into containers: `runtime` by NVIDIA's container runtime, `host` from a folder
    of the node; `init` proposes it."""
    host_driver: str = "/home/kubernetes/bin/nvidia"
    """The folder on the node that has the driver, for `host`; by default that of Google's installer."""
    needs_host: str = ""
    """Why `deviceAccess: runtime` does not work; empty where it does."""
    pool_files: Callable[[Pool], Sequence[PoolFile]] | None = None
    """Makes the files that make a node pool; None where a cluster has no pools."""
    pool_faults: Callable[[Pool], Sequence[str]] = lambda _: ()
    """Says which fields of a node pool are missing or wrong."""
    karpenter: Karpenter | None = None
    """None where there is no Karpenter."""
    has_scale_down_times: bool = True
    """Whether one can say how long its node autoscaler keeps empty nodes."""
    autoscaler_flags: Mapping[str, Any] = field(default_factory=dict)
    """Where the managed Cluster Autoscaler is set otherwise than upstream's: `AutoscalerSettings`' fields."""
    counts_shares: bool = False
    """Whether an empty pool tells node autoscalers of the shares that time-slicing makes of its GPUs."""
    takes_startup_taints: bool = False
    """Whether its Cluster Autoscaler can be told of start-up taints, beside those that it knows by their
    prefix."""
    accelerator: AcceleratorLabel | None = None
    """None where the provider sees to it."""
    template_fix: TemplateFix | None = None
    """None where a pool of a GPU type says it."""

    def gpu_node_labels(self) -> tuple[NodeLabel, ...]:
        """Return the labels of which a GPU node has at least one."""
        return (*self.node_labels, *_ANYWHERE)

    def gpu_node_affinity(self) -> dict[str, object]:
        """Return an affinity for nodes with NVIDIA GPUs."""
        terms = [label.term() for label in self.gpu_node_labels()]
        required = {"nodeSelectorTerms": terms}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    def runs(self, provider_id: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node with this `providerID` and these labels belongs to the provider."""
        scheme, separator, _ = provider_id.partition("://")
        if separator and scheme in self.id_schemes:
            return True
        return any(key.startswith(self.label_prefixes) for key in labels)

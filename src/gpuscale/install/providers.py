"""What each provider's GPU nodes are known by, and how their driver is reached.

Sources: Cluster Autoscaler cloudprovider/* (GPU labels), the providers' documentation, NFD and GFD.
"""

from dataclasses import dataclass
from typing import Literal

from gpuscale.install.values import Provider

OWN_LABEL = "gpuscale.dev/gpu"
"""For nodes that nobody else labels: `kubectl label node NAME gpuscale.dev/gpu=true`."""


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A label that GPU nodes have; any of these values, or just any."""

    key: str
    values: tuple[str, ...] = ()

    def term(self) -> dict[str, object]:
        """Return the term of a node affinity that asks for it."""
        match: dict[str, object] = {"key": self.key, "operator": "In" if self.values else "Exists"}
        if self.values:
            match["values"] = list(self.values)
        return {"matchExpressions": [match]}


_SIZES = tuple(f"{n}xlarge" for n in ("", 2, 4, 8, 12, 16, 24, 48))
_EC2_GPU_TYPES = (
    *(f"g4dn.{size}" for size in (*_SIZES[:6], "metal")),
    *(f"g5.{size}" for size in _SIZES),
    *(f"g6.{size}" for size in _SIZES),
    *(f"g6e.{size}" for size in _SIZES),
    *(f"g6f.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge")),
    *("gr6.4xlarge", "gr6.8xlarge", "gr6f.4xlarge"),
    *(
        f"g7.{size}"
        for size in ("2xlarge", "4xlarge", "8xlarge", "12xlarge", "24xlarge", "48xlarge")
    ),
    *(
        f"g7e.{size}"
        for size in ("2xlarge", "4xlarge", "8xlarge", "12xlarge", "24xlarge", "48xlarge")
    ),
    *("p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p3dn.24xlarge"),
    *("p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge"),
    *("p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge"),
)
"""EKS labels no node as one with GPUs by itself; the instance type is what every node has."""

_ANYWHERE = (
    NodeLabel("nvidia.com/gpu.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-10de.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-0302_10de.present", ("true",)),
    NodeLabel("feature.node.kubernetes.io/pci-0300_10de.present", ("true",)),
    NodeLabel(OWN_LABEL, ("true",)),
)
_OF_PROVIDER: dict[Provider, tuple[NodeLabel, ...]] = {
    "aks": (
        NodeLabel("kubernetes.azure.com/accelerator", ("nvidia",)),
        NodeLabel("accelerator", ("nvidia",)),
        NodeLabel("karpenter.azure.com/sku-gpu-manufacturer", ("nvidia",)),
    ),
    "eks": (
        NodeLabel("k8s.amazonaws.com/accelerator"),
        NodeLabel("karpenter.k8s.aws/instance-gpu-manufacturer", ("nvidia",)),
        NodeLabel("eks.amazonaws.com/instance-gpu-manufacturer", ("nvidia",)),
        NodeLabel("node.kubernetes.io/instance-type", _EC2_GPU_TYPES),
    ),
    "ack": (NodeLabel("aliyun.accelerator/nvidia_name"),),
    "gke": (NodeLabel("cloud.google.com/gke-accelerator"),),
    "generic": (
        NodeLabel("kubernetes.azure.com/accelerator", ("nvidia",)),
        NodeLabel("accelerator", ("nvidia", "nvidia-gpu")),
        NodeLabel("k8s.amazonaws.com/accelerator"),
        NodeLabel("karpenter.k8s.aws/instance-gpu-manufacturer", ("nvidia",)),
        NodeLabel("karpenter.azure.com/sku-gpu-manufacturer", ("nvidia",)),
        NodeLabel("aliyun.accelerator/nvidia_name"),
        NodeLabel("cloud.google.com/gke-accelerator"),
    ),
}


def gpu_node_labels(provider: Provider) -> tuple[NodeLabel, ...]:
    """Return the labels of which a GPU node of this provider has at least one."""
    return (*_OF_PROVIDER[provider], *_ANYWHERE)


def gpu_node_affinity(provider: Provider) -> dict[str, object]:
    """Return an affinity for nodes with NVIDIA GPUs."""
    terms = [label.term() for label in gpu_node_labels(provider)]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a provider's clusters bring along, and so what `init` proposes."""

    has_device_plugin: bool
    device_access: Literal["runtime", "host"] = "runtime"
    taint: str = "nvidia.com/gpu=present:NoSchedule"


DEFAULTS: dict[Provider, Defaults] = {
    "aks": Defaults(has_device_plugin=False, taint="sku=gpu:NoSchedule"),
    "eks": Defaults(has_device_plugin=True),
    "ack": Defaults(has_device_plugin=True, taint="scaler=gpu:NoSchedule"),
    "gke": Defaults(has_device_plugin=True, device_access="host"),
    "generic": Defaults(has_device_plugin=False),
}
"""AKS installs the driver only; eksctl installs the plugin; ACK and GKE manage it. GKE's nodes have the
driver in a folder of the node and no NVIDIA runtime."""

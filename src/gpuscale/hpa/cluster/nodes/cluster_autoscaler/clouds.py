"""Clouds as the Cluster Autoscaler knows them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CloudProvider:
    """What depends on the cloud in the autoscaler's rules."""

    gpu_label: str = ""
    """A node with this label and without a GPU is one that is still starting."""
    labels_nodes: bool = True
    """The managed service sets that label itself."""
    fills_templates: bool = False
    """What a node lacks of its instance type's resources is added where it serves as the template."""
    pool_labels: tuple[str, ...] = ()
    """Pools are similar where one of these labels is the same."""
    ignored_labels: tuple[str, ...] = ()
    """That differ between pools which are similar all the same."""


CLOUDS: Mapping[str, CloudProvider] = {
    "": CloudProvider(),
    "aws": CloudProvider(
        "k8s.amazonaws.com/accelerator",
        labels_nodes=False,
        fills_templates=True,
        ignored_labels=(
            *("alpha.eksctl.io/instance-id", "alpha.eksctl.io/nodegroup-name"),
            *("eks.amazonaws.com/nodegroup", "k8s.amazonaws.com/eniConfig", "lifecycle"),
            *("topology.ebs.csi.aws.com/zone", "topology.k8s.aws/zone-id"),
        ),
    ),
    "azure": CloudProvider(
        "kubernetes.azure.com/accelerator",
        pool_labels=("kubernetes.azure.com/agentpool", "agentpool"),
        ignored_labels=(
            *("agentpool", "kubernetes.azure.com/agentpool", "topology.disk.csi.azure.com/zone"),
            *("aksEngineVersion", "creationSource", "poolName", "resourceNameSuffix"),
            *("kubernetes.azure.com/node-image-version",),
            *("kubernetes.azure.com/consolidated-additional-properties",),
        ),
    ),
    "gce": CloudProvider(
        "cloud.google.com/gke-accelerator", ignored_labels=("topology.gke.io/zone",)
    ),
    "alicloud": CloudProvider("aliyun.accelerator/nvidia_name"),
}
"""By `cloud-provider`.

Source: cluster-autoscaler/cloudprovider (GPULabel of each) and processors/nodegroupset (1.35).
"""

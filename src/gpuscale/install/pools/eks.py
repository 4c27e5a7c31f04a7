"""EKS: a managed node group by eksctl that can grow from nothing, and settings of the Cluster Autoscaler.

Source: eksctl userdocs (autoscaling, gpu-support); Cluster Autoscaler cloudprovider/aws.
"""

from gpuscale.install.pools.files import (
    PoolFile,
    pool_of,
    shared_gpus,
    taint_object,
    taint_text,
    yaml_file,
)
from gpuscale.install.values import Values

ACCELERATOR = "k8s.amazonaws.com/accelerator"
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
_NOTES = (
    "eksctl create nodegroup --config-file=node-pool.yaml",
    f"The label {ACCELERATOR} is not set by EKS. Without it the Cluster Autoscaler takes a node that is "
    "Ready but has no GPU yet for one without GPUs, and buys another each time.",
    "The tags tell it at zero nodes what a node will have. eksctl makes tags of labels and taints too "
    "(propagateASGTags), but writes a taint without its effect, which the autoscaler ignores: so the taint "
    "stands here in full.",
    "One zone per group, and balance-similar-node-groups: else a node may come up where the volume is not.",
    "The NVIDIA AMI has driver and toolkit. eksctl installs the device plugin unless told not to; where "
    "devicePlugin.enabled is true, give it --install-nvidia-plugin=false.",
)
_FLAG_NOTES = (
    "Values of the cluster-autoscaler Helm chart. A node with GPUs goes when at most half of its GPUs are "
    "requested, whatever its CPUs do; GPU pods are not looked at before they are 30 s old.",
)


def eks_files(values: Values) -> list[PoolFile]:
    """Return the ClusterConfig of eksctl, and values for the autoscaler's chart."""
    pool = pool_of(values)
    group: dict[str, object] = {
        "name": f"{pool.name}-{pool.zone}" if pool.zone else pool.name,
        "amiFamily": "AmazonLinux2023",
        "instanceTypes": [pool.instance_type],
        **({"availabilityZones": [pool.zone]} if pool.zone else {}),
        "minSize": pool.min_nodes,
        "desiredCapacity": pool.min_nodes,
        "maxSize": pool.max_nodes,
        "volumeSize": pool.disk_gib,
        **({"spot": True} if pool.spot else {}),
        "labels": {ACCELERATOR: pool.gpu, "gpuscale.dev/pool": pool.name},
        "taints": [taint_object(values)],
        "propagateASGTags": True,
        "tags": _tags(values),
        "iam": {"withAddonPolicies": {"autoScaler": True}},
    }
    config = {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": pool.cluster, "region": pool.region},
        "managedNodeGroups": [group],
    }
    return [yaml_file("node-pool.yaml", _NOTES, config), _flags(values)]


def _tags(values: Values) -> dict[str, str]:
    key, rest = taint_text(values).split("=", 1)
    return {
        f"{_TEMPLATE}/label/{ACCELERATOR}": pool_of(values).gpu,
        # Time-slicing multiplies GPUs only once a node runs; at zero nodes the tag has to tell.
        f"{_TEMPLATE}/resources/nvidia.com/gpu": str(shared_gpus(values)),
        f"{_TEMPLATE}/taint/{key}": rest,
    }


def _flags(values: Values) -> PoolFile:
    pool = pool_of(values)
    chart = {
        "cloudProvider": "aws",
        "awsRegion": pool.region,
        "autoDiscovery": {"clusterName": pool.cluster},
        "extraArgs": {
            "expander": "least-waste",
            "balance-similar-node-groups": True,
            "scale-down-gpu-utilization-threshold": 0.5,
            "scale-down-unneeded-time": "10m",
            "max-node-provision-time": "20m",
        },
    }
    return yaml_file("cluster-autoscaler-values.yaml", _FLAG_NOTES, chart)

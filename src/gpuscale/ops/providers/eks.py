"""EKS: a managed node group by eksctl that can grow from nothing, the autoscaler's settings, and Karpenter.

Source: eksctl userdocs (autoscaling, gpu-support); Cluster Autoscaler cloudprovider/aws.
"""

from collections.abc import Sequence

from gpuscale.base.objects.taints import STARTUP_PREFIX
from gpuscale.hpa.cluster.catalogue import types_of
from gpuscale.ops.providers.files import PoolFile, ready_taint_notes, taint_object, yaml_file
from gpuscale.ops.providers.provider import (
    AcceleratorLabel,
    Karpenter,
    NodeLabel,
    Pool,
    Provider,
    TemplateFix,
)

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
_STARTUP_TAINT = (
    "eksctl's device plugin tolerates only nvidia.com/gpu: let the installation bring it "
    "(devicePlugin.enabled: true), or add the toleration. There is no tag for the taint, because the "
    "autoscaler must not expect it of the next node."
)
_FLAG_NOTES = (
    "Values of the cluster-autoscaler Helm chart. A node with GPUs goes when at most half of its GPUs are "
    "requested, whatever its CPUs do; GPU pods are not looked at before they are 30 s old.",
)


def _pool_files(pool: Pool) -> Sequence[PoolFile]:
    """Return eksctl's ClusterConfig, and values for the autoscaler's chart."""
    ready = pool.ready_taint
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
        "taints": [taint_object(each) for each in (pool.taint, ready) if each],
        "propagateASGTags": True,
        "tags": _tags(pool),
        "iam": {"withAddonPolicies": {"autoScaler": True}},
    }
    config = {
        "apiVersion": "eksctl.io/v1alpha5",
        "kind": "ClusterConfig",
        "metadata": {"name": pool.cluster, "region": pool.region},
        "managedNodeGroups": [group],
    }
    notes = (*_NOTES, *ready_taint_notes(ready, _STARTUP_TAINT))
    return [yaml_file("node-pool.yaml", notes, config), _flags(pool)]


def _tags(pool: Pool) -> dict[str, str]:
    key, rest = str(pool.taint).split("=", 1)
    return {
        f"{_TEMPLATE}/label/{ACCELERATOR}": pool.gpu,
        # Time-slicing multiplies GPUs once a node runs; for zero nodes the tag has to give the
        # number.
        f"{_TEMPLATE}/resources/nvidia.com/gpu": str(pool.shared_gpus()),
        f"{_TEMPLATE}/taint/{key}": rest,
    }


def _flags(pool: Pool) -> PoolFile:
    ready = pool.ready_taint
    is_unknown = ready is not None and not ready.key.startswith(STARTUP_PREFIX)
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
            **({"startup-taint": ready.key} if ready and is_unknown else {}),
        },
    }
    return yaml_file("cluster-autoscaler-values.yaml", _FLAG_NOTES, chart)


def _node_class(pool: Pool) -> dict[str, object]:
    discovery = [{"tags": {"karpenter.sh/discovery": pool.cluster}}]
    disk = {
        "volumeSize": f"{pool.disk_gib}Gi",
        "volumeType": "gp3",
        "iops": 6000,
        "throughput": 500,
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": pool.name},
        "spec": {
            "role": f"KarpenterNodeRole-{pool.cluster}",
            "amiSelectorTerms": [{"alias": "al2023@v20260801"}],
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": disk}],
        },
    }


KARPENTERS = NodeLabel("karpenter.k8s.aws/instance-gpu-manufacturer", ("nvidia",))
EKS = Provider(
    name="eks",
    title="Amazon Elastic Kubernetes Service",
    node_labels=(
        NodeLabel(ACCELERATOR),
        KARPENTERS,
        NodeLabel("eks.amazonaws.com/instance-gpu-manufacturer", ("nvidia",)),
        # EKS does not label GPU nodes; the instance type is what every node has.
        NodeLabel("node.kubernetes.io/instance-type", tuple(types_of("aws"))),
    ),
    has_device_plugin=True,  # eksctl installs it
    id_schemes=("aws",),
    pool_files=_pool_files,
    karpenter=Karpenter(
        _node_class,
        notes=(
            "Put in the role and the discovery tag of your cluster, and a version of the AMI: @latest "
            "replaces every node whenever AWS publishes a new one.",
        ),
    ),
    counts_shares=True,
    takes_startup_taints=True,
    accelerator=AcceleratorLabel(ACCELERATOR, pool_key="eks.amazonaws.com/nodegroup"),
    template_fix=TemplateFix(
        "the tag on the Auto Scaling group",
        "aws autoscaling create-or-update-tags --tags ResourceId=GROUP,"
        "ResourceType=auto-scaling-group,PropagateAtLaunch=true,"
        f"Key={_TEMPLATE}/resources/nvidia.com/gpu,Value=1",
    ),
)

"""Karpenter: a NodePool and its node class, on AWS and on Azure (where AKS calls it node auto-provisioning).

Source: kubernetes-sigs/karpenter v1 CRDs and pkg/controllers; aws and Azure providers' CRDs.
"""

from gpuscale.install.pools.files import PoolFile, pool_of, taint_object, yaml_file
from gpuscale.install.values import Values

_NOTES = (
    "kubectl apply -f node-pool.yaml",
    "Values of requirements are texts, also counts.",
    "consolidateAfter is 0s by default: a pod that loads a model for minutes would be moved as soon as "
    "another node is a little cheaper. Five minutes, and one node at a time.",
    "Karpenter starts a replacement before it drains the old node: for a while both are billed.",
    "A node that never shows nvidia.com/gpu is billed for ever, because initialization has no timeout: see "
    "to the device plugin's tolerations first.",
    "The limit is held against the largest candidate until a node has launched.",
)
_AWS_NOTES = (
    "Put in the role and the discovery tag of your cluster, and a version of the AMI: @latest replaces "
    "every node whenever AWS publishes a new one.",
)
_AZURE_NOTES = (
    "Needs az aks update --node-provisioning-mode Auto, which pools with the cluster autoscaler in the same "
    "cluster rule out.",
)


def karpenter_files(values: Values) -> list[PoolFile]:
    """Return the NodePool and its class."""
    is_aws = values.spec.provider == "eks"
    notes = (*_NOTES, *(_AWS_NOTES if is_aws else _AZURE_NOTES))
    node_class = _ec2_class(values) if is_aws else _aks_class(values)
    return [yaml_file("node-pool.yaml", notes, _node_pool(values, node_class), node_class)]


def _node_pool(values: Values, node_class: dict[str, object]) -> dict[str, object]:
    pool = pool_of(values)
    group = str(node_class["apiVersion"]).split("/", 1)[0]
    template = {
        "metadata": {"labels": {"gpuscale.dev/pool": pool.name}},
        "spec": {
            "expireAfter": "720h",
            "nodeClassRef": {"group": group, "kind": node_class["kind"], "name": pool.name},
            "taints": [taint_object(values)],
            "requirements": _requirements(values),
        },
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": pool.name},
        "spec": {
            "weight": 50,
            "limits": {"nvidia.com/gpu": str(pool.gpus * pool.max_nodes)},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "5m",
                "budgets": [{"nodes": "1"}],
            },
            "template": template,
        },
    }


def _requirements(values: Values) -> list[dict[str, object]]:
    pool = pool_of(values)
    capacity = ["spot", "on-demand"] if pool.spot else ["on-demand"]
    found = [
        _one_of("node.kubernetes.io/instance-type", pool.instance_type),
        _one_of("karpenter.sh/capacity-type", *capacity),
    ]
    if pool.zone is not None:
        found.append(_one_of("topology.kubernetes.io/zone", pool.zone))
    return found


def _one_of(key: str, *choices: str) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": list(choices)}


def _ec2_class(values: Values) -> dict[str, object]:
    pool = pool_of(values)
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


def _aks_class(values: Values) -> dict[str, object]:
    pool = pool_of(values)
    return {
        "apiVersion": "karpenter.azure.com/v1beta1",
        "kind": "AKSNodeClass",
        "metadata": {"name": pool.name},
        "spec": {"imageFamily": "Ubuntu", "osDiskSizeGB": pool.disk_gib},
    }

"""Karpenter: a NodePool beside the provider's node class.

Source: kubernetes-sigs/karpenter v1 CRDs and pkg/controllers; aws and Azure providers' CRDs.
"""

from collections.abc import Sequence
from typing import Any

from gpuscale.ops.providers.files import PoolFile, taint_object, yaml_file
from gpuscale.ops.providers.provider import Karpenter, Pool

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

_STARTUP_NOTE = (
    "startupTaints: the node agent takes {} off once the GPUs are of use, and until then the node is not "
    "initialized. Pods need no toleration for it; the device plugin does."
)


def karpenter_files(pool: Pool, karpenter: Karpenter) -> Sequence[PoolFile]:
    """Return the NodePool and its node class."""
    node_class = karpenter.node_class(pool)
    notes = (*_NOTES, *karpenter.notes)
    if pool.ready_taint is not None:
        notes += (_STARTUP_NOTE.format(pool.ready_taint.key),)
    return [yaml_file("node-pool.yaml", notes, _node_pool(pool, node_class), node_class)]


def _node_pool(pool: Pool, node_class: dict[str, Any]) -> dict[str, object]:
    ready = pool.ready_taint
    group = str(node_class["apiVersion"]).split("/", 1)[0]
    template = {
        "metadata": {"labels": {"gpuscale.dev/pool": pool.name}},
        "spec": {
            "expireAfter": "720h",
            "nodeClassRef": {"group": group, "kind": node_class["kind"], "name": pool.name},
            "taints": [taint_object(pool.taint)],
            **({"startupTaints": [taint_object(ready)]} if ready else {}),
            "requirements": _requirements(pool),
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


def _requirements(pool: Pool) -> list[dict[str, object]]:
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

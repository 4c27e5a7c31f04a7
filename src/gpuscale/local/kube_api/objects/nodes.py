"""Nodes and namespaces."""

from gpuscale.local.kube_api.objects.run import Json, Run, address
from gpuscale.objects.meta import ObjectMeta
from gpuscale.objects.nodes import Node

_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
"""Conditions that never hold here, with the kubelet's words (pkg/kubelet/nodestatus/setters.go)."""
_SYSTEM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def node_body(run: Run, node: Node, number: int) -> Json:
    """Return a Node.

    Args:
        run: it belongs to.
        node: of the simulation.
        number: counts nodes, for an address.
    """
    since_ms = node.metadata.creation_ms
    metadata = run.metadata("Node", node.metadata)
    metadata["labels"] = dict(sorted({**_SYSTEM, **node.metadata.labels}.items()))
    offered = {name: str(amount) for name, amount in sorted(node.allocatable.items())}
    spec: Json = {}
    if node.taints:
        spec["taints"] = [
            {
                "key": taint.key,
                **({"value": taint.value} if taint.value else {}),
                "effect": taint.effect,
            }
            for taint in node.taints
        ]
    if node.unschedulable:
        spec["unschedulable"] = True
    conditions = [
        run.condition(kind, False, reason, message, since_ms)
        for kind, reason, message in _PRESSURES
    ]
    ready = ("KubeletReady", "simulated") if node.ready else ("NodeStatusUnknown", "simulated")
    conditions.append(run.condition("Ready", node.ready, *ready, since_ms))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address(10, 200, number)},
                {"type": "Hostname", "address": node.metadata.name},
            ],
            "allocatable": offered,
            "capacity": offered,
            "conditions": conditions,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "simulated://0",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": f"v{run.kubernetes_version}.0",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "simulated",
                "systemUUID": "",
            },
        },
    }


def namespace_body(run: Run, name: str) -> Json:
    """Return a Namespace; all of them are there from the start."""
    labels = {"kubernetes.io/metadata.name": name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": run.metadata("Namespace", ObjectMeta(name, "", labels)),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }

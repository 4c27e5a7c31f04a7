"""Nodes with their leases, and namespaces.

Source: kubernetes v1.36 pkg/kubelet (nodestatus, nodelease), pkg/kubelet/apis/config/v1beta1/defaults.go: how
    often a kubelet says that it is there.
"""

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.lab.kube_api.kinds import LEASE
from gpuscale.lab.kube_api.objects.run import Json, Run, address
from gpuscale.server.metricsapi.wire import timestamp

_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
"""Conditions that never hold here, with the kubelet's words (pkg/kubelet/nodestatus/setters.go)."""
_SYSTEM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
STATUS_MS = 5 * 60_000
"""How often a kubelet reports a node that stays as it is."""
LEASE_MS = 10_000
"""How often it renews the node's lease."""
_LEASE_S = 40
LEASES = "kube-node-lease"
"""Namespace of the leases."""


def node_body(run: Run, node: Node, number: int, reported_ms: int) -> Json:
    """Return a Node.

    Args:
        run: it belongs to.
        node: of the simulation.
        number: counts nodes, for an address.
        reported_ms: when its kubelet last reported, by the machine's clock.
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
    reported = {"lastHeartbeatTime": timestamp(reported_ms)}
    conditions = [
        run.condition(kind, False, reason, message, since_ms, **reported)
        for kind, reason, message in _PRESSURES
    ]
    ready = ("KubeletReady", "simulated") if node.ready else ("NodeStatusUnknown", "simulated")
    conditions.append(run.condition("Ready", node.ready, *ready, since_ms, **reported))
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


def lease_body(run: Run, node: Node, renewed_ms: int) -> Json:
    """Return a node's Lease, which its kubelet renews as a heartbeat.

    Args:
        run: it belongs to.
        node: of the simulation.
        renewed_ms: when, by the machine's clock.
    """
    name = node.metadata.name
    meta = ObjectMeta(name, LEASES, creation_ms=node.metadata.creation_ms)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": run.uid("Node", name)}
    return {
        "apiVersion": LEASE.group_version,
        "kind": LEASE.kind,
        "metadata": {**run.metadata("Lease", meta), "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_S,
            "renewTime": f"{timestamp(renewed_ms).removesuffix('Z')}.000000Z",
        },
    }


def namespace_body(run: Run, name: str) -> Json:
    """Return a Namespace; all exist from the start of the run."""
    labels = {"kubernetes.io/metadata.name": name}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": run.metadata("Namespace", ObjectMeta(name, "", labels)),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }

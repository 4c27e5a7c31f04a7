"""Simulated nodes as the objects that a kubelet would write."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuscale.base.objects.taints import Taint

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NOT_READY = "node.kubernetes.io/not-ready"
_LEASE_SECONDS = 40
"""The kubelet's; a node whose lease is not renewed for this long becomes NotReady."""


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A simulated node with GPUs."""

    name: str
    gpus: int = 8
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = "96"
    memory: str = "768Gi"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    os: str = "linux"
    """The label `kubernetes.io/os`; empty for none, which keeps the DaemonSets of most clusters away."""
    pod_address: str | None = None
    """Of every pod on it, for programs that stand in for their containers; None gives each one that leads
    nowhere."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Node and its lease that say whose they are."""

    @property
    def capacity(self) -> dict[str, str]:
        """Return what the node offers; no GPU resource where it has no GPUs."""
        gpus = {self.gpu_resource: str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), **gpus}


def node_object(node: SimulatedNode) -> dict[str, Any]:
    """Return the Node to create; its status is written apart, as the API server asks for."""
    system = {"kubernetes.io/os": node.os} if node.os else {}
    labels = {"kubernetes.io/hostname": node.name, **system, **node.labels, **node.marks}
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": taints},
    }


def node_status(
    node: SimulatedNode, address: str, now: str, offered: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the patch that makes a node Ready.

    Args:
        node: what it is of.
        address: its own.
        now: RFC 3339.
        offered: what it offers beside what it offers already; None: its capacity.
    """
    resources = node.capacity if offered is None else dict(offered)
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated",
        **times,
    }
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [ready],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": node.name},
        ],
    }
    return {"status": status}


def lease_object(node: SimulatedNode, uid: str, now_micro: str) -> dict[str, Any]:
    """Return a node's Lease, whose renewal is its heartbeat; it is deleted with the Node of this UID."""
    spec = {
        "holderIdentity": node.name,
        "leaseDurationSeconds": _LEASE_SECONDS,
        "renewTime": now_micro,
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node.name,
            "namespace": "kube-node-lease",
            "labels": dict(node.marks),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }

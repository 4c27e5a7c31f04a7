"""Pods that wait for their own workload, and what Kueue keeps in its queue: the objects, as they are then."""

from clusters import GPU, both, meta, node, pod
from workload_cases import at, deployment, pending, wanting

FULL = f"0/1 nodes are available: 1 Insufficient {GPU}."


def replica_set(name, revision):
    metadata = owned(meta(name, "default")["metadata"], "Deployment", "web", revision)
    return {"metadata": metadata, "spec": {}}


def owned(metadata, kind, name, revision=None):
    owner = {"kind": kind, "name": name, "controller": True}
    notes = {"annotations": {"deployment.kubernetes.io/revision": str(revision)}}
    return {**metadata, "ownerReferences": [owner], **(notes if revision else {})}


def rollout(replicas=1, of_pending="web-b", **strategy):
    """A rollout of web: each GPU has a pod of its first template, and a pod of its second one waits."""
    old = []
    for number in range(replicas):
        each = pod(f"web-a-{number}", labels={"app": "web"}, gpus=1)
        each["metadata"] = owned(each["metadata"], "ReplicaSet", "web-a")
        old.append(each)
    new = pending(FULL, **wanting(GPU))
    new["metadata"] = owned(new["metadata"], "ReplicaSet", of_pending)
    body = deployment(spec={"replicas": replicas, "strategy": strategy})
    return {
        "nodes": [node(gives=replicas, has=replicas)],
        "deployments": [body, *both("deployments", without="web")],
        "replicasets": [replica_set("web-a", 1), replica_set("web-b", 2)],
        "pods": [*old, new, *both("pods", without="web-1")],
    }


def rolling(surge, unavailable):
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


def stateful(policy, replicas, *there):
    body = deployment("db", spec={"replicas": replicas, **policy})
    for each in there:
        each["metadata"] = owned(each["metadata"], "StatefulSet", "db")
    return {"statefulsets": [body], "pods": both("pods", *there)}


REASON = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"


def queued(owner, status="False", resource=GPU):
    said = {"type": "QuotaReserved", "status": status, "reason": "Pending", "message": REASON}
    body = meta("train-1", "default")
    return {
        "metadata": owned(body["metadata"], *owner),
        "spec": {"queueName": "team-a", "podSets": [{"template": {"spec": wanting(resource)}}]},
        "status": {"conditions": [said]},
    }


def gated(gate="kueue.x-k8s.io/admission"):
    return pending(
        "Scheduling is blocked due to non-empty scheduling gates",
        reason="SchedulingGated",
        schedulingGates=[{"name": gate}],
        **wanting(GPU),
    )


def preempted(victim="web-a-1", age_s=60):
    """What the scheduler says of a pod that it ended for another."""
    return {
        **meta("p", "default", creationTimestamp=at(age_s)),
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": victim},
        "message": "Preempted by pod 3c9e-1 on node gpu-1",
    }


PREEMPTED = {"replicasets": [replica_set("web-a", 1)], "preemptions": [preempted()]}
ROOM_CASES = [
    ("pod-preempted", PREEMPTED, "kubectl get priorityclasses"),
    ("rollout-without-room", rollout(2, **rolling(1, 0)), '"maxUnavailable": 1'),
    (
        "workload-queued",
        {"queued-workloads": [queued(("Job", "train"))]},
        "kubectl describe localqueue -n default team-a",
    ),
]

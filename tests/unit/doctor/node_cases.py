"""Troubles of nodes that do not come, from public complaints: check, changed snapshot, words of the fix.

Messages are those of Karpenter 1.15 and of Cluster Autoscaler's event and status.
"""

from clusters import GPU, meta, node, status_map
from workload_cases import at, pending, pods, wanting

WAITS = f"0/1 nodes are available: 1 Insufficient {GPU}."
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "h100"}


def pool(name="h100", conditions=(), taints=(), limits=None, resources=None):
    template = {
        "nodeClassRef": CLASS,
        "taints": list(taints),
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g5.xlarge"]}
        ],
    }
    return {
        **meta(name),
        "spec": {"template": {"spec": template}, "limits": limits or {}},
        "status": {"conditions": list(conditions), "resources": resources or {}},
    }


def event(message, about="web-2", kind="Pod", reason="FailedScheduling", age_s=10):
    place = {"namespace": "default"} if kind == "Pod" else {}
    return {
        **meta("e", "default"),
        "involvedObject": {"kind": kind, "name": about, **place},
        "reason": reason,
        "message": message,
        "lastTimestamp": at(age_s),
    }


def refuses(why, name="h100"):
    said = f'incompatible with nodepool "{name}", daemonset overhead={{"cpu":"1"}}, {why}'
    return {"scheduling-events": [event(f"Failed to schedule pod, {said}")]}


def world(*pools_there, age_s=60, count=1, **more):
    """A pod that chooses a pool at zero, beside a GPU node of another pool."""
    waits = pending(
        WAITS, age_s=age_s, nodeSelector={"karpenter.sh/nodepool": "h100"}, **wanting(GPU, count)
    )
    other = node(labels={"nvidia.com/gpu.present": "true", "karpenter.sh/nodepool": "other"})
    return {"nodes": [other], **pods(waits), "nodepools": [*pools_there, pool("other")], **more}


def false(kind, reason, message):
    return {"type": kind, "status": "False", "reason": reason, "message": message}


UNTOLERATED = "did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)"
NO_TYPE = 'no instance type has enough resources, resources={"nvidia.com/gpu":"8"}'
NO_STOCK = (
    "creating instance, insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: "
    "p5.48xlarge in us-east-1a"
)
NO_SUBNET = false("NodeClassReady", "UnhealthyDependents", "SubnetsReady=False")
BACKOFF = """autoscalerStatus: Running
clusterWide: {health: {status: Healthy}}
nodeGroups:
- name: gpus-a
  health: {status: Healthy, cloudProviderTarget: 3, minSize: 0, maxSize: 3}
  scaleUp:
    status: Backoff
    backoffInfo: {errorCode: OutOfResource, errorMessage: no capacity for p5.48xlarge}
    lastTransitionTime: "2026-11-26T20:00:00Z"
- name: cpus
  health: {status: Healthy, cloudProviderTarget: 1, minSize: 0, maxSize: 9}
  scaleUp: {status: NoActivity}
"""
FULL = "pod didn't trigger scale-up: 2 Insufficient nvidia.com/gpu, 1 max node group size reached"
CLAIM = {
    **meta("h100-x7k2p", labels={"karpenter.sh/nodepool": "h100"}),
    "status": {"conditions": [false("Launched", "LaunchFailed", NO_STOCK)]},
}

TOLERATED = world(pool(taints=[TAINT]), **refuses(UNTOLERATED))
TOO_LARGE = world(pool(), count=8, **refuses(NO_TYPE))
OUT_OF_STOCK = world(
    pool(),
    **{"claim-events": [event(NO_STOCK, "h100-x7k2p", "NodeClaim", "InsufficientCapacityError")]},
)
NO_CLASS = world(pool(conditions=[NO_SUBNET, false("Ready", "NotReady", "NodeClassReady=False")]))
CPU_LIMIT = world(
    pool(limits={"cpu": "96"}, resources={"cpu": "96"}),
    **refuses("no instance type has enough resources"),
)
AT_MAX = {
    "nodes": [node(gives=2)],
    **pods(pending(WAITS)),
    "autoscaler-status": status_map(BACKOFF.replace("Backoff", "NoActivity")),
    "events": [event(FULL, reason="NotTriggerScaleUp")],
}
IN_BACKOFF = {"autoscaler-status": status_map(BACKOFF)}

STARTED = {
    **meta("h100-x7k2p", labels={"karpenter.sh/nodepool": "h100"}, creationTimestamp=at(90)),
    "status": {
        "conditions": [
            {"type": "Launched", "status": "True"},
            {"type": "Registered", "status": "Unknown", "reason": "NodeNotFound"},
        ]
    },
}
JOINED = {
    **meta("h100-x7k2p", labels={"karpenter.sh/nodepool": "h100"}, creationTimestamp=at(900)),
    "status": {
        "conditions": [{"type": each, "status": "True"} for each in ("Launched", "Registered")]
    },
}

BUFFER = {
    **meta("headroom", "default", creationTimestamp=at(900)),
    "spec": {"replicas": 2},
}
UNREADY_BUFFER = {
    **BUFFER,
    "status": {
        "conditions": [false("ReadyForProvisioning", "PodTemplateNotFound", "no such PodTemplate")]
    },
}

NODE_CASES = [
    ("buffer-without-nodes", {"capacitybuffers": [BUFFER]}, "--capacity-buffer-controller-enabled"),
    ("buffer-without-nodes", {"capacitybuffers": [UNREADY_BUFFER]}, "Do what its condition says"),
    ("node-on-its-way", world(pool(), nodeclaims=[STARTED]), "kubectl get nodeclaim h100-x7k2p"),
    ("node-not-initialized", world(pool(), nodeclaims=[JOINED]), "describe nodeclaim h100-x7k2p"),
    ("node-group-at-max", AT_MAX, "Raise the group's maximum"),
    ("autoscaler-unhealthy", IN_BACKOFF, "kubectl get configmap"),
    ("node-pool-refuses", TOLERATED, '"key": "nvidia.com/gpu"'),
    ("node-pool-refuses", TOO_LARGE, "kubectl get nodepool h100 -o yaml"),
    ("node-pool-not-ready", NO_CLASS, "kubectl describe ec2nodeclass h100"),
    ("node-pool-limit", CPU_LIMIT, "kubectl get nodepool h100 -o yaml"),
    ("node-claim-failed", OUT_OF_STOCK, "kubectl describe nodepool h100"),
    ("node-claim-failed", world(pool(), nodeclaims=[CLAIM]), "other types, zones"),
]

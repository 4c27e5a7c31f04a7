"""Why no node comes: 25 faults from public complaints, as the objects of a cluster show them.

Each case has the words that whoever knew the fault would say, pool, number and code by name.
"""

from dataclasses import dataclass, replace

from clusters import GPU, both, hpa_body, look, meta, node, pod, status_map
from node_cases import BACKOFF, TAINT, WAITS, event, false, pool, refuses, world
from room_cases import (
    REASON,
    gated,
    owned,
    preempted,
    queued,
    replica_set,
    rolling,
    rollout,
    stateful,
)
from workload_cases import at, deployment, deployments, pending, pods, started, wanting

from gpuscale.kube import fields_of

ON_GPUS = {"nvidia.com/gpu.present": "true"}
NO_SCALE_UP = "NotTriggerScaleUp"
FULL_GROUP = BACKOFF.replace("Backoff", "NoActivity")


@dataclass(frozen=True)
class FaultCase:
    """A fault, what is right about it, and how a user ends it."""

    source: str
    """Repository and number of the complaint."""
    objects: dict
    check: str
    """The finding that is right; empty for a healthy cluster."""
    says: tuple = ()
    """Words that it must have."""
    beside: tuple = ()
    """What may stand beside it."""
    is_curable: bool = False
    """Whether the printed command ends it; other commands only look."""


def refused(*reasons, name="web-2"):
    """An event of Cluster Autoscaler about a pod that waits."""
    return [event(f"pod didn't trigger scale-up: {', '.join(reasons)}", name, reason=NO_SCALE_UP)]


def autoscaled(*reasons, status=FULL_GROUP, nodes=None, **asks):
    """A pod waits, and Cluster Autoscaler says why it adds no node."""
    waits = pending(WAITS, **{**wanting(GPU), **asks})
    return {
        "nodes": [node(gives=2)] if nodes is None else nodes,
        **pods(waits),
        "autoscaler-status": status_map(status),
        "events": refused(*reasons) if reasons else [],
    }


def claim(*conditions, name="h100-x7k2p", age_s=60, labels=None, status=None):
    """A NodeClaim of the pool h100."""
    given = {"karpenter.sh/nodepool": "h100", **(labels or {})}
    return {
        **meta(name, labels=given, creationTimestamp=at(age_s)),
        "status": {"conditions": list(conditions), **(status or {})},
    }


def true(kind):
    return {"type": kind, "status": "True", "reason": kind, "message": ""}


def said_of_claim(message, reason="InsufficientCapacityError"):
    return {"claim-events": [event(message, "h100-x7k2p", "NodeClaim", reason)]}


def requirement(key, *values, operator="In"):
    return {"key": key, "operator": operator, "values": list(values)}


def asking(*requirements, **more):
    """A NodePool with other requirements."""
    body = pool(**more)
    body["spec"]["template"]["spec"]["requirements"] = list(requirements)
    return body


KARPENTERS_NODE = node(
    "karp-1",
    gives=0,
    has=0,
    labels={
        "karpenter.sh/nodepool": "h100",
        "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    },
)
UNREGISTERED = false(
    "Initialized", "ResourceNotRegistered", f'Resource "{GPU}" was requested but not registered'
)
NO_SUBNETS = false("SubnetsReady", "SubnetsNotFound", "SubnetSelector did not match any Subnets")
GONE = node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])
UPGRADE = node(labels={**ON_GPUS, "nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"})
UPGRADE["spec"]["unschedulable"] = True
SWITCHED_OFF = node(
    gives=0, has=0, labels={**ON_GPUS, "nvidia.com/gpu.deploy.device-plugin": "false"}
)


def consolidated(after="0s", start_s=900):
    """A workload on Karpenter's nodes whose pods took long to become ready."""
    each = started("web-1", age_s=4 * 3600, is_ready=True)
    for condition, since in zip(
        each["status"]["conditions"], (4 * 3600, 4 * 3600 - start_s), strict=True
    ):
        condition["lastTransitionTime"] = at(since)
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after}
    body = pool()
    body["spec"]["disruption"] = disruption
    on = node(labels={**ON_GPUS, "karpenter.sh/nodepool": "h100"})
    return {"nodes": [on], "pods": both("pods", each, without="web-1"), "nodepools": [body]}


def shared():
    """A pod that asked for two turns on a GPU, and was refused by the device plugin."""
    failed = started(
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message="Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too "
        "large: maximum request size for shared resources is 1; the limit is controlled by: ...",
    )
    given = [{"name": "main", "image": "model", "resources": {"limits": {GPU: "2"}}}]
    labels = {**ON_GPUS, "nvidia.com/gpu.replicas": "4"}
    return {
        "nodes": [node(gives=4, has=4, labels=labels)],
        **deployments(deployment(template={"containers": given})),
        **pods(failed),
    }


def two_containers(count):
    one, two = (
        {"name": name, "image": "model", "resources": {"limits": {GPU: str(count)}}}
        for name in ("main", "side")
    )
    return pods(pending(WAITS, containers=[one, two]))


def group_replicas():
    """An HPA on a LeaderWorkerSet: its pods are the leaders."""
    body = hpa_body()
    body["spec"]["scaleTargetRef"] = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "web",
    }
    return {"hpas": (look(body),), "deployments": both("deployments", without="web")}


def of_metric(name):
    found = look(hpa_body(metric=name), values=())
    return (
        replace(found, metrics=(replace(found.metrics[0], fault="the server could not find it"),)),
    )


def memory_taken_at_start():
    """A vLLM that takes a share of the GPU's memory when it starts, scaled on the memory in use."""
    vllm = {
        "name": "main",
        "image": "vllm/vllm-openai",
        "args": ["--gpu-memory-utilization=0.9"],
        "resources": {"limits": {GPU: "1"}},
    }
    body = hpa_body(metric="DCGM_FI_DEV_FB_USED", target="20000")
    return {**deployments(deployment(template={"containers": [vllm]})), "hpas": (look(body),)}


def behind_first():
    return stateful({}, 3, started("db-0", age_s=90))


def at_most(limit=8, most=500):
    """An HPA that may want far more than its only pool may have."""
    body = pool(limits={GPU: str(limit)}, resources={GPU: "2"})
    on = node(labels={**ON_GPUS, "karpenter.sh/nodepool": "h100"})
    return {"nodes": [on], "nodepools": [body], "hpas": (look(hpa_body(most=most)),)}


def of_revision(name):
    body = pod(name, labels={"app": "web"}, gpus=1)
    return {**body, "metadata": owned(body["metadata"], "ReplicaSet", "web-a")}


def urgent():
    body = pod("urgent")
    body["metadata"]["uid"] = "3c9e-1"
    body["spec"]["priority"] = 1000
    return body


SUSPENDED = {"queued-workloads": [queued(("Job", "train"))]}
NO_TYPE = f'no instance type has enough resources, resources={{"{GPU}":"8","pods":"9"}}'
NO_STOCK = (
    "creating instance, insufficient capacity, with fleet error(s), InsufficientInstanceCapacity: We "
    "currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested "
    "(us-east-1a)."
)
OF_FOUR = asking(requirement("karpenter.k8s.aws/instance-gpu-count", "1", "4"))

FAULTS = {
    1: FaultCase(
        "kubernetes/autoscaler#5692",
        autoscaled("3 max node group size reached"),
        "node-group-at-max",
        ("gpus-a", "3 of 3", "Raise the group's maximum"),
    ),
    2: FaultCase(
        "kubernetes/autoscaler#3869",
        autoscaled(f"2 Insufficient {GPU}", "1 max node group size reached"),
        "node-group-at-max",
        ("gpus-a", "3 of 3"),
    ),
    3: FaultCase(
        "2i2c-org/infrastructure#2185",
        autoscaled("1 in backoff after failed scale-up", f"1 Insufficient {GPU}", status=BACKOFF),
        "autoscaler-unhealthy",
        ("gpus-a", "OutOfResource: no capacity for p5.48xlarge", "until"),
    ),
    4: FaultCase(
        "kubernetes/autoscaler (ToBeDeletedByClusterAutoscaler)",
        {
            "nodes": [GONE],
            **pods(
                pending(
                    "0/1 nodes are available: 1 node(s) had untolerated taint(s).", **wanting(GPU)
                )
            ),
            "autoscaler-status": status_map(FULL_GROUP),
        },
        "gpu-node-out-of-use",
        ("is being removed", "Never tolerate"),
        beside=("no-node-yet",),
    ),
    5: FaultCase(
        "Azure/karpenter-provider-azure#1790",
        {
            **world(pool(), nodeclaims=[claim(true("Launched"), true("Registered"), UNREGISTERED)]),
            "nodes": [KARPENTERS_NODE],
        },
        "no-device-plugin",
        ("No device plugin",),
    ),
    6: FaultCase(
        "aws/karpenter-provider-aws#7038",
        world(OF_FOUR, count=8, **refuses(NO_TYPE)),
        "node-pool-refuses",
        ("NodePool h100", "8", "the largest has 4"),
    ),
    7: FaultCase(
        "aws/karpenter-provider-aws#6884",
        world(
            pool(taints=[TAINT]),
            **refuses("did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)"),
        ),
        "node-pool-refuses",
        ("NodePool h100", "nvidia.com/gpu=true:NoSchedule", "Give its pods a toleration"),
        is_curable=True,
    ),
    8: FaultCase(
        "aws/karpenter-provider-aws#3043",
        world(pool(), **said_of_claim(NO_STOCK)),
        "node-claim-failed",
        ("InsufficientInstanceCapacity", "p5.48xlarge", "us-east-1a", "other types, zones"),
    ),
    9: FaultCase(
        "aws/karpenter-provider-aws#7719",
        world(
            pool(
                conditions=[
                    false("NodeClassReady", "UnhealthyDependents", "SubnetsReady=False"),
                    false("Ready", "UnhealthyDependents", "NodeClassReady=False"),
                ]
            ),
            node_classes={
                "EC2NodeClass/h100": fields_of(
                    {**meta("h100"), "status": {"conditions": [NO_SUBNETS]}}
                )
            },
        ),
        "node-pool-not-ready",
        ("EC2NodeClass h100", "SubnetSelector did not match any Subnets"),
    ),
    10: FaultCase(
        "aws/karpenter-provider-aws#5975",
        world(
            pool(limits={"cpu": "96"}, resources={"cpu": "96"}),
            **{
                "scheduling-events": [
                    event(
                        "Failed to schedule pod, all available instance types exceed limits for nodepool "
                        "(NodePool=h100)"
                    )
                ]
            },
        ),
        "node-pool-limit",
        ("96 cpu", "96 in use"),
    ),
    11: FaultCase(
        "kubernetes-sigs/karpenter#651",
        consolidated(),
        "consolidation-too-fast",
        ("NodePool h100", "consolidateAfter 0s", "15 min"),
        is_curable=True,
    ),
    12: FaultCase(
        "NVIDIA/k8s-device-plugin#321",
        shared(),
        "pod-failed",
        ("Ask for 1", f"--limits={GPU}=1"),
    ),
    13: FaultCase(
        "NVIDIA/k8s-device-plugin#929",
        pods(
            pending(
                f"0/2 nodes are available: 2 Insufficient {GPU}.shared.", **wanting(f"{GPU}.shared")
            )
        ),
        "resource-not-offered",
        (f"{GPU}.shared", f"Ask for {GPU}"),
    ),
    14: FaultCase(
        "kubernetes/kubernetes (two containers)",
        two_containers(40),
        "larger-than-any-node",
        ("80", "the largest node has 2"),
    ),
    15: FaultCase(
        "kubernetes-sigs/kueue#9048",
        {**pods(gated()), "queued-workloads": [queued(("Pod", "web-2"))]},
        "workload-queued",
        ("team-a", REASON),
    ),
    16: FaultCase("kubernetes-sigs/kueue#189", SUSPENDED, "workload-queued", ("team-a", REASON)),
    17: FaultCase("kubernetes-sigs/lws#663", group_replicas(), ""),
    18: FaultCase(
        "vllm-project/production-stack#341",
        {"hpas": of_metric("vllm:num_requests_waiting")},
        "no-value",
        ("vllm_num_requests_waiting", "vllm-waiting"),
    ),
    19: FaultCase(
        "vllm-project/vllm (memory is taken at start)",
        memory_taken_at_start(),
        "memory-at-start",
        ("--gpu-memory-utilization", "vllm-waiting"),
    ),
    20: FaultCase(
        "kubernetes/kubernetes (OrderedReady)",
        behind_first(),
        "set-waits-for-first",
        ("db-0", "2 pods", "podManagementPolicy: Parallel"),
    ),
    21: FaultCase(
        "kubernetes/kubernetes (maxSurge 1)",
        rollout(2, **rolling(1, 0)),
        "rollout-without-room",
        ("maxSurge 0", "maxUnavailable 1"),
    ),
    22: FaultCase(
        "NVIDIA/gpu-operator (upgrade-failed)",
        {
            "nodes": [UPGRADE],
            **pods(
                pending("0/1 nodes are available: 1 node(s) were unschedulable.", **wanting(GPU))
            ),
        },
        "gpu-node-cordoned",
        ("upgrade-failed", "See to the upgrade first"),
        beside=("nodes-cordoned",),
    ),
    23: FaultCase(
        "NVIDIA/gpu-operator (deploy.device-plugin)",
        {"nodes": [SWITCHED_OFF]},
        "no-device-plugin",
        ("nvidia.com/gpu.deploy.device-plugin=false", "Set the label back"),
    ),
    24: FaultCase(
        "aws/karpenter-provider-aws#8068",
        at_most(),
        "pools-below-max",
        ("500", "8 of 500", "NodePool h100"),
    ),
    25: FaultCase(
        "kubernetes/kubernetes (preemption)",
        {
            "replicasets": [replica_set("web-a", 1)],
            "preemptions": [preempted()],
            "pods": [of_revision("web-1"), urgent(), *both("pods", without="web-1")],
        },
        "pod-preempted",
        ("default/urgent (1000)",),
    ),
}

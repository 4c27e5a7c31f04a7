"""Why no node comes: 35 reports that the checks were not written from, with the right answer beside each.

Messages are those of the reports, or of the code that writes them: karpenter pkg/controllers/provisioning
and nodeclaim/lifecycle, cluster-autoscaler core/scaleup and clusterstate/api, kueue pkg/scheduler,
scheduler-plugins pkg/coscheduling, HAMi pkg/scheduler, gpushare-scheduler-extender pkg/scheduler.
"""

from clusters import GPU, both, meta, node, pod, status_map
from fault_cases import (
    FULL_GROUP,
    ON_GPUS,
    FaultCase,
    asking,
    autoscaled,
    claim,
    requirement,
    true,
)
from node_cases import BACKOFF, WAITS, event, false, pool, refuses, world
from room_cases import owned, queued
from workload_cases import pending, pods, wanting

from gpuscale.kube import fields_of

ZONE = "topology.kubernetes.io/zone"


def backing_off(code, message):
    return BACKOFF.replace("OutOfResource", code).replace(
        "no capacity for p5.48xlarge", f'"{message}"'
    )


def node_class(*conditions, **spec):
    body = {**meta("h100"), "spec": spec, "status": {"conditions": list(conditions)}}
    return {"node_classes": {"EC2NodeClass/h100": fields_of(body)}}


def not_ready(status="False", reason="UnhealthyDependents"):
    said = {"reason": reason, "message": "NodeClassReady=" + status, "status": status}
    return pool(conditions=[{"type": "NodeClassReady", **said}, {"type": "Ready", **said}])


def in_queue(message, reason="Pending", status="False", owner=("Job", "train"), **more):
    body = queued(owner, status)
    (condition,) = body["status"]["conditions"]
    body["status"]["conditions"] = [{**condition, "reason": reason, "message": message}]
    body["status"] |= more
    return {"queued-workloads": [body]}


def suspended_job(**labels):
    body = meta("train", "default", labels=labels)
    return {
        "queued-workloads": [],
        "jobs": [
            {**body, "spec": {"suspend": True, "template": {"spec": wanting(GPU)}}, "status": {}}
        ],
    }


def of_group(body, index, worker):
    """A pod of a LeaderWorkerSet of groups of two."""
    given = {
        "leaderworkerset.sigs.k8s.io/name": "llm",
        "leaderworkerset.sigs.k8s.io/group-index": str(index),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }
    name = f"llm-{index}" if worker == 0 else f"llm-{index}-{worker}"
    metadata = {**body["metadata"], "name": name, "labels": given}
    metadata["annotations"] = {"leaderworkerset.sigs.k8s.io/size": "2"}
    owner = ("StatefulSet", "llm" if worker == 0 else f"llm-{index}")
    return {**body, "metadata": owned(metadata, *owner)}


def in_parts():
    """Two leaders hold the two GPUs, and neither worker has one."""
    there = [of_group(pod("x", gpus=1), index, 0) for index in (0, 1)]
    waits = [of_group(pending(WAITS, **wanting(GPU)), index, 1) for index in (0, 1)]
    return {"pods": [*there, *waits, *both("pods", without="web-1")]}


def ungated(message, **spec):
    return pods(pending(message, **wanting(GPU), **spec))


def hami(message, cards="[]"):
    limits = {
        "containers": [
            {
                "name": "main",
                "image": "x",
                "resources": {"limits": {GPU: "1", "nvidia.com/gpumem": "90000"}},
            }
        ]
    }
    shared = node(gives=20, has=20)
    shared["metadata"]["annotations"] = {"hami.io/node-nvidia-register": cards}
    waits = pending(
        "0/1 nodes are available: 1 NodeUnfitPod.", schedulerName="hami-scheduler", **limits
    )
    has = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1024,0:;"}
    there = [
        {**each, "metadata": {**each["metadata"], "annotations": has}}
        if each["spec"].get("nodeName")
        else each
        for each in pods(waits)["pods"]
    ]
    return {
        "nodes": [shared],
        "pods": there,
        "filtering-events": [event(message, reason="FilteringFailed")],
    }


def in_one_device():
    memory = "aliyun.com/gpu-mem"
    offers = {memory: "92", "aliyun.com/gpu-count": "4"}
    body = node(labels={"gpushare": "true"})
    body["status"] |= {"capacity": offers, "allocatable": offers}
    there = []
    for number in range(4):
        each = pod(f"infer-{number}")
        each["spec"]["containers"][0]["resources"] = {"limits": {memory: "14"}}
        there.append(each)
    waits = pending(
        "0/1 nodes are available: 1 Insufficient GPU Memory in one device.", **wanting(memory, 10)
    )
    return {"nodes": [body], "pods": [*there, waits, *both("pods", without="web-1")]}


MIG = "nvidia.com/mig-1g.10gb"
MIG_LABELS = {
    **ON_GPUS,
    "nvidia.com/mig.config": "all-1g.10gb",
    "nvidia.com/mig.config.state": "failed",
    "nvidia.com/mig.strategy": "mixed",
}
LOST = false("Registered", "NodeNotFound", "Node not registered with cluster")
UNREGISTERED_TAINT = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
CLAIMING = {
    "containers": [{"name": "main", "image": "x"}],
    "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}],
}
CLAIM_TEMPLATE = {
    **meta("gpu", "default"),
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}
DRA = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
QUOTA = (
    "Create or update virtual machine failed. QuotaExceeded: Operation could not be completed as it results "
    "in exceeding approved Total Regional Cores quota. Location: northeurope, Current Limit: 100, Current "
    "Usage: 100, Additional Required: 4"
)
VCPUS = (
    "creating instance, with fleet error(s), VcpuLimitExceeded: You have requested more vCPU capacity than "
    "your current vCPU limit of 64 allows for the instance bucket that the instance type belongs to."
)
OF_ZONES = asking(requirement(ZONE, "eu-central-1c"))

REPORTED = [
    FaultCase(
        "2i2c-org/infrastructure#2185",
        autoscaled(
            "1 node(s) didn't match Pod's node affinity/selector",
            "1 in backoff after failed scale-up",
            status=backing_off(
                "QUOTA_EXCEEDED", "Quota NVIDIA_T4_GPUS exceeded. Limit: 4.0 in region us-central1."
            ),
        ),
        "autoscaler-unhealthy",
        ("gpus-a", "QUOTA_EXCEEDED", "NVIDIA_T4_GPUS", "Raise the quota"),
    ),
    FaultCase(
        "2i2c-org/infrastructure#3334",
        autoscaled(
            "1 in backoff after failed scale-up",
            status=backing_off(
                "placeholder-cannot-be-fulfilled",
                "AWS cannot provision any more instances for this node group",
            ),
        ),
        "autoscaler-unhealthy",
        ("gpus-a", "AWS cannot provision any more instances", "describe-scaling-activities"),
    ),
    FaultCase(
        "Azure/AKS#5808",
        world(pool(), nodeclaims=[claim(false("Launched", "LaunchFailed", QUOTA))]),
        "node-claim-failed",
        ("NodePool h100", "QuotaExceeded", "Current Limit: 100", "Raise the quota"),
    ),
    FaultCase(
        "kubernetes/autoscaler#10301",
        {
            "nodes": [
                node(),
                node(
                    "gpu-9",
                    0,
                    0,
                    labels={
                        "kubernetes.azure.com/accelerator": "nvidia",
                        "accelerator": "nvidia",
                        "kubernetes.azure.com/agentpool": "fixed",
                    },
                ),
            ],
            "autoscaler-status": status_map(FULL_GROUP),
        },
        "no-device-plugin",
        ("other pools",),
        beside=("node-without-agent", "accelerator-label-missing"),
    ),
    FaultCase(
        "kubernetes/autoscaler#7667",
        autoscaled("max total nodes in cluster reached"),
        "autoscaler-limit",
        ("--max-nodes-total",),
    ),
    FaultCase(
        "kubernetes/autoscaler#3268",
        autoscaled("1 max limit reached"),
        "node-group-at-max",
        ("gpus-a", "3 of 3"),
    ),
    FaultCase(
        "openshift/cluster-autoscaler-operator#213",
        autoscaled("2 max cluster cpu, memory limit reached"),
        "autoscaler-limit",
        ("cpu, memory", "--cores-total", "--memory-total"),
    ),
    FaultCase(
        "kubernetes/autoscaler#1157",
        autoscaled(priority=-20),
        "priority-too-low",
        ("-20", "-10", "--expendable-pods-priority-cutoff"),
    ),
    FaultCase(
        "kubernetes/autoscaler#4613",
        autoscaled(
            "2 node(s) didn't match Pod's node affinity/selector", nodeSelector={"disk": "fast"}
        ),
        "no-matching-node",
        ("disk=fast",),
    ),
    FaultCase(
        "Azure/AKS#1565",
        autoscaled(
            f"1 Insufficient {GPU}",
            "1 node(s) had untolerated taint {sku: gpu}",
            nodes=[node("cpu-1", 0, 0, labels={})],
        ),
        "pool-taint-not-tolerated",
        ("sku=gpu", "toleration"),
        is_curable=True,
    ),
    FaultCase(
        "aws/karpenter-provider-aws#6884",
        world(
            pool(),
            **refuses(
                f'no instance type has enough resources, resources={{"{GPU}":"1","pods":"5"}}'
            ),
            **node_class(kubelet={"maxPods": 1}),
        ),
        "node-pool-refuses",
        ("EC2NodeClass h100", "maxPods 1", "5 pods"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#8064",
        world(
            asking(requirement("node.kubernetes.io/instance-type", "g4dn.2xlarge", "g4dn.4xlarge")),
            count=2,
            **refuses(
                f'no instance type has enough resources, resources={{"cpu":"17185m","{GPU}":"2","pods":"5"}}'
            ),
        ),
        "node-pool-refuses",
        ("g4dn.2xlarge, g4dn.4xlarge", "17185m cpu", f"2 {GPU}"),
    ),
    FaultCase(
        "kubernetes-sigs/karpenter#1212",
        world(
            pool(),
            **refuses(
                "no instance type which met the scheduling requirements and had enough resources, had a "
                "required offering"
            ),
        ),
        "node-pool-refuses",
        ("NodePool h100", "no stock", "zones or capacity types"),
    ),
    FaultCase(
        "Azure/karpenter-provider-azure#1005",
        world(
            pool(),
            **refuses(
                'incompatible requirements, label "nvidia.com/gpu.product" does not have known values'
            ),
        ),
        "node-pool-refuses",
        ("nvidia.com/gpu.product", "before a node runs", "requirements"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#9519",
        {
            "nodes": [node()],
            **pods(pending("0/1 nodes are available: 1 cannot allocate all claims.", **CLAIMING)),
            "claimtemplates": [CLAIM_TEMPLATE],
            "resourceclaims": [],
            "deviceclasses": [meta("gpu.nvidia.com")],
            "resourceslices": [
                {**meta("s"), "spec": {"nodeName": "gpu-1", "driver": "gpu.nvidia.com"}}
            ],
            "nodepools": [pool()],
            "scheduling-events": [event(f"Failed to schedule pod, {DRA}")],
        },
        "node-pool-refuses",
        ("resource claims", "IGNORE_DRA_REQUESTS"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#3372",
        world(pool(), nodeclaims=[claim(false("Launched", "LaunchFailed", VCPUS))]),
        "node-claim-failed",
        ("VcpuLimitExceeded", "limit of 64", "Raise the quota"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#7719",
        world(
            not_ready(),
            **node_class(false("AMIsReady", "AMINotFound", "AMISelector did not match any AMIs")),
        ),
        "node-pool-not-ready",
        ("EC2NodeClass h100", "AMISelector did not match any AMIs"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#8720",
        world(
            not_ready("Unknown", "AwaitingReconciliation"),
            **node_class(
                {
                    "type": "ValidationSucceeded",
                    "status": "Unknown",
                    "reason": "AwaitingReconciliation",
                    "message": "object is awaiting reconciliation",
                }
            ),
        ),
        "node-pool-not-ready",
        ("EC2NodeClass h100", "object is awaiting reconciliation"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#6292",
        world(
            pool(
                conditions=[
                    false("NodeClassReady", "NodeClassNotFound", "NodeClass not found on cluster"),
                    false("Ready", "UnhealthyDependents", "NodeClassReady=False"),
                ]
            )
        ),
        "node-pool-not-ready",
        ("NodeClass not found on cluster", "Make EC2NodeClass h100"),
    ),
    FaultCase(
        "kubernetes-sigs/karpenter#2123",
        world(
            pool(limits={"cpu": "100"}, resources={"cpu": "90"}),
            **{
                "scheduling-events": [
                    event(
                        "Failed to schedule pod, all available instance types exceed limits for nodepool: "
                        '"h100"'
                    )
                ]
            },
        ),
        "node-pool-limit",
        ("100 cpu", "90 in use"),
    ),
    FaultCase(
        "Azure/karpenter-provider-azure#579",
        world(
            pool(),
            nodeclaims=[
                claim(
                    true("Launched"),
                    LOST,
                    age_s=720,
                    labels={"node.kubernetes.io/instance-type": "Standard_NC48ads_A100_v4"},
                )
            ],
        ),
        "node-not-registered",
        ("h100-x7k2p", "Standard_NC48ads_A100_v4", "12 min"),
    ),
    FaultCase(
        "kubernetes-sigs/karpenter#729",
        {
            **world(
                pool(),
                **refuses(
                    f'no instance type has enough resources, resources={{"{GPU}.shared":"1","pods":"5"}}'
                ),
            ),
            **pods(
                pending(
                    WAITS,
                    nodeSelector={"karpenter.sh/nodepool": "h100"},
                    **wanting(f"{GPU}.shared"),
                )
            ),
        },
        "node-pool-refuses",
        (f"{GPU}.shared", "does not know"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#5101",
        world(
            OF_ZONES,
            **refuses(
                f"incompatible requirements, key {ZONE}, {ZONE} In [eu-central-1b] not in {ZONE} In "
                "[eu-central-1c]"
            ),
        ),
        "node-pool-refuses",
        ("eu-central-1b", "eu-central-1c", "volume"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#7232",
        in_queue(
            "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100, "
            "previously considered podsets requests (0) + current podset request (16) > maximum capacity (8)"
        ),
        "workload-queued",
        ("team-a", "(16) > maximum capacity (8)", "can never"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#1651",
        in_queue("ClusterQueue team-a-cq is inactive", "Inadmissible"),
        "workload-queued",
        ("team-a", "ClusterQueue team-a-cq is inactive", "kubectl describe clusterqueue team-a-cq"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#5129",
        in_queue(
            "Quota reserved in ClusterQueue team-a-cq",
            "QuotaReserved",
            "True",
            admissionChecks=[
                {"name": "dws-prov", "state": "Pending", "message": "Max nodepool size reached"}
            ],
        ),
        "workload-queued",
        ("dws-prov", "Max nodepool size reached"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#2612",
        suspended_job(**{"kueue.x-k8s.io/queue-name": "team-a"}),
        "job-suspended",
        ("team-a", "no Workload"),
    ),
    FaultCase(
        "kubernetes-sigs/lws#167",
        in_parts(),
        "group-in-parts",
        ("2 groups", "LeaderWorkerSet", "default/llm"),
    ),
    FaultCase(
        "kubernetes-sigs/scheduler-plugins#358",
        ungated(
            "0/3 nodes are available: 3 pre-filter pod web-2 cannot find enough sibling pods, current pods "
            "number: 3, minMember of group: 10.",
            schedulerName="scheduler-plugins-scheduler",
        ),
        "group-in-parts",
        ("3 of 10",),
    ),
    FaultCase(
        "volcano-sh/volcano#1959",
        ungated(
            "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 "
            "Unschedulable",
            schedulerName="volcano",
        ),
        "group-in-parts",
        ("2 minAvailable", "all or none"),
    ),
    FaultCase(
        "NVIDIA/gpu-operator#2670",
        {
            "nodes": [node(gives=1, has=1, labels=MIG_LABELS)],
            **pods(pending(f"0/1 nodes are available: 1 Insufficient {MIG}.", **wanting(MIG))),
        },
        "mig-not-applied",
        ("all-1g.10gb", "failed", "gpu-1"),
    ),
    FaultCase(
        "Project-HAMi/HAMi#602",
        hami("no available node, 1 nodes do not meet; 1/1 CardInsufficientMemory"),
        "unschedulable",
        ("CardInsufficientMemory", "gpumem"),
    ),
    FaultCase(
        "Project-HAMi/HAMi#602 (cards)",
        hami(
            "no available node",
            cards="GPU-a,10,81920,100,NVIDIA-A100,0,true:"
            + "GPU-b,10,81920,100,NVIDIA-A100,0,true:",
        ),
        "unschedulable",
        ("90000 MiB", "81920 MiB", "gpumem"),
    ),
    FaultCase(
        "AliyunContainerService/gpushare-scheduler-extender#188",
        in_one_device(),
        "unschedulable",
        ("in one device", "spread over"),
        beside=("gpu-node-unlabelled",),
    ),
    FaultCase(
        "Azure/AKS#1444",
        autoscaled(
            "1 in backoff after failed scale-up",
            status=backing_off(
                "SkuNotAvailable",
                "The requested size for resource is currently not available in "
                "location eastus zones 1,2,3",
            ),
        ),
        "autoscaler-unhealthy",
        ("gpus-a", "SkuNotAvailable", "eastus zones 1,2,3", "zones or capacity types"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#7426",
        {
            **world(
                pool(),
                nodeclaims=[
                    claim(
                        true("Launched"),
                        true("Registered"),
                        false(
                            "Initialized",
                            "KnownEphemeralTaintsExist",
                            'KnownEphemeralTaint "node.cloudprovider.kubernetes.io/uninitialized=true:'
                            'NoSchedule" still exists',
                        ),
                    )
                ],
            ),
            "nodes": [
                node(
                    "karp-1",
                    labels={**ON_GPUS, "karpenter.sh/nodepool": "h100"},
                    taints=[UNREGISTERED_TAINT],
                )
            ],
        },
        "gpu-node-out-of-use",
        ("is not set up yet", "uninitialized", "Never tolerate"),
    ),
]

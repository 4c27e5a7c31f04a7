"""Why no node comes: 20 reports that were tried once the checks were written, with the right answers."""

from clusters import AGENT_LABELS, ANY, GPU, PLUGIN, node, workload
from fault_cases import ON_GPUS, FaultCase, asking, autoscaled, claim, requirement
from node_cases import WAITS, event, false, pool, refuses, world
from reported_cases import backing_off, hami, in_queue, ungated
from room_cases import queued
from workload_cases import at, pending, pods, wanting

HOSTNAME = "kubernetes.io/hostname"
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}


def of_three():
    waits = pending("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", **wanting(GPU))
    return {"nodes": [node(gives=1, has=2)], **pods(waits)}


def spot_node():
    labels = {"kubernetes.azure.com/accelerator": "nvidia", "accelerator": "nvidia"}
    plugin = workload("nvidia-device-plugin", "gpu-resources", image=PLUGIN)
    return {
        "nodes": [node("gpu-1", 0, 0, labels={**ON_GPUS, **labels}, taints=[SPOT])],
        "daemonsets": [workload("agent", "gpuscale", AGENT_LABELS, ANY), plugin],
    }


def without_selector(message, *pools):
    waits = pending(WAITS, **wanting(GPU))
    here = node(labels={**ON_GPUS, "karpenter.sh/nodepool": pools[0]["metadata"]["name"]})
    return {
        "nodes": [here],
        **pods(waits),
        "nodepools": list(pools),
        "scheduling-events": [event(f"Failed to schedule pod, {message}")],
    }


def evicted(active=True):
    body = queued(("JobSet", "llm"), "True")
    body["spec"]["active"] = active
    body["status"]["conditions"] += [
        {"type": "Admitted", "status": "True"},
        {
            "type": "Evicted",
            "status": "True",
            "reason": "PodsReadyTimeout" if active else "Deactivated",
            "message": "Exceeded the PodsReady timeout default/llm"
            if active
            else "The workload is deactivated",
            "lastTransitionTime": at(3600),
        },
    ]
    if not active:
        body["status"]["conditions"][0]["status"] = "False"
        body["status"]["conditions"][1]["status"] = "False"
    return {"queued-workloads": [body]}


LATER = [
    FaultCase(
        "StatCan/aaw#1297",
        autoscaled(
            "4 node(s) had taint {node.statcan.gc.ca/purpose: system}, that the pod didn't tolerate",
            "2 node(s) had taint {node.statcan.gc.ca/use: gpu}, that the pod didn't tolerate",
            "1 node(s) had taint {remediator.aks.microsoft.com/unschedulable: }, that the pod didn't "
            "tolerate",
            "1 Insufficient memory",
            f"1 Insufficient {GPU}",
            "1 max node group size reached",
        ),
        "node-group-at-max",
        ("gpus-a", "3 of 3"),
    ),
    FaultCase(
        "pluralsh/plural-artifacts#137",
        autoscaled(
            "8 node(s) had taint {plural.sh/capacityType: SPOT}, that the pod didn't tolerate",
            "13 node(s) didn't match Pod's node affinity",
        ),
        "node-group-refuses",
        ("plural.sh/capacityType: SPOT", "node affinity"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#8068",
        without_selector(
            'incompatible with nodepool "spot-pool", daemonset overhead={"cpu":"1566m"}, no instance type '
            f'has enough resources, requirements=x, resources={{"cpu":"1566m","{GPU}":"1","pods":"12"}}; all '
            "available instance types exceed limits for nodepool (NodePool=gpu)",
            pool("gpu", limits={"cpu": "8"}, resources={"cpu": "4"}),
            pool("spot-pool"),
        ),
        "node-pool-limit",
        ("8 cpu", "4 in use"),
    ),
    FaultCase(
        "kubernetes/autoscaler#4339",
        autoscaled("1 node(s) had volume node affinity conflict"),
        "node-group-refuses",
        ("volume", "zone"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#5039",
        in_queue(
            "couldn't assign flavors to pod set main: no topology domains at level: oci/rdma.local_block_id"
        ),
        "workload-queued",
        ("no topology domains at level",),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#14811",
        evicted(),
        "workload-queued",
        ("Exceeded the PodsReady timeout", "evicted"),
    ),
    FaultCase(
        "kubernetes-sigs/kueue#2219",
        evicted(active=False),
        "workload-queued",
        ("deactivated", "spec.active"),
    ),
    FaultCase(
        "NVIDIA/k8s-device-plugin#75",
        of_three(),
        "gpus-unhealthy",
        ("1 of 2 GPUs",),
        ("no-node-autoscaler",),
    ),
    FaultCase(
        "Azure/AKS#4418",
        spot_node(),
        "device-plugin-taint",
        ("kubernetes.azure.com/scalesetpriority=spot",),
        beside=("taint-not-tolerated",),
    ),
    FaultCase(
        "bergerx/kubectl-status#739",
        {
            **pods(
                pending(
                    WAITS, nodeSelector={"workload.example.com/tier": "stateful"}, **wanting(GPU)
                )
            ),
            "nodepools": [pool()],
        },
        "no-matching-node",
        ("workload.example.com/tier=stateful", "NodePool's requirements"),
    ),
    FaultCase(
        "kubernetes-sigs/karpenter (minValues)",
        world(
            pool(),
            **refuses(
                "minValues requirement is not met for label(s) (label(s)=[karpenter.k8s.aws/instance-family])"
            ),
        ),
        "node-pool-refuses",
        ("NodePool h100", "minValues", "karpenter.k8s.aws/instance-family"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#1507",
        world(
            pool(),
            **refuses(f"unsatisfiable topology constraint for pod anti-affinity, key={HOSTNAME}"),
        ),
        "node-pool-refuses",
        ("NodePool h100", "pod anti-affinity", HOSTNAME),
    ),
    FaultCase(
        "Project-HAMi/HAMi#602 (2.4)",
        hami("no available node, all node scores do not meet"),
        "unschedulable",
        ("HAMi", "gpumem"),
    ),
    FaultCase(
        "tkestack/gpu-manager#24",
        ungated("0/1 nodes are available: 1 ExceedsGPUQuota."),
        "unschedulable",
        ("ExceedsGPUQuota",),
    ),
    FaultCase(
        "Azure/karpenter-provider-azure (quota of a family)",
        world(
            pool(),
            **{
                "claim-events": [
                    event(
                        "creating instance failed, subscription level ondemand vCPU quota for "
                        "standardNCFamily has been reached (may try provision an alternative instance type)",
                        "h100-x7k2p",
                        "NodeClaim",
                        "InsufficientCapacityError",
                    )
                ]
            },
        ),
        "node-claim-failed",
        ("standardNCFamily", "Raise the quota"),
    ),
    FaultCase(
        "ray-project/ray#25525",
        autoscaled(
            "1 in backoff after failed scale-up",
            status=backing_off(
                "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                "the zone us-central1-a does not have enough resources available to fulfill the request",
            ),
        ),
        "autoscaler-unhealthy",
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "us-central1-a", "zones or capacity types"),
    ),
    FaultCase(
        "cloudpilot-ai/karpenter-provider-alibabacloud (no stock)",
        world(
            pool(),
            nodeclaims=[
                claim(
                    false(
                        "Launched",
                        "LaunchFailed",
                        "creating instance, OperationDenied.NoStock: Sales of this resource are "
                        "temporarily suspended in the specified zone cn-hangzhou-b, ecs.gn7i-c8g1.2xlarge",
                    )
                )
            ],
        ),
        "node-claim-failed",
        ("OperationDenied.NoStock", "ecs.gn7i-c8g1.2xlarge", "other types, zones"),
    ),
    FaultCase(
        "cloudpilot-ai/karpenter-provider-gcp#176",
        world(
            pool(),
            nodeclaims=[
                claim(
                    {"type": "Launched", "status": "True"},
                    {
                        "type": "Registered",
                        "status": "Unknown",
                        "reason": "AwaitingReconciliation",
                        "message": "object is awaiting reconciliation",
                    },
                    age_s=400,
                )
            ],
        ),
        "node-not-registered",
        ("h100-x7k2p", "6 min"),
    ),
    FaultCase(
        "aws/karpenter-provider-aws#6574",
        world(
            asking(requirement("node.kubernetes.io/instance-type", "g4dn.xlarge", "g5.xlarge")),
            **refuses("no instance type met all requirements"),
        ),
        "node-pool-refuses",
        ("NodePool h100", "no instance type met all requirements"),
    ),
    FaultCase(
        "kubernetes/autoscaler#2085",
        autoscaled(
            "1 Insufficient cpu", "2 Insufficient memory", nodes=[node(gives=2)], **wanting(GPU)
        ),
        "node-group-refuses",
        ("Insufficient cpu", "Insufficient memory"),
    ),
]

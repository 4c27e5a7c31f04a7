"""Healthy clusters of each node autoscaler, queue and group: nothing that waits or starts is a fault."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import GPU, both, cluster, findings_of, hpa_body, look, node, pod, status_map
from fault_cases import FULL_GROUP, ON_GPUS, autoscaled, claim, consolidated, true
from node_cases import BUFFER, event, pool, world
from reported_cases import MIG, MIG_LABELS, in_parts, of_group, suspended_job
from room_cases import queued, stateful
from workload_cases import at, started

READY = [{"type": "Ready", "status": "True"}]
ON_KARPENTER = node(labels={**ON_GPUS, "karpenter.sh/nodepool": "h100"})
DONE = claim(true("Launched"), true("Registered"), true("Initialized"))


def admitted():
    body = queued(("Job", "train"), "True")
    body["status"]["conditions"].append({"type": "Admitted", "status": "True"})
    body["status"]["admissionChecks"] = [{"name": "dws", "state": "Ready"}]
    return body


def whole_groups():
    there = [of_group(pod("x", gpus=1), index, worker) for index in (0,) for worker in (0, 1)]
    return {"pods": [*there, *both("pods", without="web-1")]}


def not_started_yet():
    """Groups of which no pod has a node: they wait for room, and hold none."""
    found = in_parts()
    found["pods"] = [
        each for each in found["pods"] if each["metadata"]["name"] not in ("llm-0", "llm-1")
    ]
    return found


def split():
    labels = {**MIG_LABELS, "nvidia.com/mig.config.state": "success"}
    body = node(gives=0, has=0, labels=labels)
    body["status"]["allocatable"] = body["status"]["capacity"] = {MIG: "7"}
    return {"nodes": [body]}


def limited(most):
    body = pool(conditions=READY, limits={GPU: "8"}, resources={GPU: "2"})
    return {"nodes": [ON_KARPENTER], "nodepools": [body], "hpas": (look(hpa_body(most=most)),)}


def unordered():
    return stateful({"podManagementPolicy": "Parallel"}, 3, started("db-0", age_s=90))


TRIGGERED = event("pod triggered scale-up: [{gpus-a 2->3 (max: 3)}]", reason="TriggeredScaleUp")

BUFFERED = {
    **BUFFER,
    "status": {"conditions": [true("ReadyForProvisioning"), true("Provisioning")]},
}
NEW_BUFFER = {**BUFFER, "metadata": {**BUFFER["metadata"], "creationTimestamp": at(60)}}

HEALTHY = {
    "CapacityBuffer": {"capacitybuffers": [BUFFERED]},
    "CapacityBuffer, just made": {"capacitybuffers": [NEW_BUFFER]},
    "Karpenter": {
        "nodes": [ON_KARPENTER],
        "nodepools": [pool(conditions=READY)],
        "nodeclaims": [DONE],
    },
    "Karpenter, a pod that waits for a moment": world(pool(conditions=READY)),
    "Karpenter, a slow start and slow consolidation": consolidated("20m", 900),
    "Karpenter, a fast start and fast consolidation": consolidated("0s", 60),
    "Karpenter, limits above the maximum": limited(8),
    "Cluster Autoscaler": {"autoscaler-status": status_map(FULL_GROUP)},
    "Cluster Autoscaler, a pod that waits for a moment": autoscaled(),
    "Cluster Autoscaler, with a lower priority": autoscaled(priority=-10),
    "Kueue, a Workload that runs": {"queued-workloads": [admitted()], "jobs": []},
    "a Job that its user suspended": suspended_job(),
    "LeaderWorkerSet": whole_groups(),
    "MIG": split(),
    "StatefulSet that makes all pods at once": unordered(),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_cluster_gives_nothing(name):
    assert findings_of(cluster(**HEALTHY[name])) == {}


def test_one_replica_beyond_the_limits_is_told():
    assert "pools-below-max" in findings_of(cluster(**limited(9)))


def test_groups_that_hold_nothing_are_not_in_parts():
    assert "group-in-parts" not in findings_of(cluster(**not_started_yet()))

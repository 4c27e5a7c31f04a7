# mypy: disable-error-code="arg-type"
"""Pods that wait for their own workload: a rollout's old pods, a StatefulSet's first one, Kueue's queue."""

import json
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import GPU, both, cluster, findings_of, node, pod, status_map
from node_cases import event
from room_cases import (
    FULL,
    PREEMPTED,
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
from workload_cases import deployment, pending, pods, started, wanting

ENDS_OLD_FIRST = [
    # Surge is rounded up and unavailable down: 25 % of 4 is a pod, of 3 none.
    rollout(4, **rolling("25%", "25%")),
    rollout(2, **rolling(1, 1)),
    rollout(2, **rolling(0, 1)),
    rollout(2, **rolling("0%", "0%")),  # both 0: one may be unavailable
    rollout(2, type="Recreate"),
    # A pod of the first template: the autoscaler wants more, and no rollout is behind it.
    rollout(2, "web-a", **rolling(1, 0)),
]


@pytest.mark.parametrize("changed", ENDS_OLD_FIRST)
def test_pods_that_more_gpus_alone_help_are_told_so(changed) -> None:
    found = findings_of(cluster(**changed))
    assert "rollout-without-room" not in found
    assert "no-node-autoscaler" in found


@pytest.mark.parametrize(
    ("replicas", "strategy"),
    [
        (1, rolling("25%", "25%")),  # a Deployment's defaults
        (3, rolling("25%", "25%")),
        (2, rolling(1, 0)),
        (2, {"type": "RollingUpdate"}),
        (2, rolling("50%", "10%")),
    ],
)
def test_a_rollout_that_waits_for_its_own_pods_gpus_is_named(replicas, strategy) -> None:
    found = findings_of(cluster(**rollout(replicas, **strategy)))
    assert "no-node-autoscaler" not in found
    command = shlex.split(found["rollout-without-room"].fix.command)
    assert command[:6] == ["kubectl", "patch", "deployment", "web", "-n", "default"]
    patched = json.loads(command[-1])["spec"]["strategy"]
    assert "rollout-without-room" not in findings_of(cluster(**rollout(replicas, **patched)))


# StatefulSets


@pytest.mark.parametrize(
    ("policy", "replicas", "says"),
    [
        ({}, 3, "2 pods of the StatefulSet are made once it is ready"),
        ({"podManagementPolicy": "OrderedReady"}, 2, "1 pod of the StatefulSet is made once"),
        ({"podManagementPolicy": "Parallel"}, 3, None),
        ({}, 1, None),
    ],
)
@pytest.mark.parametrize(
    ("check", "first"),
    [
        ("pod-not-ready", {"age_s": 1200}),
        ("pod-starts-slowly", {"age_s": 1200, "phase": "Pending"}),
        (
            "container-waiting",
            {"statuses": [{"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        ),
    ],
)
def test_pods_behind_an_unready_first_one_are_told(policy, replicas, says, check, first) -> None:
    evidence = findings_of(cluster(**stateful(policy, replicas, started("db-0", **first))))[
        check
    ].evidence
    assert (says in evidence) if says else ("StatefulSet" not in evidence)


# Kueue


def test_a_gated_pod_has_the_reason_of_its_workload() -> None:
    found = findings_of(
        cluster(**pods(gated()), **{"queued-workloads": [queued(("Pod", "web-2"))]})
    )
    assert f"in the queue team-a: {REASON}" in found["workload-queued"].what
    assert "pod-gated" not in found
    assert "no-node-autoscaler" not in found


@pytest.mark.parametrize(
    ("gate", "workloads"),
    [
        ("kueue.x-k8s.io/admission", []),
        ("example.com/other", [queued(("Pod", "web-2"))]),
        ("kueue.x-k8s.io/admission", [queued(("Pod", "another"))]),
    ],
)
def test_a_gate_without_a_known_reason_is_named_alone(gate, workloads) -> None:
    found = findings_of(cluster(**pods(gated(gate)), **{"queued-workloads": workloads}))
    assert gate in found["pod-gated"].what


@pytest.mark.parametrize(
    ("kind", "name"), [("Job", "train"), ("RayJob", "tune"), ("JobSet", "llm")]
)
def test_what_kueue_suspends_is_named_with_its_queue(kind, name) -> None:
    found = findings_of(cluster(**{"queued-workloads": [queued((kind, name))]}))["workload-queued"]
    assert found.where == f"{kind.lower()}/default/{name}"
    assert "kubectl describe localqueue -n default team-a" in found.fix.command


@pytest.mark.parametrize(
    "workload", [queued(("Job", "train"), "True"), queued(("Job", "train"), resource="cpu/x")]
)
def test_a_workload_with_quota_or_without_gpus_is_not_named(workload) -> None:
    assert findings_of(cluster(**{"queued-workloads": [workload]})) == {}


# Priorities


def test_a_preempted_pod_is_named_with_the_one_that_it_went_for() -> None:
    urgent = pod("urgent", gpus=1)
    urgent["spec"]["priority"] = 1000
    urgent["metadata"]["uid"] = "3c9e-1"
    found = findings_of(cluster(**PREEMPTED, **pods(urgent)))["pod-preempted"]
    assert found.where == "deployment/default/web"
    assert "1 pod of it went" in found.what
    assert "pod default/urgent (1000)" in found.what
    urgent["metadata"]["uid"] = "of a later pod"
    found = findings_of(cluster(**PREEMPTED, **pods(urgent)))["pod-preempted"]
    assert found.what.endswith("of a higher priority.")


@pytest.mark.parametrize(
    "event", [preempted(age_s=3700), preempted("other-a-1"), preempted("single")]
)
def test_what_was_preempted_long_ago_or_is_not_looked_at_is_passed_over(event) -> None:
    found = findings_of(cluster(**{**PREEMPTED, "preemptions": [event]}))
    assert "pod-preempted" not in found


# Groups at their maximum


def test_every_full_group_is_named_where_cluster_autoscaler_names_none() -> None:
    # kubernetes/autoscaler#5692: three groups, all at their maximum.
    group = """- name: gpus-{0}
  health: {{status: Healthy, cloudProviderTarget: {1}, minSize: 0, maxSize: 3}}
"""
    groups = "".join(group.format(*each) for each in (("a", 3), ("b", 3), ("c", 3), ("d", 1)))
    said = "pod didn't trigger scale-up: 3 max node group size reached"
    changed = {
        **pods(pending(FULL, **wanting(GPU))),
        "nodes": [node(gives=2)],
        "autoscaler-status": status_map(f"autoscalerStatus: Running\nnodeGroups:\n{groups}"),
        "events": [event(said, reason="NotTriggerScaleUp")],
    }
    found = findings_of(cluster(**changed))
    assert "gpus-a (3 of 3), gpus-b (3 of 3), gpus-c (3 of 3)" in found["node-group-at-max"].what
    assert "gpus-d" not in found["node-group-at-max"].what
    assert not {"template-without-gpu", "no-node-autoscaler"} & found.keys()


# Shares of a shared GPU


@pytest.mark.parametrize("requests", [{}, {GPU: "2"}])
def test_fewer_shares_are_asked_for_wherever_the_template_asks(requests) -> None:
    said = (
        "request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1"
    )
    failed = started(phase="Failed", reason="UnexpectedAdmissionError", message=said)
    resources = {"limits": {GPU: "2", "cpu": "4"}, **({"requests": requests} if requests else {})}
    box = {"name": "main", "image": "model", "resources": resources}
    body = deployment(template={"containers": [box, {"name": "proxy", "image": "envoy"}]})
    changed = {**pods(failed), "deployments": [body, *both("deployments", without="web")]}
    fix = findings_of(cluster(**changed))["pod-failed"].fix
    assert fix.say.startswith("Ask for 1, or run more pods")
    asked = " --requests=nvidia.com/gpu=1" if requests else ""
    base = "kubectl set resources -n default deployment web -c main --limits=nvidia.com/gpu=1"
    assert fix.command == base + asked


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_failed_with_a_template_that_is_out_of_use_is_over(replicas) -> None:
    failed = started(phase="Failed", reason="UnexpectedAdmissionError", message="no such device")
    failed["metadata"] = owned(failed["metadata"], "ReplicaSet", "web-a")
    failed["metadata"]["labels"] = {"app": "web"}
    old = replica_set("web-a", 1)
    old["spec"] = {"replicas": replicas}
    found = findings_of(cluster(**pods(failed), replicasets=[old]))
    assert ("pod-failed" in found) is bool(replicas)

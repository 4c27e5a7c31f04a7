"""Why no node comes: each fault is named at once, with what is right about it and nothing wrong beside it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import GPU, both, cluster, node, roots_of, status_map
from cures import cured
from fault_cases import (
    FAULTS,
    FULL_GROUP,
    ON_GPUS,
    asking,
    autoscaled,
    claim,
    refused,
    requirement,
    true,
)
from later_cases import LATER, evicted
from node_cases import TAINT, UNTOLERATED, WAITS, event, false, pool, refuses, world
from reported_cases import REPORTED, in_parts, suspended_job
from room_cases import gated, owned, queued
from workload_cases import at, pending, pods, wanting

ALL = [*FAULTS.values(), *REPORTED, *LATER]
AGES = pytest.mark.parametrize("later_s", [0, 17 * 60], ids=["at-once", "after-17-minutes"])


def later(objects, later_s):
    """The same objects when their pods have waited for longer."""
    found = dict(objects)
    found["pods"] = [
        {**each, "metadata": {**each["metadata"], "creationTimestamp": at(60 + later_s)}}
        if not each["spec"].get("nodeName") and later_s
        else each
        for each in found.get("pods", both("pods"))
    ]
    return found


def words(finding):
    return "; ".join(
        (finding.where, finding.what, finding.evidence, finding.fix.say, finding.fix.command)
    )


def roots(**objects):
    return roots_of(cluster(**objects))


def of_two_pools(**more):
    """A pod that two NodePools may take, of which one is at its limit."""
    waits = pending(WAITS, **wanting(GPU))
    full = pool("full", limits={GPU: "2"}, resources={GPU: "2"})
    here = node(labels={**ON_GPUS, "karpenter.sh/nodepool": "full"})
    return {"nodes": [here], **pods(waits), "nodepools": [full, pool("open")], **more}


@AGES
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.source)
def test_a_fault_is_named_with_what_is_right_about_it(case, later_s):
    roots = roots_of(cluster(**later(case.objects, later_s)))
    assert roots.keys() - {case.check, *case.beside} == set()
    if case.check:
        text = words(roots[case.check])
        assert not [each for each in case.says if each not in text], text


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.is_curable], ids=lambda case: case.source
)
def test_the_printed_command_ends_the_fault(case):
    command = roots_of(cluster(**case.objects))[case.check].fix.command
    assert case.check not in roots_of(cluster(**cured(case.objects, command)))


# What is over, and what another pool gives


def test_a_limit_is_no_fault_while_another_pool_is_open():
    assert roots(**of_two_pools()) == {}
    kept_off = pool("open", taints=[TAINT])
    both_shut = of_two_pools(nodepools=[of_two_pools()["nodepools"][0], kept_off])
    assert "node-pool-limit" in roots(**both_shut)


def test_what_was_said_long_ago_does_not_count():
    said = f'incompatible with nodepool "h100", {UNTOLERATED}'
    old = {"scheduling-events": [event(f"Failed to schedule pod, {said}", age_s=3000)]}
    assert roots(**world(pool(), **old)) == {}
    assert "node-pool-refuses" in roots(**world(pool(), **refuses(UNTOLERATED)))


def test_what_was_said_before_the_node_was_asked_for_does_not_count():
    asked = claim(true("Launched"), age_s=5)
    found = roots(
        **world(pool(), nodeclaims=[asked], **refuses("no instance type has enough resources"))
    )
    assert found.keys() == {"node-on-its-way"}


def test_a_refusal_of_the_cloud_before_the_machine_that_came_does_not_count():
    refused_before = {
        "claim-events": [
            event("no stock", "h100-aaaaa", "NodeClaim", "InsufficientCapacityError", age_s=60)
        ]
    }
    assert "node-claim-failed" in roots(**world(pool(), **refused_before))
    asked = claim(true("Launched"), age_s=5)
    found = roots(**world(pool(), nodeclaims=[asked], **refused_before))
    assert found.keys() == {"node-on-its-way"}


def test_a_taint_of_the_pool_is_named_without_a_word_of_karpenter():
    found = roots(**world(pool(taints=[TAINT])))["node-pool-refuses"]
    assert "does not tolerate the taint nvidia.com/gpu=true:NoSchedule" in found.what
    assert "kubectl patch deployment web" in found.fix.command


def test_a_taint_of_a_pool_that_is_not_of_gpus_is_not_advised_to_be_tolerated():
    """GPU nodes without an autoscaler are all in use, and Karpenter makes nodes for other pods."""
    addons = asking(
        requirement("node.kubernetes.io/instance-type", "m5.large"),
        name="system",
        taints=[{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}],
    )
    found = roots(**pods(pending(WAITS, **wanting(GPU))), nodepools=[addons])["node-pool-refuses"]
    assert "tolerations" not in found.fix.command
    assert found.fix.say.startswith("If it is meant for NodePool system")


def test_a_gated_pod_is_not_judged_by_pools():
    waits = gated("example.com/queue")
    waits["spec"]["priority"] = -20
    found = roots(**pods(waits), nodepools=[pool(taints=[TAINT])])
    assert found.keys() == {"pod-gated"}
    found = roots(**pods(waits), **{"autoscaler-status": status_map(FULL_GROUP)})
    assert found.keys() == {"pod-gated"}


def test_of_several_pools_the_one_of_gpus_is_meant():
    waits = pending(WAITS, **wanting(GPU))
    here = node(labels={**ON_GPUS, "karpenter.sh/nodepool": "other"})
    said = (
        'Failed to schedule pod, incompatible with nodepool "default", daemonset overhead={"cpu":"1"}, no '
        'instance type has enough resources; incompatible with nodepool "h100", daemonset overhead={}, '
        + UNTOLERATED
    )
    plain = asking(requirement("node.kubernetes.io/instance-type", "m5.large"), name="default")
    pools = [plain, pool(taints=[TAINT])]
    found = roots(
        nodes=[here], **pods(waits), nodepools=pools, **{"scheduling-events": [event(said)]}
    )["node-pool-refuses"]
    assert "NodePool default: no instance type" in found.what
    assert "which NodePool h100 gives its nodes" in found.fix.say


def test_a_label_that_no_pool_has_is_not_advised_to_be_put_on_nodes():
    key = "karpenter.k8s.aws/instance-gpu-name"
    waits = pending(WAITS, nodeSelector={key: "a100"}, **wanting(GPU))
    of_t4 = {"nodepools": [asking(requirement(key, "t4"))]}
    found = roots(**pods(waits), **of_t4)["no-matching-node"]
    assert "label the nodes" not in found.fix.say
    said = refuses(f"incompatible requirements, key {key}, {key} In [a100] not in {key} In [t4]")
    told = roots(**pods(waits), **of_t4, **said)
    assert told.keys() == {"node-pool-refuses"}
    assert f"the pod wants {key} a100, and the pool has t4" in told["node-pool-refuses"].what


# Groups and queues


def test_a_group_whose_second_node_may_come_is_not_in_parts_yet():
    growing = {**in_parts(), "autoscaler-status": status_map(FULL_GROUP)}
    assert "group-in-parts" not in roots(**growing)
    assert "group-in-parts" in roots(**later(growing, 1020))


def test_a_gang_of_kube_scheduler_waits_in_its_own_words():
    # What scheduler-judge answers for the third of four pods (kubernetes v1.37.2, GenericWorkload on).
    said = (
        "pod group is unschedulable, minCount (4) cannot be satisfied: 2 scheduled, 1 remaining, "
        "deallocation and deletion of ResourceClaims completed, pod group preemption: not eligible due to "
        "preemptionPolicy=Never."
    )
    found = roots(**pods(pending(said, **wanting(GPU))))["group-in-parts"]
    assert "minCount (4) cannot be satisfied: 2 scheduled, 1 remaining" in found.what


def test_a_job_of_a_job_set_that_kueue_holds_has_no_finding_of_its_own():
    found = suspended_job(**{"kueue.x-k8s.io/queue-name": "team-a"})
    (job,) = found["jobs"]
    job["metadata"] = owned(job["metadata"], "JobSet", "llm")
    held = {**found, "queued-workloads": [queued(("JobSet", "llm"))]}
    assert roots(**held).keys() == {"workload-queued"}
    assert roots(**found).keys() == {"job-suspended"}


def test_a_workload_that_is_set_active_again_is_tried_again():
    off = evicted(active=False)
    found = roots(**off)["workload-queued"]
    assert "does not try again" in found.what
    on = cured(off, found.fix.command)
    assert "does not try again" not in roots(**on)["workload-queued"].what


# Cluster Autoscaler


def test_a_full_group_without_gpus_is_not_the_one_that_is_meant():
    """AKS calls the scale set of a pool aks-POOL-NUMBER-vmss."""
    status = FULL_GROUP.replace("gpus-a", "aks-system-12345678-vmss")
    plain = node("cpu-1", 0, 0, labels={"kubernetes.azure.com/agentpool": "system"})
    said = ("1 max node group size reached", f"1 Insufficient {GPU}")
    found = roots(**autoscaled(*said, status=status, nodes=[plain]))
    assert found.keys() == {"template-without-gpu"}
    with_gpus = node(labels={**ON_GPUS, "kubernetes.azure.com/agentpool": "system"})
    found = roots(**autoscaled(*said, status=status, nodes=[with_gpus]))
    assert "aks-system-12345678-vmss (3 of 3)" in found["node-group-at-max"].what


def test_a_pod_larger_than_the_nodes_of_a_pool_is_no_fault_of_its_template():
    many = autoscaled(f"1 Insufficient {GPU}", **wanting(GPU, 8))
    assert roots(**many).keys() == {"larger-than-any-node"}


def triggered(age_s):
    said = "pod triggered scale-up: [{gpus-a 2->3 (max: 5)}]"
    return [event(said, reason="TriggeredScaleUp", age_s=age_s)]


def test_a_node_that_cluster_autoscaler_asked_for_is_on_its_way():
    asked = {**autoscaled(), "scale-ups": triggered(120)}
    found = roots(**asked)
    assert found.keys() == {"node-on-its-way"}
    assert "group gpus-a for 1 pod since 120 s" in found["node-on-its-way"].what
    earlier = [{**refused("1 max node group size reached")[0], "lastTimestamp": at(300)}]
    assert roots(**{**asked, "events": earlier}).keys() == {"node-on-its-way"}
    # The node did not come, and it was asked for again.
    assert "node-group-at-max" in roots(
        **{**asked, "events": refused("1 max node group size reached")}
    )


def test_what_cluster_autoscaler_refuses_karpenter_may_give():
    waits = autoscaled("1 max node group size reached")
    assert roots(**{**waits, "nodepools": [pool()]}) == {}
    assert "node-group-at-max" in roots(**{**waits, "nodepools": [pool(taints=[TAINT])]})


@pytest.mark.parametrize("text", ["kubernetes.io/a", "dedicated: team"])
def test_a_pools_taint_that_is_not_of_gpus_is_not_advised_to_be_tolerated(text):
    found = roots(
        **autoscaled(f"1 Insufficient {GPU}", f"1 node(s) had untolerated taint {{{text}}}")
    )
    assert "pool-taint-not-tolerated" not in found
    assert "template-without-gpu" in found


@pytest.mark.parametrize(
    ("said", "words", "advice"),
    [
        # cluster-autoscaler core/scaleup/orchestrator/executor.go and clusterstate/clusterstate.go
        (
            "Scale-up failed for group gpus-a: Code: OperationDenied.NoStock, the type is sold out",
            "gpus-a: Code: OperationDenied.NoStock",
            "other types, zones",
        ),
        (
            "Scale-up failed for group gpus-a: Operation results in exceeding quota limits of Core",
            "exceeding quota",
            "Raise the quota",
        ),
        (
            "Nodes added to group gpus-a failed to register within 15m2s",
            "gpus-a: failed to register within 15m2s",
            "user data",
        ),
    ],
)
def test_a_failure_that_the_status_does_not_tell_is_read_from_its_events(said, words, advice):
    failed = [event(said, "cluster-autoscaler-status", "ConfigMap", "FailedToScaleUpGroup")]
    found = roots(**{**autoscaled(), "scale-up-failures": failed})["autoscaler-unhealthy"]
    assert words in found.what
    assert advice in found.fix.say
    old = [{**failed[0], "lastTimestamp": at(3000)}]
    assert roots(**{**autoscaled(), "scale-up-failures": old}) == {}


# Nodes of Karpenter's that don't become ready


@pytest.mark.parametrize(("age_s", "is_told"), [(500, False), (700, True)])
def test_a_node_that_takes_no_pods_is_named_after_ten_minutes(age_s, is_told):
    stuck = claim(
        true("Launched"),
        true("Registered"),
        false("Initialized", "StartupTaintsExist", 'StartupTaint "a/b:NoSchedule" still exists'),
        age_s=age_s,
        status={"nodeName": "karp-1"},
    )
    found = roots(**world(pool(), nodeclaims=[stuck]))
    assert ("node-not-initialized" in found) is is_told
    if is_told:
        assert 'StartupTaint "a/b:NoSchedule" still exists' in found["node-not-initialized"].what

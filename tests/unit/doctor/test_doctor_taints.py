# mypy: disable-error-code="arg-type"
"""No taint of the moment is advised to be tolerated, whoever sets it; and a new node ends what it said."""

import sys
from pathlib import Path

import pytest

from taint_kin import KIN

sys.path.insert(0, str(Path(__file__).parent))
from clusters import AGENT_LABELS, GPU, PLUGIN, cluster, findings_of, meta, node, workload
from workload_cases import pending, pods, wanting

UNTOLERATED = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
NEW_POOL = {
    **meta("gpu"),
    "spec": {
        "template": {"spec": {"startupTaints": [{"key": "example.com/x", "effect": "NoSchedule"}]}}
    },
}


def tainted(key, effect="NoSchedule"):
    labels = {"nvidia.com/gpu.present": "true", "karpenter.sh/nodepool": "gpu"}
    return node(labels=labels, taints=[{"key": key, "effect": effect}])


def world(only, **more):
    """A pod waits, and neither workload, agent nor device plugin tolerates anything."""
    sets = [workload("agent", "gpuscale", AGENT_LABELS), workload("plugin", image=PLUGIN)]
    waiting = pending(UNTOLERATED, age_s=1020, **wanting(GPU))
    return cluster(**{"nodes": only, "daemonsets": sets, **pods(waiting), **more})


@pytest.mark.parametrize("key", [key for key, _ in KIN])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_no_taint_of_the_moment_is_advised_to_be_tolerated(key, effect):
    found = findings_of(world([tainted(key, effect)]))
    assert not {"taint-not-tolerated", "node-without-agent", "device-plugin-taint"} & found.keys()
    assert not [each for each in found.values() if "tolerations" in each.fix.command]
    assert not [each for each in found.values() if "Give its pods a toleration" in each.fix.say]


def test_the_node_that_goes_is_named_and_so_is_the_pod_that_waits_for_another():
    found = findings_of(world([tainted("ToBeDeletedByClusterAutoscaler")]))
    assert found["gpu-node-out-of-use"].what == "The node is being removed, and takes no new pods."
    assert "gpu-1 is being removed" in found["no-node-yet"].what
    after = findings_of(world([tainted("ToBeDeletedByClusterAutoscaler"), node("gpu-2", 8, 8)]))
    assert "no-node-yet" not in after


def test_a_pools_start_up_taint_is_not_yet_and_any_other_may_be_tolerated():
    pool = {"nodepools": [NEW_POOL]}
    assert (
        "is not set up yet"
        in findings_of(world([tainted("example.com/x")], **pool))["gpu-node-out-of-use"].what
    )
    assert "taint-not-tolerated" in findings_of(world([tainted("example.com/x")]))


def test_a_cordon_of_the_gpu_operators_upgrade_is_not_advised_to_be_lifted():
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu-driver-upgrade-state": "upgrade-failed",
    }
    cordoned = {**node(labels=labels), "spec": {"unschedulable": True}}
    found = findings_of(world([cordoned]))
    for check in ("gpu-node-cordoned", "nodes-cordoned"):
        fix = found[check].fix
        assert "upgrade-failed" in fix.say
        assert "kubectl uncordon" not in f"{fix.say} {fix.command}"

# mypy: disable-error-code="arg-type"
"""Nodes that do not come: named at once and after 17 minutes, with pool and reason."""

import json
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import GPU, both, cluster, findings_of, hpa_body, look, meta, node, roots_of
from node_cases import (
    AT_MAX,
    CPU_LIMIT,
    IN_BACKOFF,
    NO_CLASS,
    OUT_OF_STOCK,
    TAINT,
    TOLERATED,
    TOO_LARGE,
    WAITS,
    pool,
    world,
)
from workload_cases import at, pending, pods, started, wanting

from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.pods import read_pod_spec
from gpuscale.base.objects.taints import untolerated
from gpuscale.kube.reading import fields_of
from gpuscale.ops.doctor.snapshot import PrometheusLook

WRONG = {
    "no-matching-node",
    "taint-not-tolerated",
    "larger-than-any-node",
    "resource-not-offered",
    "template-without-gpu",
}
ROWS = {
    "2 at its maximum": (AT_MAX, "node-group-at-max", "gpus-a (3 of 3)"),
    "3 back-off": (
        IN_BACKOFF,
        "autoscaler-unhealthy",
        "OutOfResource: no capacity for p5.48xlarge",
    ),
    "6 no type so large": (TOO_LARGE, "node-pool-refuses", "NodePool h100: no instance type"),
    "7 taint of the pool": (
        TOLERATED,
        "node-pool-refuses",
        "NodePool h100: did not tolerate taint",
    ),
    "8 out of stock": (
        OUT_OF_STOCK,
        "node-claim-failed",
        "NodePool h100: InsufficientCapacityError",
    ),
    "9 class without subnet": (
        NO_CLASS,
        "node-pool-not-ready",
        "NodeClassReady: UnhealthyDependents",
    ),
    "10 cpu limit": (CPU_LIMIT, "node-pool-limit", "limit of 96 cpu"),
}


def aged(changed, age_s):
    found = dict(changed)
    found["pods"] = [
        {**each, "metadata": {**each["metadata"], "creationTimestamp": at(age_s)}}
        for each in found.get("pods", both("pods"))
    ]
    return found


@pytest.mark.parametrize("age_s", [30, 17 * 60], ids=["at-once", "after-17-minutes"])
@pytest.mark.parametrize("row", ROWS)
def test_a_node_that_does_not_come_is_named_with_its_pool_and_reason(row, age_s):
    changed, check, says = ROWS[row]
    snapshot = cluster(**aged(changed, age_s))
    found = findings_of(snapshot)
    assert "pods-wait-long" not in roots_of(snapshot)
    assert says in found[check].what
    assert not WRONG & found.keys()
    assert not [each for each in found.values() if "kubectl label node" in each.fix.command]


def test_the_class_of_a_pool_says_why_it_is_not_ready():
    said = {
        "type": "SubnetsReady",
        "status": "False",
        "reason": "SubnetsNotFound",
        "message": "none match",
    }
    body = fields_of({**meta("h100"), "status": {"conditions": [said]}})
    found = findings_of(cluster(**NO_CLASS, node_classes={"EC2NodeClass/h100": body}))[
        "node-pool-not-ready"
    ]
    assert "EC2NodeClass h100: SubnetsReady: SubnetsNotFound: none match" in found.what


def test_the_toleration_of_a_pools_own_taint_is_the_one_that_karpenter_wants():
    command = shlex.split(findings_of(cluster(**TOLERATED))["node-pool-refuses"].fix.command)
    assert command[:4] == ["kubectl", "patch", "deployment", "web"]
    spec = read_pod_spec(
        fields_of(json.loads(command[-1])).child("spec").child("template").child("spec")
    )
    taint = read_taint(fields_of(TAINT))
    assert untolerated([taint], spec.tolerations) is None
    assert untolerated([taint], ()) == taint
    startup = {**TAINT, "key": "karpenter.sh/unregistered"}
    never = world(pool(taints=[startup]), **{"scheduling-events": TOLERATED["scheduling-events"]})
    assert "tolerations" not in findings_of(cluster(**never))["node-pool-refuses"].fix.command


def test_a_pool_at_zero_is_not_judged_by_the_nodes_that_are_there():
    found = findings_of(cluster(**world(pool(), age_s=1020)))
    assert found.keys() == {"pods-wait-long"}
    assert "NodePools that may take it: h100" in found["pods-wait-long"].evidence
    assert findings_of(cluster(**world(pool(), age_s=60))) == {}


def test_a_selector_that_no_pool_can_meet_is_named_at_once():
    waits = pending(WAITS, nodeSelector={"disk": "fast"}, **wanting(GPU))
    assert "no-matching-node" in findings_of(cluster(**pods(waits), nodepools=[pool()]))


# Single false errors


def test_no_healthy_device_plugin_is_advised_to_be_restarted():
    failed = started(phase="Failed", reason="UnexpectedAdmissionError", message="no such device")
    fix = findings_of(cluster(**pods(failed)))["pod-failed"].fix
    assert "restart" not in fix.say
    assert fix.command.startswith("kubectl get")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "nvidia.com/gpu.deploy.device-plugin",
            "false",
            "kubectl label node gpu-1 nvidia.com/gpu.deploy.device-plugin=true",
        ),
        (
            "nvidia.com/gpu.deploy.operands",
            "false",
            "kubectl label node gpu-1 nvidia.com/gpu.deploy.operands=true",
        ),
        ("nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change", "kubectl get node gpu-1"),
    ],
)
def test_a_label_that_keeps_the_device_plugin_off_is_named(key, value, says):
    labels = {"nvidia.com/gpu.present": "true", key: value}
    found = findings_of(cluster(nodes=[node(gives=0, has=0, labels=labels)]))["no-device-plugin"]
    assert f"{key}={value}" in found.what
    assert found.fix.command.startswith(says)


@pytest.mark.parametrize("metric", ["DCGM_FI_DEV_GPU_UTIL", "DCGM_CUSTOM_PROCESS_SM_UTIL"])
def test_series_with_values_prove_that_somebody_measures(metric):
    nobody = {"pods": both("pods", without="agent-1"), "daemonsets": [], "agents": ()}
    alone = {**nobody, "prometheus": PrometheusLook()}
    assert findings_of(cluster(**alone, hpas=(look(hpa_body(metric=metric)),))) == {}
    blind = (look(hpa_body(metric=metric), values=()),)
    assert "no-node-agent" in findings_of(cluster(**alone, hpas=blind))
    assert "no-node-agent" not in findings_of(cluster(**nobody, hpas=blind))

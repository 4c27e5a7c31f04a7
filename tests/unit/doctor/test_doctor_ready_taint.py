"""A node that keeps its start-up taint: what it waits for is named, after ten minutes and not before."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import (
    AGENT_LABELS,
    ANY,
    NOW_MS,
    PLUGIN,
    both,
    cluster,
    findings_of,
    meta,
    node,
    pod,
    ready,
    workload,
)

from gpuscale.ops.doctor.diagnosis import diagnose

KEY = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"
OWN = "x.dev/gpu-not-ready"
CHECK = "ready-taint-stays"


def gated(key=KEY, age_s=660, **more):
    found = node(taints=[{"key": key, "value": "true", "effect": "NoSchedule"}], **more)
    made = datetime.fromtimestamp(NOW_MS / 1000 - age_s, UTC).isoformat()
    found["metadata"]["creationTimestamp"] = made
    return found


def finding(**changed):
    return findings_of(cluster(**changed)).get(CHECK)


def told(**changed):
    found = finding(**changed)
    return f"{found.what} {found.fix.say} {found.fix.command}"


def test_ten_minutes_are_given() -> None:
    assert finding(nodes=[gated(age_s=600)]) is None
    assert finding(nodes=[gated(age_s=601)]).what.startswith("The node is 10 minutes old")


def test_no_agent_is_there() -> None:
    text = told(nodes=[gated()], pods=both("pods", without="agent-1"))
    assert "no node agent runs there" in text
    assert "spec.nodeName=gpu-1" in text


def test_the_gpus_do_not_answer() -> None:
    ill = pod(
        "agent-1", "gpuscale", labels=AGENT_LABELS, status={"phase": "Running", **ready("False")}
    )
    text = told(nodes=[gated(gives=0, has=0)], pods=both("pods", ill, without="agent-1"))
    assert "its GPUs don't answer" in text
    assert "kubectl logs -n gpuscale agent-1" in text


def test_the_plugin_has_registered_none() -> None:
    bare = gated(gives=0, has=0)
    assert "the device plugin has registered no GPU" in told(nodes=[bare])
    sets = both("daemonsets", workload("plugin", "kube-system", tolerations=ANY, image=PLUGIN))
    assert "tolerate" not in finding(nodes=[bare], daemonsets=sets).what


def test_the_plugin_is_kept_off_by_the_very_taint() -> None:
    sets = both("daemonsets", workload("plugin", "kube-system", image=PLUGIN))
    text = told(nodes=[gated(gives=0, has=0)], daemonsets=sets)
    assert "does not tolerate the taint" in text
    assert f'"key": "{KEY}"' in text


def test_devices_of_claims_count_as_registered() -> None:
    slices = [{**meta("s"), "spec": {"nodeName": "gpu-1", "driver": "gpu.nvidia.com"}}]
    text = told(nodes=[gated(gives=0, has=0)], resourceslices=slices)
    assert "the taint was not taken off" in text


def test_an_agent_that_does_not_take_it_off_is_asked_why() -> None:
    text = told(nodes=[gated()])
    assert "the taint was not taken off" in text
    assert "kubectl logs -n gpuscale agent-1" in text


def test_the_key_is_the_installations() -> None:
    assert finding(nodes=[gated(OWN)]) is None
    agent = workload(
        "agent", "gpuscale", AGENT_LABELS, ANY, args=["exporter", f"--ready-taint={OWN}"]
    )
    assert finding(nodes=[gated(OWN)], daemonsets=[agent]) is not None


@pytest.mark.parametrize(
    "there", [gated(status=ready("False")), node()], ids=["not Ready", "no taint"]
)
def test_other_nodes_are_left_to_other_checks(there) -> None:
    assert finding(nodes=[there]) is None


def test_that_the_node_is_out_of_use_is_a_consequence() -> None:
    roots = diagnose(cluster(nodes=[gated()])).findings
    assert [each.check.id for each in roots] == [CHECK]

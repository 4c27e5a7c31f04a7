"""What lint calls an error of a ScaledObject, KEDA's webhook refuses, or its operator says that it fails.

Each is one change away from a ScaledObject that is Ready.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.ops.lint import lint
from gpuscale.testing.prometheus import serve
from gpuscale_testing import wait_until
from gpuscale_testing.addresses import free_ports

sys.path.insert(0, str(Path(__file__).parent))
from keda_objects import apply, deployment, prometheus_trigger, scaled_object

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]
NOWHERE = f"http://127.0.0.1:{free_ports(1)[0]}"
CPU = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}
FALLBACK = {"failureThreshold": 1, "replicas": 3}
ONE = {"minReplicaCount": 1}


def trigger(threshold="5", url=NOWHERE):
    return {**prometheus_trigger(url, "sum(queue_length)", threshold), "name": "queue"}


def modified(target):
    return {"scalingModifiers": {"formula": "queue", "target": target}}


def object_of(name, *triggers, **more):
    return {**scaled_object("web", *triggers, **{**ONE, **more}), "metadata": {"name": name}}


REFUSED = {
    "zero-without-source": (
        object_of("web", CPU, minReplicaCount=0),
        object_of("web", CPU),
    ),
    "fallback-without-effect": (
        object_of("web", CPU, fallback=FALLBACK),
        object_of("web", CPU),
    ),
    "name-too-long": (object_of("w" * 64, trigger()), object_of("w" * 54, trigger())),
    "name-too-long/hpa": (object_of("w" * 55, trigger()), object_of("w" * 54, trigger())),
    "refused-manifest/formula": (
        object_of(
            "web",
            trigger(),
            advanced={**modified("4"), "scalingModifiers": {"formula": "queue * 2"}},
        ),
        object_of("web", trigger(), advanced=modified("4")),
    ),
}
"""What the webhook refuses, and what is right beside it."""
FAILING = {
    "threshold-not-positive/zero": ("0", "5"),
    "threshold-not-positive/below": ("-1", "0.5"),
    "threshold-not-positive/no number": ("abc", "5"),
}
"""Thresholds with which the operator makes no HPA, and others with which it does."""


def told(body):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment("web", 1), body]})
    return {each.check.id for each in lint([("web.json", text)]).findings}


@pytest.fixture(scope="module")
def cluster(plane, keda):
    spec = deployment("web", 1)
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec["spec"]["template"]["spec"]["containers"][0]["resources"] |= requests
    apply(plane, spec)
    return plane


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    with serve([], tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def answer(plane, body):
    """Return the exit code and words of kubectl for an object, which is taken away again.

    Some of what the webhook judges it passes over in a dry run.
    """
    command = ["kubectl", f"--kubeconfig={plane.admin}", "create", "-f", "-"]
    done = subprocess.run(
        command, input=json.dumps(body), capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        plane.kubectl("delete", "scaledobject", body["metadata"]["name"])
    return done.returncode, done.stderr


@pytest.mark.parametrize("case", REFUSED)
def test_the_webhook_refuses_it(cluster, case):
    wrong, right = REFUSED[case]
    assert case.partition("/")[0] in told(wrong)
    assert case.partition("/")[0] not in told(right)
    code, words = answer(cluster, wrong)
    assert code == 1
    assert "admission webhook" in words
    # The webhook reads a cache, which may still have the HPA of the case before.
    wait_until(lambda: answer(cluster, right)[0] == 0, "the right one to be taken", 60.0)


def conditions(plane, name):
    listed = plane.get("scaledobject", name).get("status", {}).get("conditions") or ()
    return {each["type"]: each["status"] for each in listed}


def has_hpa(plane, name):
    return f"keda-hpa-{name}" in plane.kubectl("get", "hpa", "-o", "name")


@pytest.mark.parametrize("case", FAILING)
def test_the_operator_makes_no_hpa_of_it(cluster, prometheus, case):
    wrong, right = (object_of("web", trigger(each, prometheus.url)) for each in FAILING[case])
    assert "threshold-not-positive" in told(wrong)
    assert "threshold-not-positive" not in told(right)
    apply(cluster, wrong)
    wait_until(
        lambda: conditions(cluster, "web").get("Ready") == "False", "the operator's word", 60.0
    )
    assert not has_hpa(cluster, "web")
    apply(cluster, right)
    wait_until(lambda: conditions(cluster, "web").get("Ready") == "True", "it to be ready", 60.0)
    assert has_hpa(cluster, "web")
    cluster.kubectl("delete", "scaledobject", "web")


def test_a_fallback_beside_a_target_that_is_no_whole_number_never_applies(cluster):
    wrong, right = (
        object_of("web", trigger(), fallback=FALLBACK, advanced=modified(each))
        for each in ("2.5", "25")
    )
    assert "fallback-without-effect" in told(wrong)
    assert "fallback-without-effect" not in told(right)
    apply(cluster, right)
    wait_until(
        lambda: conditions(cluster, "web").get("Fallback") == "True", "the fallback to apply", 90.0
    )
    wait_until(lambda: replicas(cluster) == 3, "the fallback's replicas", 60.0)
    cluster.kubectl("delete", "scaledobject", "web")
    apply(cluster, deployment("web", 1), wrong)

    def reasons():
        status = cluster.get("hpa", "keda-hpa-web").get("status", {})
        return {each["reason"] for each in status.get("conditions", ())}

    wait_until(
        lambda: has_hpa(cluster, "web") and "FailedGetExternalMetric" in reasons(),
        "the error to reach the HPA",
        90.0,
    )
    assert conditions(cluster, "web").get("Fallback") != "True"
    assert replicas(cluster) == 1


def replicas(plane):
    return plane.get("deployment", "web")["spec"]["replicas"]

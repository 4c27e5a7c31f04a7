# mypy: disable-error-code="dict-item"
"""`gpuscale shadow` beside Kubernetes' HPA controller, which does the same once the change is applied."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, SM_UTIL, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NAMESPACE = "shadow"
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}


@dataclass(frozen=True)
class Case:
    """A Deployment with an HPA that keeps its replicas, and what is changed of that."""

    replicas: int
    target: str
    most: int
    total: int | None
    """Of its queue; None: a mean of 18 for each pod instead."""
    change: dict = field(default_factory=dict)
    """Of the HPA's spec; what may be set is set, and the rest given as a file."""
    sizes: tuple[int, ...] = ()
    """That the controller then writes, one after the other."""


CASES = {
    # 2 pods x 18 / 20 is within a tenth; 2 x 18 / 10 = 3.6
    "mean": Case(2, "20", 9, None, {"target": "10"}, (4,)),
    # 100 / 20 = 5, and a sync goes to 2 x 2 or 4 at most
    "most": Case(2, "20", 2, 100, {"max": 9}, (4, 5)),
    # 100 / 40 = 2.5, and what was wanted in the last 5 minutes keeps 5
    "held": Case(5, "20", 9, 100, {"target": "40"}, ()),
    "at-once": Case(5, "20", 9, 100, {"target": "40", "behavior": AT_ONCE}, (3,)),
    # Another metric, as of a served policy that wants 5 replicas: 5 / 1
    "policy": Case(2, "20", 9, 40, {"target": "1", "team": "wanted"}, (4, 5)),
    "least": Case(2, "20", 9, 40, {"min": 3}, (3,)),
}


def hpa_spec(name, target, most, change):
    amount = {"type": "AverageValue", "averageValue": change.get("target", target)}
    queue = {
        "name": "jobs_waiting",
        "selector": {"matchLabels": {"team": change.get("team", name)}},
    }
    metric = {"type": "External", "external": {"metric": queue, "target": amount}}
    if CASES[name].total is None:
        metric = {"type": "Pods", "pods": {"metric": {"name": SM_UTIL}, "target": amount}}
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": change.get("min", 1),
        "maxReplicas": change.get("max", most),
        "metrics": [metric],
        **({"behavior": change["behavior"]} if "behavior" in change else {}),
    }


def autoscaler(name, change):
    case = CASES[name]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": hpa_spec(name, case.target, case.most, change),
    }


def deployment(name):
    labels = {"app": name}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "model", "image": "none", "resources": limits}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": CASES[name].replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def listed(items):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


@pytest.fixture(scope="module")
def world(plane):
    """Deployments whose HPAs have looked at them, and leave them as they are."""
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=64)),
        MetricsServer(plane, certificate).running() as metrics,
        aggregated_api(plane, GROUP_VERSIONS, metrics.port, service="gpuscale", ca_bundle=plane.ca),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.apply(listed(map(deployment, CASES)))
        for name, case in CASES.items():
            ready = f"jsonpath={{.status.readyReplicas}}={case.replicas}"
            plane.wait(f"deployment/{name}", ready, "-n", NAMESPACE, timeout_s=90.0)
            if case.total is not None:
                metrics.put("jobs_waiting", case.total, namespace=NAMESPACE, team=name)
        metrics.put("jobs_waiting", 5, namespace=NAMESPACE, team="wanted")
        for pod in plane.get("pods", "-n", NAMESPACE, "-l", "app=mean")["items"]:
            name = pod["metadata"]["name"]
            metrics.put(SM_UTIL, 18.0, PodName=name, NamespaceName=NAMESPACE, NodeName="h200")
        plane.apply(listed(autoscaler(name, {}) for name in CASES))

        def have_looked():
            hpas = plane.get("hpa", "-n", NAMESPACE)["items"]
            return all(active(each) == "True" for each in hpas)

        wait_until(have_looked, "the controller to have looked at all", 90.0)
        yield metrics


def active(hpa):
    conditions = {each["type"]: each["status"] for each in hpa["status"].get("conditions", ())}
    return conditions.get("ScalingActive")


def words(plane, name, folder):
    """Return the command of a shadow with the case's change."""
    change = CASES[name].change
    found = [str(GPUSCALE), "shadow", f"hpa/{name}", "-n", NAMESPACE, "--every=1"]
    found.append(f"--kubeconfig={plane.admin}")
    if not {"behavior", "team"} & set(change):
        return [*found, "--set", ",".join(f"{key}={value}" for key, value in change.items())]
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(autoscaler(name, change)))
    return [*found, str(file)]


def sizes(plane, name):
    """Return the sizes that the controller wrote, in their order."""
    events = plane.get(
        *("events", "-n", NAMESPACE, "--field-selector"),
        f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name}",
    )["items"]
    found = [re.match(r"New size: (\d+)", each["message"]) for each in events]
    return tuple(sorted(int(each[1]) for each in found if each))


def test_the_controller_then_does_what_the_shadow_did(plane, world, tmp_path) -> None:
    shadows = {
        name: subprocess.Popen(
            [*words(plane, name, tmp_path), "--for=8s", "-o", "json", "--gpu-price=*=2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in CASES
    }
    for name, process in shadows.items():
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        document = json.loads(out)
        case = CASES[name]
        steps = tuple(each["shadow"]["to"] for each in document["steps"])
        assert steps == case.sizes, (name, document)
        assert document["real"]["replicas"] == case.replicas
        assert document["gpusPerPod"] == 1
        assert document["shadow"]["money"] == 2 * document["shadow"]["gpuHours"]
        assert document["faults"] == []
    # Nothing has changed so far; now it is switched on.
    assert {name: sizes(plane, name) for name in CASES} == dict.fromkeys(CASES, ())
    plane.apply(listed(autoscaler(name, case.change) for name, case in CASES.items()))
    for name, case in CASES.items():
        wait_until(
            lambda name=name, case=case: sizes(plane, name) == case.sizes,  # type: ignore[misc]
            f"{name} to be scaled as its shadow",
            60.0,
        )


def test_it_goes_on_after_the_api_server_was_away(plane, world, tmp_path) -> None:
    plane.apply(json.dumps(autoscaler("held", {})))
    out, errors = tmp_path / "out", tmp_path / "errors"
    with out.open("w") as written, errors.open("w") as told:
        process = subprocess.Popen(words(plane, "held", tmp_path), stdout=written, stderr=told)
    try:
        wait_until(lambda: "Ctrl-C" in out.read_text(), "its first sync", 60.0)
        plane.kill("kube-apiserver")
        try:
            wait_until(lambda: "can't be reached" in errors.read_text(), "it to say so", 60.0)
        finally:
            plane.restart("kube-apiserver")
        # 280 / 40 = 7
        world.put("jobs_waiting", 280, namespace=NAMESPACE, team="held")
        wait_until(lambda: "shadow 5 -> 7" in out.read_text(), "its next step", 60.0)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, errors.read_text()
    text = out.read_text()
    assert re.search(r"^\d+ x .*can't be reached", text, re.MULTILINE), text

# mypy: disable-error-code="arg-type"
"""Kubernetes' own HPA controller, unmodified, scales on what gpuscale's metrics API serves.

Each case asks the controller and `gpuscale.hpa.deciding` the same, and expects the same: the count, the
event, the conditions with their messages, and the values in the status.
"""

import json
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    ExternalValues,
    FetchError,
    HpaState,
    MetricValue,
    ObjectValue,
    PodInfo,
    PodValues,
    Scale,
    decide,
)
from gpuscale.hpa.terms.versions import parse_version, settings_of
from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, SM_UTIL, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

HPA_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
NUMBERS = count(1)
SETTINGS = settings_of(parse_version("1.37"))


@pytest.fixture(scope="module")
def metrics(plane):
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    with MetricsServer(plane, certificate).running() as server:
        bundle = {"service": "gpuscale", "ca_bundle": plane.ca}
        with aggregated_api(plane, GROUP_VERSIONS, server.port, **bundle):
            yield server


@pytest.fixture(scope="module")
def _nodes(plane):
    with simulated_nodes(plane, SimulatedNode("h200", gpus=64)):
        yield


@pytest.fixture
def workload(plane, _nodes):
    """A Deployment with one ready pod, under a name of its own."""
    name = f"bert-intent-detection-{next(NUMBERS)}"
    plane.apply(deployment(name))
    plane.wait(f"deployment/{name}", "jsonpath={.status.readyReplicas}=1")
    yield name
    plane.kubectl("delete", "hpa", "--all")
    plane.kubectl("delete", "deployment", name)
    wait_until(lambda: not pod_names(plane, name), "the pods to be gone")


def deployment(name: str) -> str:
    labels = {"app": name}
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "model", "image": "none", "resources": {"limits": limits}}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
    )


def hpa(target: str, metric: str) -> str:
    """Return the HPA of the guide for Alibaba Cloud for a metric, named as its target.

    The controller remembers recommendations by name, also of an HPA that is gone.
    """
    return f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {target}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {target}
  minReplicas: 1
  maxReplicas: 10
  metrics:
{metric}
"""


PODS = """
  - type: Pods
    pods:
      metric:
        name: DCGM_CUSTOM_PROCESS_SM_UTIL
      target:
        type: Utilization
        averageValue: 20
"""
OBJECT_AVERAGE = """
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: front}
      metric: {name: queue_length}
      target: {type: AverageValue, averageValue: "10"}
"""
OBJECT_VALUE = """
  - type: Object
    object:
      describedObject: {apiVersion: v1, kind: Service, name: front}
      metric: {name: queue_length}
      target: {type: Value, value: "32"}
"""
EXTERNAL = """
  - type: External
    external:
      metric: {name: jobs_waiting, selector: {matchLabels: {team: vision}}}
      target: {type: AverageValue, averageValue: "20"}
"""
UNKNOWN = """
  - type: Pods
    pods:
      metric: {name: not_measured}
      target: {type: AverageValue, averageValue: "20"}
"""


@dataclass(frozen=True)
class Outcome:
    """What a controller arrives at."""

    replicas: int
    events: list[str]
    """Their messages."""
    conditions: dict[str, tuple[str, str, str]]
    """By type: status, reason and message."""
    average_milli: int | None
    value_milli: int | None


def ours(manifest: str, pods: int, observe) -> Outcome:
    """Return what `decide` arrives at from one ready pod on, sync by sync, until the count holds.

    Args:
        manifest: of the HPA.
        pods: how many there are in the end.
        observe: what the metrics say to so many pods.
    """
    (scaler,) = load_manifests(manifest, "hpa.yaml")
    state, replicas, now_ms, events = HpaState(), 1, 1_000_000, []
    while True:
        names = [f"{scaler.target.name}-{number}" for number in range(replicas)]
        infos = tuple(PodInfo(name, {"app": scaler.target.name}) for name in names)
        scale = Scale(replicas, replicas, f"app={scaler.target.name}")
        decision = decide(scaler, scale, infos, [observe(names)], state, now_ms, SETTINGS)
        events += [e.message for e in (*decision.warnings, decision.event) if e is not None]
        state, now_ms = decision.next_state, now_ms + 1000
        if not decision.rescale:
            break
        replicas = decision.desired_replicas
    assert replicas == pods
    status = decision.metrics[0]
    return Outcome(
        replicas,
        events,
        {c.type: (c.status, c.reason, c.message) for c in decision.conditions},
        status.average_value_milli,
        status.value_milli,
    )


def theirs(plane, name: str, replicas: int) -> Outcome:
    """Return what the real controller arrived at, once it holds the count."""
    status = wait_until(
        lambda: settled(plane, name, replicas), f"the HPA to hold {replicas} replicas", 30.0
    )
    events = hpa_events(plane, name)
    return Outcome(
        status["desiredReplicas"],
        events,
        {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]},
        *current_milli(status),
    )


def settled(plane, name: str, replicas: int):
    status = plane.get("hpa", name).get("status", {})
    reasons = {c["reason"] for c in status.get("conditions", [])}
    counts = status.get("currentReplicas"), status.get("desiredReplicas")
    return status if counts == (replicas, replicas) and "ReadyForNewScale" in reasons else None


def hpa_events(plane, name: str) -> list[str]:
    kind = "involvedObject.kind=HorizontalPodAutoscaler"
    found = plane.get("events", f"--field-selector={kind},involvedObject.name={name}")
    return [event["message"] for event in found["items"]]


def current_milli(status) -> tuple[int | None, int | None]:
    (metric,) = status["currentMetrics"]
    current = metric[metric["type"].lower()]["current"]
    milli = {name: parse_quantity(text).milli_value() for name, text in current.items()}
    return milli.get("averageValue"), milli.get("value")


def pod_names(plane, app: str) -> list[str]:
    return [each["metadata"]["name"] for each in plane.get("pods", "-l", f"app={app}")["items"]]


def agree(real: Outcome, own: Outcome) -> None:
    assert real.replicas == own.replicas
    assert real.conditions == own.conditions
    assert set(own.events) == set(real.events)
    assert (real.average_milli, real.value_milli) == (own.average_milli, own.value_milli)


def test_the_guides_hpa_goes_from_one_to_two_at_23_of_20(plane, metrics, workload) -> None:
    (first,) = pod_names(plane, workload)
    labels = {"NamespaceName": "default", "NodeName": "h200"}
    metrics.put(SM_UTIL, 23.0, PodName=first, **labels)
    manifest = hpa(workload, PODS)
    plane.apply(manifest)
    # ceil(1 x 23 / 20) = 2. The second pod has no value: (23 + 0) / 2 would turn it around, so 2 stays.
    real = theirs(plane, workload, 2)
    agree(real, ours(manifest, 2, lambda names: PodValues((MetricValue(names[0], 23_000),))))
    assert real.conditions["ScalingActive"] == (
        "True",
        "ValidMetricFound",
        f"the HPA was able to successfully calculate a replica count from pods metric {SM_UTIL}",
    )
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/{SM_UTIL}"
    query = f"labelSelector=app%3D{workload}"
    assert (HPA_USER, "front-proxy-client", f"{path}?{query}") in metrics.seen


def test_the_guides_commands_show_the_metric_through_the_control_plane(
    plane, metrics, workload
) -> None:
    (name,) = pod_names(plane, workload)
    metrics.put(SM_UTIL, 23.0, PodName=name, NamespaceName="default", NodeName="h200")
    for version in ("v1beta1", "v1beta2"):
        path = f"/apis/custom.metrics.k8s.io/{version}/namespaces/default/pods/*/{SM_UTIL}"
        (item,) = json.loads(plane.kubectl("get", "--raw", path))["items"]
        assert (item["describedObject"]["name"], item["value"]) == (name, "23")
    versions = plane.kubectl("api-versions").splitlines()
    assert set(GROUP_VERSIONS) <= set(versions)


@pytest.mark.parametrize(
    ("metric", "replicas", "observation"),
    [
        # ceil(27 / 10) = 3
        pytest.param(OBJECT_AVERAGE, 3, ObjectValue(27_000), id="object-average"),
        # 27 / 32 = 0.84 lies outside the dead band, and 1 x 0.84 is 1 when rounded up.
        pytest.param(OBJECT_VALUE, 1, ObjectValue(27_000), id="object-value"),
        # ceil((25 + 20) / 20) = 3
        pytest.param(EXTERNAL, 3, ExternalValues((45_000,)), id="external"),
    ],
)
def test_other_metrics_lead_to_the_same_decision(
    plane, metrics, workload, metric, replicas: int, observation
) -> None:
    metrics.put("queue_length", 27.0, namespace="default", service="front")
    metrics.put("jobs_waiting", 25.0, namespace="default", team="vision", queue="a")
    metrics.put("jobs_waiting", 20.0, namespace="default", team="vision", queue="b")
    metrics.put("jobs_waiting", 99.0, namespace="default", team="speech", queue="a")
    manifest = hpa(workload, metric)
    plane.apply(manifest)
    agree(theirs(plane, workload, replicas), ours(manifest, replicas, lambda _: observation))


def test_a_metric_that_is_not_served_stops_scaling_with_the_same_words(
    plane, metrics, workload
) -> None:
    manifest = hpa(workload, UNKNOWN)
    error = FetchError("the server could not find the metric not_measured for pods")
    own = ours(manifest, 1, lambda _: error)
    plane.apply(manifest)

    def conditions():
        status = plane.get("hpa", workload).get("status", {})
        found = {
            c["type"]: (c["status"], c["reason"], c["message"])
            for c in status.get("conditions", [])
        }
        return found if "ScalingActive" in found else None

    assert wait_until(conditions, "a condition ScalingActive") == own.conditions
    assert set(own.events) == set(hpa_events(plane, workload))

# mypy: disable-error-code="attr-defined"
"""The HPA controller inside a small world."""

import pytest

from gpuscale.hpa.types import FetchError, MetricValue, PodValues
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
HPA = """\
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec:
  scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}
  maxReplicas: 10
  metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 20}}}]
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  duration: 10m
  manifests: [{file: m}]
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 4, min: 1, max: 2}]
"""


def world(*hpas):
    text = DEPLOYMENT + "".join(HPA.replace("NAME", name) for name in hpas)
    made = World(load_setup(SCENARIO, "s.yaml", lambda _: text), 0)
    made.engine.run_until(60_000)
    return made


def events(made, kind):
    return [event for event in made.cluster.events.since(0) if event.kind == kind]


def value(made, number):
    pods = [key.partition("/")[2] for key in made.cluster.pods if key.startswith("default/web")]
    return [PodValues(tuple(MetricValue(pod, number * 1000, 60_000) for pod in pods))]


def test_a_decision_is_written_and_told() -> None:
    made = world("a")
    decision = HpaController(made).sync("default/a", value(made, 23), 60_000)
    assert decision.desired_replicas == made.cluster.deployments["default/web"].replicas == 2
    (event,) = events(made, "SuccessfulRescale")
    assert (event.before, event.after) == (1, 2)
    assert event.reason == "New size: 2; reason: pods metric m above target"


def test_no_data_changes_nothing_and_is_told_once() -> None:
    made = world("a")
    controller = HpaController(made)
    for now_ms in (60_000, 75_000, 90_000):
        controller.sync("default/a", [FetchError("nobody home")], now_ms)
    assert made.cluster.deployments["default/web"].replicas == 1
    (warning,) = events(made, "FailedGetPodsMetric")
    assert warning.reason == (
        "unable to get metric m: unable to fetch metrics from custom metrics API: nobody home"
    )


def test_two_hpas_on_the_same_pods_both_stop() -> None:
    made = world("a", "b")
    controller = HpaController(made)
    for key in ("default/a", "default/b"):
        decision = controller.sync(key, value(made, 90), 60_000)
        assert not decision.rescale
        reasons = {condition.type: condition.reason for condition in decision.conditions}
        assert reasons["ScalingActive"] == "AmbiguousSelector"
    assert len(events(made, "AmbiguousSelector")) == 2


@pytest.mark.parametrize("number", [18, 22])
def test_within_tolerance_nothing_moves(number: int) -> None:
    made = world("a")
    assert not HpaController(made).sync("default/a", value(made, number), 60_000).rescale

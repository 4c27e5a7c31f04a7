"""Metric selectors that an API server stores and the controller can't use: the metric fails at each sync.

Texts: k8s.io/apimachinery v0.37 pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector), pkg/labels/selector.go
(NewRequirement).
"""

import pytest

from gpuscale.base.objects.manifests import load_manifests
from gpuscale.hpa import Event, ExternalValues, FetchError, ObjectValue, PodValues
from gpuscale.hpa.controller.client import MetricsClient, observe

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 9
  metrics: [METRIC]
"""
KINDS = {
    "Pods": "{type: Pods, pods: {metric: {name: m, selector: SELECTOR}, "
    "target: {type: AverageValue, averageValue: 5}}}",
    "Object": "{type: Object, object: {describedObject: {kind: Service, name: s}, "
    "metric: {name: m, selector: SELECTOR}, target: {type: AverageValue, averageValue: 5}}}",
    "External": "{type: External, external: {metric: {name: m, selector: SELECTOR}, "
    "target: {type: AverageValue, averageValue: 5}}}",
}
ANSWERS = {
    "Pods": PodValues(()),
    "Object": ObjectValue(50_000),
    "External": ExternalValues((50_000,)),
}
OUTSIDE = {
    "Pods": "failed to get pods metric value: ",
    "Object": "failed to get object metric value: ",
    "External": "failed to get m external metric value: failed to get m external metric: ",
}
FAULTS = [
    ("{key: q, values: [a]}", '"" is not a valid label selector operator'),
    ("{key: q, operator: Like}", '"Like" is not a valid label selector operator'),
    ("{key: q, operator: Gt, values: ['1']}", '"Gt" is not a valid label selector operator'),
    (
        "{key: q, operator: In}",
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    (
        "{key: q, operator: Exists, values: [a, b]}",
        'values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist',
    ),
]


def hpa_with(kind: str, selector: str):
    (hpa,) = load_manifests(HPA.replace("METRIC", KINDS[kind].replace("SELECTOR", selector)), "h")
    return hpa


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("expression", "fault"), FAULTS)
def test_the_metric_fails_in_the_controllers_words(given, kind, expression, fault) -> None:
    hpa = hpa_with(kind, f"{{matchExpressions: [{expression}]}}")
    decision = given.decide(hpa, ANSWERS[kind], spec=3)
    assert not decision.rescale
    assert decision.warnings == (
        Event("Warning", f"FailedGet{kind}Metric", fault),
        Event(
            "Warning",
            "FailedComputeMetricsReplicas",
            f"invalid metrics (1 invalid out of 1), first error is: {OUTSIDE[kind]}{fault}",
        ),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_that_no_object_can_have_is_a_fault_too(given, kind) -> None:
    decision = given.decide(hpa_with(kind, "{matchLabels: {q: a/b}}"), ANSWERS[kind], spec=3)
    start = (
        'values[0][q]: Invalid value: "a/b": a valid label must be an empty string or consist of'
    )
    assert decision.metrics[0].error.startswith(start)


NOBODY: MetricsClient = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_is_asked(kind) -> None:
    """The controller fails before it asks; a client that is none would crash."""
    hpa = hpa_with(kind, "{matchExpressions: [{key: q}]}")
    fault = '"" is not a valid label selector operator'
    assert await observe(NOBODY, hpa, "app=web") == (FetchError(fault),)

"""The spec of an HPA, and the triggers of a ScaledObject, of a scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.ops.install.scale.metrics import (
    CombinedMetric,
    HpaMetric,
    SignalMetric,
    as_written,
)

Object = dict[str, Any]

MEAN = "DCGM_FI_DEV_GPU_UTIL_AVG"
"""The series that means are recorded in."""
V2BETA1 = "autoscaling/v2beta1"


@dataclass(frozen=True, slots=True)
class Scaled:
    """What an HPA is made of."""

    target: Object
    """The reference to the workload."""
    min_replicas: int
    max_replicas: int
    metrics: Sequence[SignalMetric | CombinedMetric | HpaMetric]
    behavior: Object


def quantity(number: float) -> str:
    """Return a number as a quantity, with up to three decimals and no exponent."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def hpa_spec(scaled: Scaled, version: str) -> Object:
    """Return the spec of the HPA, in the fields of its version."""
    metrics = [_metric(scaled.target, each) for each in scaled.metrics]
    is_old = version == V2BETA1
    spec: Object = {
        "scaleTargetRef": scaled.target,
        "minReplicas": scaled.min_replicas,
        "maxReplicas": scaled.max_replicas,
        "metrics": [_old_metric(each) for each in metrics] if is_old else metrics,
    }
    return spec if is_old else {**spec, "behavior": scaled.behavior}


def _metric(workload: Object, metric: SignalMetric | CombinedMetric | HpaMetric) -> Object:
    if isinstance(metric, CombinedMetric):
        return _of_pods(metric.combined, quantity(metric.target))
    if not isinstance(metric, SignalMetric):
        return as_written(metric)
    target = quantity(metric.target)
    if metric.metric == "object":
        wanted = {
            "metric": {"name": MEAN},
            "describedObject": workload,
            "target": {"type": "Value", "value": target},
        }
        return {"type": "Object", "object": wanted}
    average = {"type": "AverageValue", "averageValue": target}
    signal = metric.source
    name = signal.metric
    if signal.described is not None:
        described = {
            "apiVersion": signal.described.api_version,
            "kind": signal.described.kind,
            "name": metric.of,
        }
        # A mean over pods does not grow with them; a total does.
        held = average if signal.is_total else {"type": "Value", "value": target}
        wanted = {"metric": {"name": name}, "describedObject": described, "target": held}
        return {"type": "Object", "object": wanted}
    return _of_pods(name, target)


def _of_pods(name: str, target: str) -> Object:
    average = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}


_OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "pods": {"averageValue": "targetAverageValue"},
    "object": {"value": "targetValue", "averageValue": "averageValue"},
    "external": {"value": "targetValue", "averageValue": "targetAverageValue"},
    "resource": {
        "averageUtilization": "targetAverageUtilization",
        "averageValue": "targetAverageValue",
    },
}
"""Of each source, what v2beta1 calls the fields of a target."""


def _old_metric(metric: Object) -> Object:
    """Return a metric in the fields of v2beta1, which has no types of targets."""
    source = metric["type"][:1].lower() + metric["type"][1:]
    fields = dict(metric[source])
    target = fields.pop("target")
    names = _OLD_NAMES["resource" if source == "containerResource" else source]
    old = {names[key]: value for key, value in target.items() if key in names}
    identifier = fields.pop("metric", None)
    if identifier is not None:
        selector = "metricSelector" if source == "external" else "selector"
        old["metricName"] = identifier["name"]
        if "selector" in identifier:
            old[selector] = identifier["selector"]
    if "describedObject" in fields:
        old["target"] = fields.pop("describedObject")
    return {"type": metric["type"], source: {**fields, **old}}

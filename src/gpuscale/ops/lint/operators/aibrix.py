"""AIBrix: PodAutoscalers.

Source: aibrix v0.7 api/autoscaling/v1alpha1/podautoscaler_types.go, pkg/webhook/podautoscaler_webhook.go,
    pkg/controller/podautoscaler/hpa_resources.go (makeHPA: targets are cut to whole numbers).
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from gpuscale.ops.lint.operators.made import HPA, LIMITS, Making, made, name_of
from gpuscale.ops.lint.operators.refusals import Refusal, bounds
from gpuscale.ops.lint.parts import Part

_STRATEGIES = ("HPA", "KPA", "APA")
_SOURCES = ("pod", "resource", "custom", "external", "domain")
_NEEDS = {"pod": ("protocolType", "port", "path")}
"""Others need less from one release to the next."""


def pod_autoscaler(whole: Part) -> Making:
    """Yield the HPA of the strategy HPA, or the limits that AIBrix scales within itself."""
    spec = whole.at("spec")
    limits = {key: spec.at(key) for key in ("scaleTargetRef", "minReplicas", "maxReplicas")}
    # It scales one role of its target there, which is no object of its own.
    if spec.fields("subTargetSelector"):
        return
    if spec.text("scalingStrategy") != "HPA":
        yield made(spec, LIMITS, name_of(whole), limits)
        return
    if spec.whole("minReplicas") == 0:
        limits["minReplicas"] = replace(spec.at("minReplicas"), data=1)
    metrics = [each for source in spec.items("metricsSources") for each in _metric(source)]
    yield made(spec, HPA, f"{name_of(whole)}-hpa", {**limits, "metrics": metrics})


def _metric(source: Part) -> Iterator[dict[str, object]]:
    number, value = _number(source), source.at("targetValue")
    if number is None:
        return
    name = source.text("targetMetric").lower()
    if name == "cpu":
        target = {
            "type": "Utilization",
            "averageUtilization": replace(value, data=math.ceil(number)),
        }
    elif name == "memory":
        target = {"type": "AverageValue", "averageValue": replace(value, data=f"{int(number)}Mi")}
    else:
        target = {"type": "AverageValue", "averageValue": replace(value, data=int(number))}
        metric = {"name": source.at("targetMetric")}
        yield {"type": "Pods", "pods": {"metric": metric, "target": target}}
        return
    named = replace(source.at("targetMetric"), data=name)
    yield {"type": "Resource", "resource": {"name": named, "target": target}}


def _number(source: Part) -> float | None:
    try:
        number = float(source.text("targetValue"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def refused_pod_autoscaler(whole: Part) -> Iterator[Refusal]:
    """Yield what the webhook refuses."""
    spec = whole.at("spec")
    if spec.data is None:
        return
    for key in ("kind", "name"):
        if not spec.text("scaleTargetRef", key):
            yield Refusal(spec.at("scaleTargetRef", key), "the target's")
    yield from bounds(spec, "minReplicas", "maxReplicas")
    if spec.text("scalingStrategy") not in _STRATEGIES:
        yield Refusal(spec.at("scalingStrategy"), f"one of {', '.join(_STRATEGIES)}")
    for source in spec.items("metricsSources"):
        kind = source.text("metricSourceType")
        if kind not in _SOURCES:
            yield Refusal(source.at("metricSourceType"), f"one of {', '.join(_SOURCES)}")
        for key in ("targetMetric", *_NEEDS.get(kind, ())):
            if not source.text(key):
                yield Refusal(source.at(key), f"a {key}")
        if kind == "resource" and source.text("targetMetric") not in ("cpu", "memory"):
            yield Refusal(source.at("targetMetric"), "cpu or memory")
        number = _number(source)
        if number is None or number <= 0:
            yield Refusal(source.at("targetValue"), "a number above 0")

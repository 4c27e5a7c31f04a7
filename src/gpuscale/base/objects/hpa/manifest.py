"""A HorizontalPodAutoscaler as an `autoscaling/v2` manifest, whichever version it was read from.

API servers no longer take the beta versions, which manifests still have.

Source: k8s.io/api/autoscaling/v2/types.go; the conversion itself is `reading`.
"""

from typing import Any

from gpuscale.base.objects.hpa.types import (
    Behavior,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    ScalingRules,
)
from gpuscale.base.objects.selectors import OPERATOR_WORDS, Operator, Requirement, Selector
from gpuscale.base.quantity import Quantity


def hpa_manifest(hpa: HorizontalPodAutoscaler) -> dict[str, Any]:
    """Return the manifest; reading it again gives an equal HPA."""
    meta = hpa.metadata
    metadata: dict[str, Any] = {"name": meta.name, "namespace": meta.namespace}
    metadata |= _given(labels=dict(meta.labels) or None, annotations=dict(meta.annotations) or None)
    spec = {
        "scaleTargetRef": _reference(hpa.target),
        "minReplicas": 1 if hpa.min_replicas is None else hpa.min_replicas,
        "maxReplicas": hpa.max_replicas,
        "metrics": [_metric(each) for each in hpa.metrics],
        **_given(behavior=None if hpa.behavior is None else _behavior(hpa.behavior)),
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": spec,
    }


def _given(**fields: object) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _reference(target: CrossVersionObjectReference) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "name": target.name,
        **_given(apiVersion=target.api_version or None),
    }


def _metric(metric: MetricSpec) -> dict[str, Any]:
    target = {"target": _target(metric.target)}
    match metric:
        case PodsMetric():
            return {"type": "Pods", "pods": _identifier(metric) | target}
        case ObjectMetric():
            described = {"describedObject": _reference(metric.described_object)}
            return {"type": "Object", "object": described | _identifier(metric) | target}
        case ExternalMetric():
            return {"type": "External", "external": _identifier(metric) | target}
        case ResourceMetric():
            return {"type": "Resource", "resource": {"name": metric.name} | target}
        case ContainerResourceMetric():
            source = {"name": metric.name, "container": metric.container} | target
            return {"type": "ContainerResource", "containerResource": source}


def _identifier(metric: PodsMetric | ObjectMetric | ExternalMetric) -> dict[str, Any]:
    selector = None if metric.selector is None else _selector(metric.selector)
    return {"metric": {"name": metric.name, **_given(selector=selector)}}


def _target(target: MetricTarget) -> dict[str, Any]:
    return {
        "type": target.type.value,
        **_given(
            value=_text(target.value),
            averageValue=_text(target.average_value),
            averageUtilization=target.average_utilization,
        ),
    }


def _text(quantity: Quantity | None) -> str | None:
    return None if quantity is None else str(quantity)


def _selector(selector: Selector) -> dict[str, Any]:
    if selector.fault:
        return dict(selector.written or {})
    plain = [each for each in selector.requirements if each.operator is Operator.EQUALS]
    others = [each for each in selector.requirements if each.operator is not Operator.EQUALS]
    labels = {each.key: each.values[0] for each in plain}
    expressions = [_expression(each) for each in others]
    return _given(matchLabels=labels or None, matchExpressions=expressions or None)


def _expression(requirement: Requirement) -> dict[str, Any]:
    expression = {"key": requirement.key, "operator": OPERATOR_WORDS[requirement.operator]}
    return {**expression, **_given(values=list(requirement.values) or None)}


def _behavior(behavior: Behavior) -> dict[str, Any]:
    return {
        "scaleUp": rules_manifest(behavior.scale_up),
        "scaleDown": rules_manifest(behavior.scale_down),
    }


def rules_manifest(rules: ScalingRules) -> dict[str, Any]:
    """Return one direction's rules in the form of `spec.behavior`."""
    policies = [
        {"type": each.type.value, "value": each.value, "periodSeconds": each.period_s}
        for each in rules.policies
    ]
    return {
        "policies": policies,
        "selectPolicy": rules.select_policy.value,
        **_given(
            stabilizationWindowSeconds=rules.stabilization_window_s,
            tolerance=_text(rules.tolerance),
        ),
    }

"""How the controller calls a metric in its events, conditions and errors.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (computeStatusFor...);
    k8s.io/apimachinery/pkg/apis/meta/v1/generated.pb.go (LabelSelector.String). Expressions come out
    sorted by key here, and in the manifest's order there.
"""

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.selectors import OPERATOR_WORDS, Operator, Selector


def metric_text(spec: MetricSpec) -> str:
    """Return the words for a metric, such as `pods metric queue_length`."""
    match spec:
        case PodsMetric():
            return f"pods metric {spec.name}"
        case ObjectMetric() if spec.target.type is TargetType.AVERAGE_VALUE:
            # Upstream calls it external.
            return _external_text(spec.name, spec.selector)
        case ObjectMetric():
            return f"{spec.described_object.kind} metric {spec.name}"
        case ExternalMetric():
            return _external_text(spec.name, spec.selector)
        case ResourceMetric():
            return _resource_text(spec.name, "resource", spec.target)
        case ContainerResourceMetric():
            return _resource_text(spec.name, "container resource", spec.target)


def _external_text(name: str, selector: Selector | None) -> str:
    return f"external metric {name}({label_selector_text(selector)})"


def _resource_text(name: str, kind: str, target: MetricTarget) -> str:
    """Return the words for a resource; with a raw target, upstream leaves the container out."""
    if target.average_value is not None:
        return f"{name} resource"
    return f"{name} {kind} utilization (percentage of request)"


def label_selector_text(selector: Selector | None) -> str:
    """Return a LabelSelector as Go prints it; `nil` where there is none."""
    if selector is None:
        return "nil"
    labels, expressions = "", ""
    for requirement in selector.requirements:
        if requirement.operator is Operator.EQUALS:
            labels += f"{requirement.key}: {requirement.values[0]},"
        else:
            operator, values = OPERATOR_WORDS[requirement.operator], " ".join(requirement.values)
            expressions += (
                f"LabelSelectorRequirement{{Key:{requirement.key},Operator:{operator},"
                f"Values:[{values}],}},"
            )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )

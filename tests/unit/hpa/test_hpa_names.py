"""How metrics and selectors are called."""

import pytest

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.selectors import (
    Selector,
    selector_of_expressions,
    selector_of_labels,
)
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import metric_text
from gpuscale.hpa.terms.names import label_selector_text

PERCENT = MetricTarget(TargetType.UTILIZATION, average_utilization=50)
AVERAGE = MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(5))
VALUE = MetricTarget(TargetType.VALUE, value=parse_quantity(5))
SERVICE = CrossVersionObjectReference("Service", "web")


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (PodsMetric("load", AVERAGE), "pods metric load"),
        (ObjectMetric(SERVICE, "requests", VALUE), "Service metric requests"),
        (ObjectMetric(SERVICE, "requests", AVERAGE), "external metric requests(nil)"),
        (ExternalMetric("queue", VALUE), "external metric queue(nil)"),
        (ExternalMetric("queue", AVERAGE), "external metric queue(nil)"),
        (ResourceMetric("cpu", PERCENT), "cpu resource utilization (percentage of request)"),
        (ResourceMetric("cpu", AVERAGE), "cpu resource"),
        (
            ContainerResourceMetric("cpu", "main", PERCENT),
            "cpu container resource utilization (percentage of request)",
        ),
        (ContainerResourceMetric("cpu", "main", AVERAGE), "cpu resource"),
    ],
)
def test_metric_text(metric, text: str) -> None:
    assert metric_text(metric) == text


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, "nil"),
        (
            Selector(),
            "&LabelSelector{MatchLabels:map[string]string{},"
            "MatchExpressions:[]LabelSelectorRequirement{},}",
        ),
        (
            selector_of_labels({"b": "2", "a": "1"}),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},"
            "MatchExpressions:[]LabelSelectorRequirement{},}",
        ),
        (
            selector_of_expressions(
                {"a": "1"}, (("zone", "In", ("x", "y")), ("old", "DoesNotExist", ()))
            ),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,},"
            "MatchExpressions:[]LabelSelectorRequirement{"
            "LabelSelectorRequirement{Key:old,Operator:DoesNotExist,Values:[],},"
            "LabelSelectorRequirement{Key:zone,Operator:In,Values:[x y],},},}",
        ),
    ],
)
def test_selectors_are_printed_as_go_prints_them(selector, text: str) -> None:
    assert label_selector_text(selector) == text

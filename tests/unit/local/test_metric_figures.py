"""Plain numbers beside the TARGETS column, in which quantities keep their suffixes."""

import pytest

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.types import MetricStatus
from gpuscale.lab.local.metric_figures import metric_figures

SERVICE = CrossVersionObjectReference("Service", "web")


def hpa(*metrics):
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    return HorizontalPodAutoscaler(ObjectMeta("web"), target, 10, metrics, 1, None)


def average(amount):
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(amount))


def value(amount):
    return MetricTarget(TargetType.VALUE, value=parse_quantity(amount))


def status(index=0, **values):
    return MetricStatus(index, "a metric", "a target", 1, **values)


def only(metric, *statuses):
    (found,) = metric_figures(hpa(metric), statuses)
    return found["value"], found["target"], found["ratio"], found["unit"]


@pytest.mark.parametrize(
    ("milli", "target", "expected"),
    [
        # Kubernetes prints 11.5 as 11500m; 11.5 / 20 = 0.575
        (11_500, "20", (11.5, 20, 0.575)),
        (23_000, "20", (23, 20, 1.15)),
        (0, "20", (0, 20, 0)),
        # 500m is 0.5; 0.25 / 0.5 = 0.5
        (250, "500m", (0.25, 0.5, 0.5)),
        # 1k is 1000; 1500 / 1000 = 1.5
        (1_500_000, "1k", (1500, 1000, 1.5)),
        # nothing can be divided by a target of zero
        (3_000, "0", (3, 0, None)),
    ],
)
def test_pods_metric(milli: int, target: str, expected) -> None:
    found = only(PodsMetric("load", average(target)), status(average_value_milli=milli))
    assert found == (*expected, "")


def test_amounts_with_ki_and_mi_are_binary() -> None:
    # 500Mi = 500 * 1024 * 1024 = 524288000, half of it 262144000
    metric = PodsMetric("used", average("500Mi"))
    found = only(metric, status(average_value_milli=262_144_000_000))
    assert found == (262_144_000, 524_288_000, 0.5, "binary")


def test_memory_is_binary_however_its_target_is_written() -> None:
    metric = ResourceMetric("memory", average("1G"))
    assert only(metric, status(average_value_milli=500_000_000_000)) == (5e8, 1e9, 0.5, "binary")


def test_utilization_is_percent_and_not_the_usage_beside_it() -> None:
    percent = MetricTarget(TargetType.UTILIZATION, average_utilization=80)
    shown = status(average_utilization=63, average_value_milli=630)
    for metric in (ResourceMetric("cpu", percent), ContainerResourceMetric("cpu", "main", percent)):
        assert only(metric, shown) == (63, 80, 0.7875, "%")  # 63 / 80


def test_value_and_average_value_of_objects_and_externals() -> None:
    # 12 / 30 = 0.4; 2.5 / 5 = 0.5
    by_value = ObjectMetric(SERVICE, "m", value("30"))
    assert only(by_value, status(value_milli=12_000)) == (12, 30, 0.4, "")
    per_pod = ExternalMetric("m", average("5"))
    assert only(per_pod, status(average_value_milli=2_500)) == (2.5, 5, 0.5, "")


def test_object_with_both_targets_is_held_against_the_one_its_type_names() -> None:
    # kubernetes horizontal.go, computeStatusForObjectMetric: Type is Value, so 12 against 30
    amounts = parse_quantity("30"), parse_quantity("5")
    both = MetricTarget(TargetType.VALUE, value=amounts[0], average_value=amounts[1])
    assert only(ObjectMetric(SERVICE, "m", both), status(value_milli=12_000)) == (12, 30, 0.4, "")


@pytest.mark.parametrize("statuses", [(), (status(error="no metrics"),)])
def test_an_unknown_value_is_null_and_so_is_its_ratio(statuses) -> None:
    assert only(PodsMetric("load", average("20")), *statuses) == (None, 20, None, "")
    percent = MetricTarget(TargetType.UTILIZATION, average_utilization=80)
    assert only(ResourceMetric("cpu", percent), *statuses) == (None, 80, None, "%")


def test_several_metrics_keep_the_order_of_the_spec() -> None:
    metrics = PodsMetric("a", average("20")), PodsMetric("b", average("30"))
    found = metric_figures(hpa(*metrics), (status(1, average_value_milli=15_000),))
    assert [(f["name"], f["value"], f["ratio"]) for f in found] == [
        ("a", None, None),
        ("b", 15, 0.5),
    ]


def test_hpa_without_metrics_has_no_figures() -> None:
    assert metric_figures(hpa(), ()) == []

# mypy: disable-error-code="assignment"
"""The TARGETS column of `kubectl get hpa`.

Source: kubernetes pkg/printers/internalversion/printers.go (formatHPAMetrics).
"""

import pytest

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    MetricTarget,
    ResourceMetric,
    TargetType,
)
from gpuscale.hpa import (
    ContainerUsages,
    ExternalValues,
    FetchError,
    ObjectValue,
    PodUsage,
    targets_cell,
)


def cell(given, metric, observation, spec=1, **others) -> str:
    hpa = given.hpa(metric)
    return targets_cell(hpa, given.decide(hpa, observation, spec=spec, **others).metrics)


@pytest.mark.parametrize(
    ("value", "target", "text"),
    [
        (31, 25, "31/25"),
        (31.4, 25, "31400m/25"),
        (2000, "2500", "2k/2500"),
        (0, 20, "0/20"),
        (0.5, "500m", "500m/500m"),
        (23, "20.0", "23/20"),
    ],
)
def test_pods(given, value: float, target, text: str) -> None:
    assert cell(given, given.pods_metric(target), given.values(value)) == text


def test_value_targets(given) -> None:
    assert cell(given, given.object_metric(given.value(30)), ObjectValue(12_000)) == "12/30"
    assert cell(given, given.external(given.value("1k")), ExternalValues((1500,))) == "1500m/1k"


def test_average_targets(given) -> None:
    # ceil(10 / 3) to milli = 3.334
    answer, three = ExternalValues((10_000,)), {"spec": 3}
    assert cell(given, given.external(given.average(5)), answer, **three) == "3334m/5 (avg)"
    answer = ObjectValue(9_000)
    assert cell(given, given.object_metric(given.average(5)), answer, **three) == "3/5 (avg)"


def test_object_with_both_targets_shows_the_average_one(given) -> None:
    target = MetricTarget(TargetType.VALUE, given.value(30).value, given.average(5).average_value)
    assert cell(given, given.object_metric(target), ObjectValue(12_000)) == "<unknown>/5 (avg)"


def test_resource_utilization(given) -> None:
    pods = given.pods("ready", cpu="1")
    assert cell(given, given.resource(80), given.usages(630), pods=pods) == "cpu: 63%/80%"


def test_resource_raw(given) -> None:
    metric = ResourceMetric("cpu", given.average("500m"))
    assert cell(given, metric, given.usages(250)) == "cpu: 250m/500m"


def test_container_resource(given) -> None:
    target = MetricTarget(TargetType.UTILIZATION, average_utilization=80)
    metric = ContainerResourceMetric("cpu", "main", target)
    usages = ContainerUsages((PodUsage("p0", {"main": 630}, given.now_ms),))
    assert cell(given, metric, usages, pods=given.pods("ready", cpu="1")) == "cpu: 63%/80%"


def test_unknown(given) -> None:
    down = FetchError("down")
    assert cell(given, given.pods_metric(25), down) == "<unknown>/25"
    assert cell(given, given.external(given.average(5)), down) == "<unknown>/5 (avg)"
    assert cell(given, given.external(given.value(5)), down) == "<unknown>/5"
    assert cell(given, given.resource(80), down) == "cpu: <unknown>/80%"


def test_without_statuses_all_is_unknown(given) -> None:
    assert targets_cell(given.hpa(given.pods_metric(25)), ()) == "<unknown>/25"


def test_no_metrics(given) -> None:
    assert targets_cell(given.hpa(), ()) == "<none>"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (2, "1/25, 2/25"),
        (3, "1/25, 2/25 + 1 more..."),
        (5, "1/25, 2/25 + 3 more..."),
    ],
)
def test_first_two_are_shown(given, count: int, text: str) -> None:
    hpa = given.hpa(*(given.pods_metric(25, f"m{i}") for i in range(count)))
    decision = given.decide(hpa, *(given.values(i + 1) for i in range(count)), spec=1)
    assert targets_cell(hpa, decision.metrics) == text

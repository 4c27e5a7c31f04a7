"""Triggers as metrics of the HPA, and what their queries come to.

Expected values: KEDA v2.21 pkg/scalers/prometheus_scaler.go, prometheus_scaler_test.go, scaler.go
(quantityFromFloat64), cpu_memory_scaler.go, controllers/keda/hpa.go.
"""

import math
from dataclasses import replace
from datetime import datetime

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.base.objects.hpa import ExternalMetric, ResourceMetric, SelectPolicy
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.scaled_object import ScaledObject, ScaleTrigger
from gpuscale.series.values import Scalar, Value, Vector, VectorSample
from gpuscale.triggers.keda.generated import generated_hpa
from gpuscale.triggers.keda.kinds import Sources, make_scalers
from gpuscale.triggers.keda.scalers import PrometheusScaler, quantity

NOW_MS = 1_767_225_600_500
QUERY = {"serverAddress": "http://p", "query": "sum(q)", "threshold": "2.5"}


def rows(*values: float) -> Vector:
    return Vector(tuple(VectorSample({}, value, NOW_MS) for value in values))


def scaled(*triggers: ScaleTrigger) -> ScaledObject:
    return ScaledObject(ObjectMeta("web", "ml"), "Deployment", "web", 0, 5, triggers)


def prometheus(answer: Value, **metadata: str) -> PrometheusScaler:
    async def ask(query: str, at_ms: int) -> Value:
        assert (query, at_ms) == ("sum(q)", NOW_MS // 1000 * 1000)
        return answer

    (scaler,), faults = make_scalers(
        scaled(ScaleTrigger("prometheus", QUERY | metadata)), Sources(ask)
    )
    assert not faults
    assert isinstance(scaler, PrometheusScaler)
    return scaler


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "milli", "is_active"),
    [
        (rows(4.0004), 4000, True),
        (rows(0.0), 0, False),
        (rows(), 0, False),
        (rows(math.nan), 0, False),
        (rows(math.inf), 0, False),
        (rows(-3.0), 0, False),
        (rows(0.0001), 0, True),  # active, though the HPA is told 0
    ],
)
async def test_one_row_is_the_value_and_none_is_zero_by_default(
    answer: Value, milli: int, is_active: bool
) -> None:
    reading = await prometheus(answer).read(NOW_MS)
    assert (reading.value_milli, reading.is_active) == (milli, is_active)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [rows(), rows(math.nan), rows(math.inf)])
async def test_no_value_fails_where_nulls_count(answer: Value) -> None:
    with pytest.raises(UpstreamError):
        await prometheus(answer, ignoreNullValues="false").read(NOW_MS)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [rows(1, 2), Scalar(3)])
async def test_several_rows_or_none_at_all_fail(answer: Value) -> None:
    with pytest.raises(UpstreamError):
        await prometheus(answer).read(NOW_MS)


@pytest.mark.asyncio
async def test_activity_begins_strictly_above_the_activation_threshold() -> None:
    at, above = (
        prometheus(rows(5), activationThreshold="5"),
        prometheus(rows(5.001), activationThreshold="5"),
    )
    assert not (await at.read(NOW_MS)).is_active
    assert (await above.read(NOW_MS)).is_active


@pytest.mark.parametrize(
    ("number", "text"),
    [(2.5, "2500m"), (2.0004, "2"), (2.0006, "2001m"), (-1, "0"), (math.nan, "0"), (math.inf, "0")],
)
def test_numbers_keep_three_decimals(number: float, text: str) -> None:
    assert str(quantity(number)) == text


def test_triggers_become_metrics_of_one_hpa() -> None:
    async def ask(_query: str, _at_ms: int) -> Value:
        return rows()

    both = scaled(
        ScaleTrigger("cpu", {"value": "60"}, metric_type="Utilization"),
        ScaleTrigger("prometheus", QUERY),
        ScaleTrigger("prometheus", QUERY, metric_type="Value"),
    )
    scalers, faults = make_scalers(both, Sources(ask))
    assert not faults
    hpa = generated_hpa(both, (metric for scaler in scalers for metric in scaler.metrics))
    assert (hpa.metadata.name, hpa.metadata.namespace) == ("keda-hpa-web", "ml")
    assert (hpa.min_replicas, hpa.max_replicas) == (1, 5)
    assert (hpa.target.kind, hpa.target.name, hpa.target.api_version) == (
        "Deployment",
        "web",
        "apps/v1",
    )
    assert hpa.behavior is None
    first, second, third = hpa.metrics
    assert isinstance(first, ExternalMetric)
    assert isinstance(second, ExternalMetric)
    assert isinstance(third, ResourceMetric)
    assert (first.name, second.name) == ("s1-prometheus", "s2-prometheus")
    assert str(first.selector) == "scaledobject.keda.sh/name=web"
    assert str(first.target.average_value) == "2500m"
    assert str(second.target.value) == "2500m"
    assert third.target.average_utilization == 60


def test_a_pause_of_one_direction_is_a_disabled_policy_of_the_hpa() -> None:
    annotations = {"autoscaling.keda.sh/paused-scale-in": "true"}
    paused = replace(scaled(), metadata=ObjectMeta("web", annotations=annotations))
    behavior = generated_hpa(paused, ()).behavior
    assert behavior is not None
    assert behavior.scale_down.select_policy is SelectPolicy.DISABLED
    assert behavior.scale_up.select_policy is SelectPolicy.MAX


def test_faults_of_all_triggers_are_named() -> None:
    async def ask(_query: str, _at_ms: int) -> Value:
        return rows()

    wrong = scaled(
        ScaleTrigger(
            "cron",
            {"start": "0 8 * * *", "end": "0 8 * * *", "timezone": "Mars", "desiredReplicas": "0"},
        ),
        ScaleTrigger("external", {"scalerAddress": "s:1", "target": "60", "querry": "x"}),
        ScaleTrigger("prometheus", {"query": "q", "threshold": "0", "ignoreNullValues": "maybe"}),
        ScaleTrigger("cpu", {"value": "half"}, metric_type="Utilization"),
        ScaleTrigger("rabbitmq", {}),
    )
    _, faults = make_scalers(wrong, Sources(ask))
    assert [(each.index, ".".join(each.path), each.found) for each in faults] == [
        (0, "metadata.timezone", "'Mars'"),
        (0, "metadata.end", "'0 8 * * *'"),
        (0, "metadata.desiredReplicas", "'0'"),
        (1, "metadata.querry", None),
        (1, "metadata.signal", "none of them"),
        (2, "metadata.serverAddress", None),
        (2, "metadata.threshold", "'0'"),
        (2, "metadata.ignoreNullValues", "'maybe'"),
        (3, "metadata.value", "'half'"),
        (4, "type", "'rabbitmq'"),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("hour", "milli"),
    [("2026-01-01T09:00", 3000), ("2026-01-01T07:00", 0), ("2026-01-01T20:30", 0)],
)
async def test_a_cron_trigger_asks_for_its_replicas_between_its_times(
    hour: str, milli: int
) -> None:
    # cron_scaler.go; 08:00 in Berlin is 07:00 UTC in January
    metadata = {
        "start": "0 9 * * *",
        "end": "0 20 * * *",
        "timezone": "Europe/Berlin",
        "desiredReplicas": "3",
    }
    (scaler,), faults = make_scalers(scaled(ScaleTrigger("cron", metadata)), Sources(unasked))
    assert not faults
    now_ms = int(datetime.fromisoformat(f"{hour}+00:00").timestamp() * 1000)
    reading = await scaler.read(now_ms)
    assert (reading.value_milli, reading.is_active) == (milli, milli > 0)
    (metric,) = scaler.metrics
    assert isinstance(metric, ExternalMetric)
    assert metric.name == "s0-cron-Europe-Berlin-09xxx-020xxx"
    assert str(metric.target.average_value) == "1"


async def unasked(_query: str, _at_ms: int) -> Value:
    raise AssertionError

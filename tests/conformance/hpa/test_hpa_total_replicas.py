"""Object and External metrics: one total, for all pods or shared between them.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go (getUsageRatioReplicaCount,
    GetObjectPerPodMetricReplicas, GetExternalPerPodMetricReplicas).
"""

from dataclasses import dataclass, replace

import pytest

from gpuscale.base.objects.hpa import MetricTarget, TargetType
from gpuscale.hpa import ControllerSettings, ExternalValues, HpaState, ObjectValue, ReadyCondition
from gpuscale.hpa.kernel.numbers import MAX_INT32, MAX_INT64, MIN_INT32
from gpuscale.hpa.terms.conditions import SCALED_TO_ZERO_BY_CONTROLLER, set_condition


@dataclass(frozen=True)
class Case:
    name: str
    total: float
    target: object
    spec: int
    pods: str
    replicas: int
    status: int | None = None


VALUE = [
    # 20 / 15 = 1.333, * 3 = 4
    Case("ScaleUpCMObject", 20, 15, 3, "ready ready ready", 4),
    # unready pods do not multiply: 1.333 * 1 = 1.33 -> 2, fewer than now on a scale-up
    Case("RatioAboveOneCanShrinkWithFewReadyPods", 20, 15, 3, "ready unready unready", 2),
    # none ready: 1.333 * 0 = 0
    Case("NoReadyPodsAsksForNone", 20, 15, 3, "unready unready unready", 0),
    # Pending, Failed and Succeeded pods do not run
    Case("OnlyRunningPodsCount", 20, 10, 4, "ready pending failed succeeded", 2),
    # a pod that is going away still runs and is ready: 2 * 2 = 4
    Case("DeletedPodThatIsReadyCounts", 20, 10, 2, "ready deleted", 4),
    # 10 / 15 = 0.6667, * 3 = 2
    Case("ScaleDownCMObject", 10, 15, 3, "ready ready ready", 2),
    # 16 / 15 = 1.0667 within tolerance: spec stays, and pods are not looked at
    Case("ToleranceKeepsSpec", 16, 15, 3, "", 3, 7),
    Case("ZeroTotalAsksForNone", 0, 15, 3, "ready ready ready", 0),
    # 9e15 / 0.001 * 3 is far above int32
    Case("ProposalSaturates", 9e15, "1m", 3, "ready ready ready", MAX_INT32),
]


@pytest.mark.parametrize("case", VALUE, ids=lambda case: case.name)
@pytest.mark.parametrize("source", ["Object", "External"])
def test_value_target(given, source: str, case) -> None:
    metric, observation = metric_and_answer(given, source, given.value(case.target), case.total)
    decision = given.decide(
        given.hpa(metric),
        observation,
        spec=case.spec,
        status=case.status,
        pods=given.pods(case.pods),
    )
    assert decision.metrics[0].proposed_replicas == case.replicas
    assert decision.metrics[0].value_milli == round(case.total * 1000)
    assert decision.metrics[0].average_value_milli is None


AVERAGE = [
    # 40 / (20 * 3) = 0.667; ceil(40 / 20) = 2
    Case("ScaleDownPerPod", 40, 20, 3, "ready ready ready", 2),
    # 100 / (20 * 3) = 1.667; ceil(100 / 20) = 5; the pods are not looked at
    Case("ScaleUpPerPodIgnoresPods", 100, 20, 3, "", 5),
    # 64 / (20 * 3) = 1.0667: within tolerance
    Case("TolerancePerPod", 64, 20, 3, "ready ready ready", 3),
    # within tolerance it is status.replicas that stays, not spec.replicas: 100 / (20 * 5) = 1
    Case("ToleranceKeepsStatusReplicas", 100, 20, 3, "ready ready ready", 5, 5),
    # status decides the ratio too: 64 / (20 * 5) = 0.64 -> ceil(3.2) = 4
    Case("StatusDecidesTheRatio", 64, 20, 3, "ready ready ready", 4, 5),
]


@pytest.mark.parametrize("case", AVERAGE, ids=lambda case: case.name)
@pytest.mark.parametrize("source", ["Object", "External"])
def test_average_value_target(given, source: str, case) -> None:
    metric, observation = metric_and_answer(given, source, given.average(case.target), case.total)
    decision = given.decide(
        given.hpa(metric),
        observation,
        spec=case.spec,
        status=case.status,
        pods=given.pods(case.pods),
    )
    assert decision.metrics[0].proposed_replicas == case.replicas
    assert decision.metrics[0].value_milli is None


def metric_and_answer(given, source, target, total):
    if source == "Object":
        return given.object_metric(target), ObjectValue(round(total * 1000))
    return given.external(target), ExternalValues((round(total * 1000),))


def test_ready_pods_that_do_not_run_do_not_multiply(given) -> None:
    # 40 / 20 = 2, * 1 running pod = 2; the pending one has an old Ready condition
    pods = tuple(replace(pod, ready=ReadyCondition.TRUE) for pod in given.pods("ready pending"))
    metric = given.object_metric(given.value(20))
    assert given.proposal(metric, ObjectValue(40_000), spec=2, pods=pods) == 2


def test_reported_average_is_rounded_up(given) -> None:
    # 10.001 / 3 = 3.33366... -> 3.334
    decision = given.decide(
        given.hpa(given.external(given.average(5))), ExternalValues((10_001,)), spec=3
    )
    assert decision.metrics[0].average_value_milli == 3334


def test_external_series_are_summed(given) -> None:
    # 8 + 12 + 20 = 40, / (10 * 2) = 2; 40 / 10 = 4
    observation = ExternalValues((8_000, 12_000, 20_000))
    assert given.proposal(given.external(given.average(10)), observation, spec=2) == 4
    # 40 / 10 = 4, * 2 ready pods = 8
    assert given.proposal(given.external(given.value(10)), observation, spec=2) == 8


# int32(math.Ceil(count)) is -2^31 on amd64 where the count does not fit; an External AverageValue, and the
# Value of a target with pods, are held at the largest int32 before that.
@pytest.mark.parametrize(
    ("source", "target", "spec", "replicas"),
    [
        ("Object", "average", 2, MIN_INT32),
        ("External", "average", 2, MAX_INT32),
        ("Object", "value", 2, MAX_INT32),
        ("External", "value", 2, MAX_INT32),
    ],
)
def test_proposals_beyond_int32(given, source: str, target: str, spec: int, replicas: int) -> None:
    # 3e12 / 1 is above 2^31
    metric, answer = metric_and_answer(given, source, getattr(given, target)(1), 3e12)
    pods = given.pods("ready ready")
    decision = given.decide(given.hpa(metric), answer, spec=spec, pods=pods)
    assert decision.metrics[0].proposed_replicas == replicas
    says_so = any("it asks for none at all" in each for each in decision.explanation)
    assert says_so == (replicas == MIN_INT32)


@pytest.mark.parametrize("target", ["value", "average"])
def test_external_sum_and_proposal_saturate(given, target: str) -> None:
    observation = ExternalValues((MAX_INT64, MAX_INT64))
    metric = given.external(getattr(given, target)("1m"))
    decision = given.decide(given.hpa(metric), observation, spec=2)
    status = decision.metrics[0]
    assert status.proposed_replicas == MAX_INT32
    assert MAX_INT64 in {status.value_milli, status.average_value_milli}


def test_negative_total_of_a_per_pod_external_metric_is_taken_for_an_overflow(given) -> None:
    # upstream tests the running sum for a wrap-around by its sign
    metric = given.external(given.average(10))
    assert given.proposal(metric, ExternalValues((-1,)), spec=2) == MAX_INT32


def test_negative_total_of_a_value_target_asks_for_less_than_none(given) -> None:
    # -10 / 10 = -1, * 2 = -2; the decision takes it as 0 and raises it to min 1
    hpa = given.hpa(given.external(given.value(10)))
    decision = given.decide(hpa, ExternalValues((-10_000,)), spec=2)
    assert decision.metrics[0].proposed_replicas == -2
    raw = [r.replicas for r in decision.next_state.recommendations]
    assert raw == [2, 0]


def test_external_average_value_wins_over_value(given) -> None:
    # 40 / 20 = 2 per pod; the Value target of 1 would ask for 80
    target = MetricTarget(TargetType.VALUE, given.value(1).value, given.average(20).average_value)
    assert given.proposal(given.external(target), ExternalValues((40_000,)), spec=3) == 2


def test_object_type_decides_where_both_targets_are_set(given) -> None:
    both = given.value(10).value, given.average(20).average_value
    by_value = given.object_metric(MetricTarget(TargetType.VALUE, *both))
    by_average = given.object_metric(MetricTarget(TargetType.AVERAGE_VALUE, *both))
    # 40 / 10 = 4, * 3 = 12; 40 / (20 * 3) = 0.67, 40 / 20 = 2
    assert given.proposal(by_value, ObjectValue(40_000), spec=3) == 12
    assert given.proposal(by_average, ObjectValue(40_000), spec=3) == 2


def test_object_with_type_utilization_fails(given) -> None:
    target = MetricTarget(TargetType.UTILIZATION, average_value=given.average(20).average_value)
    decision = given.decide(given.hpa(given.object_metric(target)), ObjectValue(40_000), spec=3)
    assert decision.metrics[0].error == (
        "invalid object metric source: neither a value target nor an average value target was set"
    )


def test_value_target_without_pods_fails(given) -> None:
    decision = given.decide(
        given.hpa(given.object_metric(given.value(10))), ObjectValue(40_000), spec=3, pods=()
    )
    assert decision.metrics[0].error == (
        "unable to calculate ready pods: "
        "no pods returned by selector while calculating replica count"
    )


SCALED_TO_ZERO = HpaState(conditions=set_condition((), SCALED_TO_ZERO_BY_CONTROLLER, 0))


@pytest.mark.parametrize(
    ("kind", "total", "replicas"),
    [
        # ceil(total / target), no tolerance, no pods
        pytest.param("value", 0.001, 1, id="AnyLoadWakesOneWithValue"),
        pytest.param("value", 0, 0, id="NoLoadStaysAtZeroWithValue"),
        pytest.param("value", 10, 1, id="LoadOnTargetWakesOneWithValue"),
        pytest.param("value", 25, 3, id="LoadDecidesWithValue"),
        pytest.param("average", 0.001, 1, id="AnyLoadWakesOneWithAverage"),
        # 0 / (10 * 0) is no number and lies within no tolerance; ceil(0 / 10) = 0
        pytest.param("average", 0, 0, id="NoLoadStaysAtZeroWithAverage"),
        pytest.param("average", 25, 3, id="LoadDecidesWithAverage"),
    ],
)
@pytest.mark.parametrize("source", ["Object", "External"])
def test_from_zero(given, source: str, kind: str, total: float, replicas: int) -> None:
    metric, observation = metric_and_answer(given, source, getattr(given, kind)(10), total)
    decision = given.decide(
        given.hpa(metric, low=0),
        observation,
        spec=0,
        state=SCALED_TO_ZERO,
        settings=ControllerSettings(scale_to_zero=True),
    )
    assert decision.metrics[0].proposed_replicas == replicas
    assert decision.desired_replicas == replicas


def test_average_at_zero_replicas_is_absent(given) -> None:
    decision = given.decide(
        given.hpa(given.external(given.average(10)), low=0),
        ExternalValues((25_000,)),
        spec=0,
        state=SCALED_TO_ZERO,
        settings=ControllerSettings(scale_to_zero=True),
    )
    assert decision.metrics[0].average_value_milli is None

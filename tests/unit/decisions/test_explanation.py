# mypy: disable-error-code="arg-type"
"""The sentences that explain a decision."""

import pytest

from gpuscale.base.objects.hpa import (
    DEFAULT_SCALE_DOWN,
    Behavior,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    PodsMetric,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    TargetType,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.base.words import shown_number
from gpuscale.hpa import (
    ControllerSettings,
    ExternalValues,
    FetchError,
    HpaState,
    MetricValue,
    PodInfo,
    PodValues,
    Scale,
    decide,
)


def average(amount: object) -> MetricTarget:
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(amount))


def hpa(*metrics, high: int = 100, behavior: Behavior | None = None) -> HorizontalPodAutoscaler:
    reference = CrossVersionObjectReference("Deployment", "web")
    return HorizontalPodAutoscaler(ObjectMeta("web"), reference, high, metrics, behavior=behavior)


LOAD = PodsMetric("load", average(20))


def explain(autoscaler, pods, *observations, spec=None, state=HpaState()):  # noqa: B008 - frozen
    scale = Scale(len(pods) if spec is None else spec, len(pods), "app=web")
    return decide(autoscaler, scale, pods, observations, state, 0, ControllerSettings()).explanation


def pods(count: int) -> tuple[PodInfo, ...]:
    return tuple(PodInfo(f"p{i}") for i in range(count))


def values(*numbers: float) -> PodValues:
    return PodValues(tuple(MetricValue(f"p{i}", round(n * 1000)) for i, n in enumerate(numbers)))


def test_scale_up() -> None:
    assert explain(hpa(LOAD), pods(1), values(23)) == (
        "pods metric load: The average over 1 pod is 23 against a target of 20: ratio 1.15.",
        "pods metric load: 1 pod x 1.15 rounds up to 2.",
        "Scale from 1 to 2.",
    )


def test_within_tolerance() -> None:
    assert explain(hpa(LOAD), pods(1), values(21.8)) == (
        "pods metric load: The average over 1 pod is 21.8 against a target of 20: ratio 1.09.",
        "pods metric load: No change: the ratio lies within the tolerance, 0.9 to 1.1.",
        "The count stays at 1.",
    )


def test_missing_and_unready_pods() -> None:
    found = (*pods(3), PodInfo("p3", phase=PodPhase.PENDING))
    assert explain(hpa(LOAD), found, values(60, 40)) == (
        "pods metric load: The average over 2 pods is 50 against a target of 20: ratio 2.5.",
        "pods metric load: 1 pod without a sample counts as 0.",
        "pods metric load: 1 unready pod counts as 0.",
        "pods metric load: With them the ratio is 1.25.",
        "pods metric load: 4 pods x 1.25 rounds up to 5.",
        "Scale from 4 to 5.",
    )


def test_missing_pods_on_the_way_down() -> None:
    # (2 + 20 + 20) / 3 = 14, / 20 = 0.7, * 3 = 2.1 -> 3
    assert explain(hpa(LOAD), pods(3), values(2))[1:4] == (
        "pods metric load: 2 pods without a sample count as exactly on target.",
        "pods metric load: With them the ratio is 0.7.",
        "pods metric load: 3 pods x 0.7 rounds up to 3.",
    )


def test_filled_in_pods_turn_the_direction() -> None:
    # (25 + 0) / 2 = 12.5, / 20 = 0.625
    assert explain(hpa(LOAD), pods(2), values(25))[2:4] == (
        "pods metric load: With them the ratio is 0.625.",
        "pods metric load: No change: that points the other way.",
    )


def test_stabilization() -> None:
    assert explain(hpa(LOAD), pods(4), values(1, 1, 1, 1))[-2:] == (
        "Stabilization keeps 4, the highest asked for within the last 5m.",
        "The count stays at 4.",
    )


def test_doubling_cap_and_max() -> None:
    assert explain(hpa(LOAD), pods(3), values(900, 900, 900))[-2:] == (
        "Scale-up is limited to 6: no more than double, or 4, in one step.",
        "Scale from 3 to 6.",
    )
    assert explain(hpa(LOAD, high=5), pods(3), values(900, 900, 900))[-2:] == (
        "Cut to maxReplicas, 5.",
        "Scale from 3 to 5.",
    )


def test_policies() -> None:
    one = ScalingRules((ScalingPolicy(PolicyType.PODS, 1, 60),), stabilization_window_s=0)
    autoscaler = hpa(LOAD, behavior=Behavior(one, DEFAULT_SCALE_DOWN))
    assert explain(autoscaler, pods(3), values(900, 900, 900))[-2:] == (
        "Scale-up is limited to 4 by the policies of spec.behavior.",
        "Scale from 3 to 4.",
    )


def test_several_metrics_and_a_failed_one() -> None:
    queue = ExternalMetric("queue", average(5))
    autoscaler = hpa(LOAD, queue)
    assert explain(autoscaler, pods(2), FetchError("down"), ExternalValues((20_000,))) == (
        "pods metric load failed: unable to get metric load: "
        "unable to fetch metrics from custom metrics API: down.",
        "external metric queue(nil): The total is 20 against a target of 5 for each of 2 replicas: "
        "ratio 2.",
        "external metric queue(nil): The total divided by the target rounds up to 4.",
        "The highest count wins: external metric queue(nil).",
        "Scale from 2 to 4.",
    )
    assert explain(autoscaler, pods(2), FetchError("down"), ExternalValues((1000,)))[-2:] == (
        "1 of 2 metrics failed and the rest ask for fewer replicas; "
        "nothing is scaled, since a failed one might ask for more.",
        "The count stays at 2.",
    )


def test_paused_and_repaired() -> None:
    assert explain(hpa(LOAD), (), values()) == (
        "The target has 0 replicas and this controller did not put it there: scaling is paused.",
        "The count stays at 0.",
    )
    assert explain(hpa(LOAD, high=5), pods(9), values()) == (
        "9 replicas lie outside maxReplicas, 5; that is repaired at once, "
        "without a look at metrics, stabilization or policies.",
        "Scale from 9 to 5.",
    )


@pytest.mark.parametrize(
    ("milli", "text"),
    [(23_000, "23"), (31_400, "31.4"), (5, "0.005"), (0, "0"), (-1500, "-1.5"), (100_000, "100")],
)
def test_numbers_are_plain(milli: int, text: str) -> None:
    assert shown_number(milli) == text

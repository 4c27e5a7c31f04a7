"""The average of a metric that every pod has, against a raw target.

Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go (groupPods,
    calcPlainMetricReplicas), and the situations of replica_calculator_test.go.
"""

from dataclasses import dataclass

import pytest

from gpuscale.hpa import ControllerSettings, ExternalValues, MetricValue, PodValues


@dataclass(frozen=True)
class Case:
    name: str
    target: object
    spec: int
    pods: str
    values: tuple
    replicas: int | None
    average: str = ""
    """In milli-units, where the case is about it."""


CASES = [
    # 23 / 20 = 1.15 > 1.1; ceil(1.15 * 1) = 2
    Case("SeedOnePodAt23AgainstTarget20", 20, 1, "ready", (23,), 2, "23000"),
    # 21.8 / 20 = 1.09 <= 1.1
    Case("NinePercentAboveIsWithinTolerance", 20, 1, "ready", (21.8,), 1, "21800"),
    # 22 / 20 = 1.1, and 1.0 + 0.1 = 1.1: the edge is inside
    Case("UpperEdgeOfToleranceIsInside", 20, 1, "ready", (22,), 1),
    # 18 / 20 = 0.9, and 1.0 - 0.1 = 0.9: the edge is inside
    Case("LowerEdgeOfToleranceIsInside", 20, 2, "ready ready", (18, 18), 2),
    # 17.98 / 20 = 0.899 < 0.9; ceil(0.899 * 2) = 2: outside the tolerance, and still 2
    Case("JustBelowToleranceRoundsUp", 20, 2, "ready ready", (17.98, 17.98), 2),
    # (20 + 10 + 20) / 3 = 16.666 (cut off), 16.666 / 15 = 1.111, * 3 = 3.33 -> 4
    Case("ScaleUpCM", 15, 3, "ready ready ready", (20, 10, 20), 4, "16666"),
    # 20 / 50 = 0.4; ceil(0.4 * 5) = ceil(2.0) = 2
    Case("ScaleDownCM", 50, 5, "ready " * 5, (20,) * 5, 2),
    # readiness does not matter to a Pods metric: 30 / 15 = 2, * 3 = 6
    Case("ScaleUpCMUnreadyPodsCount", 15, 3, "ready unready unready", (50, 10, 30), 6),
    Case("ScaleUpCMUnknownAndNoConditionCount", 15, 2, "unknown no-condition", (30, 30), 4),
    Case("SucceededPodCounts", 15, 2, "ready succeeded", (30, 30), 4),
    # a proposal follows the pods that count, not spec.replicas: 40 / 20 = 2, * 2 = 4
    Case("CountFollowsPodsNotSpec", 20, 5, "ready ready", (40, 40), 4),
    # ignored pods: the sample is dropped and the pod is no part of the count: 40 / 20 * 2 = 4
    Case("FailedPodIsIgnored", 20, 3, "ready ready failed", (40, 40, 500), 4, "40000"),
    Case("DeletedPodIsIgnored", 20, 3, "ready ready deleted", (40, 40, 500), 4, "40000"),
    # deletion is looked at before the phase
    Case("DeletedPodWithoutSampleIsNotMissing", 20, 3, "ready ready deleted", (40, 40), 4),
    # unready on scale-up: (40 + 40 + 0) / 3 = 26.666, / 20 = 1.3333, * 3 = 3.9999 -> 4
    Case("ScaleUpPendingPodsCountAsZero", 20, 3, "ready ready pending", (40, 40, None), 4),
    # (25 + 25 + 0) / 3 = 16.666, / 20 = 0.8333: turned around -> no change
    Case("ScaleUpPendingTurnsDirection", 20, 3, "ready ready pending", (25, 25, None), 3),
    # (30 + 30 + 0) / 3 = 20, / 20 = 1: within tolerance -> no change
    Case("ScaleUpPendingFallsWithinTolerance", 20, 3, "ready ready pending", (30, 30, None), 3),
    # unready on scale-down: left out; 10 / 20 = 0.5, ceil(0.5 * 2 counted pods) = 1
    Case("ScaleDownPendingPodIsLeftOut", 20, 3, "ready ready pending", (10, 10, None), 1),
    # a sample of a Pending pod is dropped: average 10, not (10 + 10 + 100) / 3
    Case("PendingPodWithSampleIsDropped", 20, 3, "ready ready pending", (10, 10, 100), 1, "10000"),
    # missing on scale-down counts as the target: (10 + 10 + 20) / 3 = 13.333, / 20 = 0.66665,
    # * 3 = 1.99995 -> 2
    Case("ScaleDownMissingCountsAsTarget", 20, 3, "ready " * 3, (10, 10, None), 2, "10000"),
    # (17 + 20 + 20) / 3 = 19, / 20 = 0.95: within tolerance, although 17 / 20 = 0.85 is not
    Case("ScaleDownMissingFallsWithinTolerance", 20, 3, "ready " * 3, (17, None, None), 3),
    # missing on scale-up counts as 0: (60 + 60 + 0) / 3 = 40, / 20 = 2, * 3 = 6
    Case("ScaleUpMissingCountsAsZero", 20, 3, "ready " * 3, (60, 60, None), 6, "60000"),
    # (25 + 0) / 2 = 12.5, / 20 = 0.625: turned around -> no change
    Case("ScaleUpMissingTurnsDirection", 20, 2, "ready ready", (25, None), 2),
    # ratio exactly 1: missing pods are left out, 20 / 20 = 1 -> no change
    Case("MissingAtRatioOneIsLeftOut", 20, 2, "ready ready", (20, None), 2),
    # missing and unready on scale-up, both 0: 100 / 4 = 25, / 20 = 1.25, * 4 = 5
    Case("ScaleUpMissingAndPending", 20, 4, "ready ready ready pending", (60, 40, None, None), 5),
    # missing and unready on scale-down: only the missing one is filled in:
    # (10 + 20) / 2 = 15, / 20 = 0.75, * 2 = 1.5 -> 2
    Case("ScaleDownMissingAndPending", 20, 4, "ready ready pending", (10, None, None), 2),
    # the pending pod is left out of the second ratio too: (17 + 20) / 2 = 18.5, / 20 = 0.925 is within
    # tolerance; with it as 0, 37 / 3 = 12.333 would scale down
    Case("ScaleDownMissingWithinToleranceBesidePending", 20, 3, "ready ready pending", (17,), 3),
    # the enlarged set is smaller than spec.replicas: (70 + 0) / 2 = 35, / 20 = 1.75,
    # * 2 = 3.5 -> 4 < 6 on a scale-up -> no change
    Case("ScaleUpMissingWouldShrink", 20, 6, "ready ready", (70, None), 6),
    # the enlarged set is larger than spec.replicas: (1 + 20 + 20 + 20) / 4 = 15.25, / 20 = 0.7625,
    # * 4 = 3.05 -> 4 > 2 on a scale-down -> no change
    Case("ScaleDownMissingWouldGrow", 20, 2, "ready " * 4, (1, None, None, None), 2),
    # float64: 0.07 * 100 = 7.000000000000001 -> 8; the average is 0.07 of the target
    Case("FloatArtefactRoundsUp", 100, 100, "ready " * 100, (7,) * 100, 8),
    # the mean is an integer division in milli-units: (0.001 + 0 + 0) / 3 = 0.000333 -> 0 -> 0 pods
    Case("AverageIsCutOffToMilli", 1, 3, "ready " * 3, (0.001, 0, 0), 0, "0"),
    # a target is rounded away from zero to milli: 0.0005 -> 0.001; 0.002 / 0.001 = 2
    Case("TargetIsRoundedUpToMilli", "0.0005", 1, "ready", (0.002,), 2),
    # all idle: 0 / 20 = 0 -> 0
    Case("AllIdleAsksForNone", 20, 3, "ready " * 3, (0, 0, 0), 0),
    # nothing to count: errors, never 0
    Case("NoPods", 20, 3, "", (10, 10, 10), None),
    Case("OnlyPendingPods", 20, 2, "pending pending", (10, 10), None),
    Case("NoSamples", 20, 2, "ready ready", (), None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plain_replicas(given, case) -> None:
    decision = given.decide(
        given.hpa(given.pods_metric(case.target), high=10_000),
        given.values(*case.values),
        spec=case.spec,
        pods=given.pods(case.pods),
    )
    status = decision.metrics[0]
    assert status.proposed_replicas == case.replicas
    if case.average:
        assert status.average_value_milli == int(case.average)
    if case.replicas is None:
        assert status.average_value_milli is None
        assert decision.desired_replicas == case.spec


def test_sample_of_an_unknown_pod_counts_in_the_average_but_not_as_a_pod(given) -> None:
    # (20 + 60) / 2 = 40, / 20 = 2, * 1 known pod = 2
    samples = (MetricValue("p0", 20_000), MetricValue("gone", 60_000))
    proposal = given.proposal(given.pods_metric(20), PodValues(samples), spec=1)
    assert proposal == 2


def test_sample_of_an_unknown_pod_counts_in_the_enlarged_set(given) -> None:
    # missing p1 on scale-up: (30 + 90 + 0) / 3 = 40, / 20 = 2, * 3 entries = 6
    samples = (MetricValue("p0", 30_000), MetricValue("gone", 90_000))
    proposal = given.proposal(given.pods_metric(20), PodValues(samples), spec=2)
    assert proposal == 6


@pytest.mark.parametrize(
    ("ratio_text", "changes"),
    [
        # abs(1 - 1.05) is 0.050000000000000044 in float64; 1.05 <= 1.0 + 0.05 holds all the same
        pytest.param(21.0, False, id="UpperEdgeOfFivePercent"),
        pytest.param(21.02, True, id="BeyondFivePercent"),
    ],
)
def test_tolerance_of_five_percent(given, ratio_text: float, changes: bool) -> None:
    settings = ControllerSettings(tolerance=0.05)
    decision = given.decide(
        given.hpa(given.pods_metric(20)), given.values(ratio_text), spec=1, settings=settings
    )
    assert decision.rescale is changes


def test_young_pods_with_samples_count_fully_for_pods_metrics(given) -> None:
    # started a second ago and not ready; for a Pods metric only Pending would matter
    pods = given.pods("unready unready", age_s=1)
    assert given.proposal(given.pods_metric(20), given.values(40, 40), spec=2, pods=pods) == 4


def test_a_proposal_beyond_int32_asks_for_none_and_loses_against_any_other(given) -> None:
    # 4 pods of 64 GiB against 16: 2^32 * 4 does not fit, so int32(math.Ceil(...)) is -2^31 on amd64
    held = given.pods_metric(16)
    other = given.external(given.average(1))
    pods = given.pods("ready " * 4)
    samples = PodValues(tuple(MetricValue(pod.name, 64 * 2**30 * 1000) for pod in pods))
    assert given.proposal(held, samples, spec=4, pods=pods) == -(2**31)
    alone = given.decide(given.hpa(held), samples, spec=4, pods=pods)
    assert alone.next_state.recommendations[-1].replicas == 0
    both = given.decide(given.hpa(held, other), samples, ExternalValues((6000,)), spec=4, pods=pods)
    assert both.desired_replicas == 6

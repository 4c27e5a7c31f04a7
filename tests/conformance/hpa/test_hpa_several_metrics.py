"""Several metrics: the highest proposal wins, and failed metrics block a scale-down.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetrics).
"""

from dataclasses import dataclass, replace

import pytest

from gpuscale.base.errors import BugError
from gpuscale.hpa import ExternalValues, FetchError, HpaState, Recommendation

FAILED = FetchError("the server is currently unable to handle the request")


@dataclass(frozen=True)
class Case:
    name: str
    spec: int
    wanted: tuple
    """What each metric asks for; None for a failed one."""
    desired: int
    active: str
    """Reason of ScalingActive."""


CASES = [
    Case("HighestOfTwo", 3, (5, 2), 5, "ValidMetricFound"),
    Case("HighestOfTwoBelow", 4, (1, 2), 2, "ValidMetricFound"),
    Case("AllFailed", 3, (None, None), 3, "FailedGetExternalMetric"),
    Case("OneFailedAndTheOtherIsAbove", 3, (None, 5), 5, "ValidMetricFound"),
    Case("OneFailedAndTheOtherIsEqual", 3, (3, None), 3, "ValidMetricFound"),
    Case("OneFailedAndTheOtherIsBelow", 3, (2, None), 3, "FailedGetExternalMetric"),
    # the highest of the rest counts: 4 > 3, although the other one is below
    Case("OneFailedAndTheRestDiffers", 3, (1, None, 4), 4, "ValidMetricFound"),
    Case("NoneFailedAndBelow", 3, (2, 1), 2, "ValidMetricFound"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_several_metrics(given, case) -> None:
    hpa = given.hpa(*(given.external(given.average(1), f"q{i}") for i in range(len(case.wanted))))
    answers = [FAILED if n is None else ExternalValues((n * 1000,)) for n in case.wanted]
    # the history holds nothing above the proposals, so that stabilization leaves them alone
    decision = given.decide(hpa, *answers, spec=case.spec, state=no_history(given))
    assert decision.desired_replicas == case.desired
    assert condition(decision, "ScalingActive").reason == case.active


def no_history(given):
    return HpaState(recommendations=(Recommendation(0, given.now_ms),))


def condition(decision, kind):
    return next(c for c in decision.conditions if c.type == kind)


def two_queues(given, **hpa):
    return given.hpa(
        given.external(given.average(1), "first"), given.external(given.average(1), "second"), **hpa
    )


def test_winning_metric_names_the_reason(given) -> None:
    decision = given.decide(
        two_queues(given), ExternalValues((5000,)), ExternalValues((7000,)), spec=3
    )
    assert decision.reason == "external metric second(nil) above target"
    assert condition(decision, "ScalingActive").message == (
        "the HPA was able to successfully calculate a replica count from external metric second(nil)"
    )


def test_equal_proposals_name_the_first_metric(given) -> None:
    decision = given.decide(
        two_queues(given), ExternalValues((5000,)), ExternalValues((5000,)), spec=3
    )
    assert decision.reason == "external metric first(nil) above target"


def test_proposal_of_zero_gives_way_to_any_later_one(given) -> None:
    decision = given.decide(two_queues(given), ExternalValues((0,)), ExternalValues((0,)), spec=3)
    assert condition(decision, "ScalingActive").message.endswith("external metric second(nil)")


def test_failed_metric_leaves_an_empty_status_at_its_place(given) -> None:
    decision = given.decide(two_queues(given), FAILED, ExternalValues((7000,)), spec=3)
    first, second = decision.metrics
    assert (first.proposed_replicas, first.average_value_milli) == (None, None)
    assert first.error is not None
    assert second.error is None
    assert (second.index, second.proposed_replicas) == (1, 7)


def test_failed_metric_beside_a_scale_up_still_warns(given) -> None:
    decision = given.decide(two_queues(given), FAILED, ExternalValues((7000,)), spec=3)
    assert [event.reason for event in decision.warnings] == ["FailedGetExternalMetric"]
    assert decision.event is not None
    assert decision.event.reason == "SuccessfulRescale"


def test_blocked_scale_down_records_no_recommendation(given) -> None:
    state = no_history(given)
    decision = given.decide(two_queues(given), ExternalValues((1000,)), FAILED, spec=3, state=state)
    assert decision.next_state.recommendations == state.recommendations


def test_blocked_scale_down_keeps_the_desired_count_of_the_status(given) -> None:
    state = replace(no_history(given), desired_replicas=7)
    decision = given.decide(two_queues(given), ExternalValues((1000,)), FAILED, spec=3, state=state)
    assert decision.next_state.desired_replicas == 7


def test_message_names_the_first_failed_metric(given) -> None:
    hpa = given.hpa(
        given.external(given.average(1), "ok"),
        given.pods_metric(20, "load"),
        given.external(given.average(1), "later"),
    )
    decision = given.decide(hpa, ExternalValues((1000,)), FAILED, FAILED, spec=3)
    assert condition(decision, "ScalingActive").reason == "FailedGetPodsMetric"
    assert decision.warnings[-1].message == (
        "invalid metrics (2 invalid out of 3), first error is: failed to get pods metric value: "
        "unable to get metric load: unable to fetch metrics from custom metrics API: "
        "the server is currently unable to handle the request"
    )


@pytest.mark.parametrize("answers", [(), (ExternalValues((1,)),) * 3], ids=["too few", "too many"])
def test_observations_that_do_not_go_with_the_metrics_are_a_bug(given, answers) -> None:
    with pytest.raises(BugError, match="observations for 2 metrics"):
        given.decide(two_queues(given), *answers, spec=3)


def test_observation_of_another_kind_is_a_bug(given) -> None:
    hpa = given.hpa(given.pods_metric(20))
    with pytest.raises(BugError, match="pods metric load was answered with ExternalValues"):
        given.decide(hpa, ExternalValues((1,)), spec=3)

"""Bounds, the pause at zero replicas, and scaling to zero and back.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler); KEP-2021.
"""

import pytest

from gpuscale.base.objects.hpa import Behavior, PolicyType, ScalingPolicy, ScalingRules
from gpuscale.hpa import (
    ControllerSettings,
    ExternalValues,
    FetchError,
    HpaState,
    Recommendation,
    Scale,
    failed,
    needs_metrics,
)
from gpuscale.hpa.terms.conditions import SCALED_TO_ZERO_BY_CONTROLLER, set_condition

ON = ControllerSettings(scale_to_zero=True)
OWN_ZERO = HpaState(conditions=set_condition((), SCALED_TO_ZERO_BY_CONTROLLER, 0))
NONE = ExternalValues((0,))
ONE = ExternalValues((1000,))
AT_ONCE = Behavior(
    scale_down=ScalingRules((ScalingPolicy(PolicyType.PERCENT, 100, 15),), stabilization_window_s=0)
)


def condition(decision, kind):
    return next((c for c in decision.conditions if c.type == kind), None)


def queue(given, **hpa):
    return given.hpa(given.external(given.average(1)), **hpa)


class TestRepair:
    def test_above_max_goes_to_max_at_once(self, given) -> None:
        decision = given.decide(queue(given, high=5), FetchError("down"), spec=40)
        assert decision.desired_replicas == 5
        assert decision.reason == "Current number of replicas above Spec.MaxReplicas"
        assert decision.metrics == ()

    def test_below_min_goes_to_min_at_once(self, given) -> None:
        decision = given.decide(queue(given, low=30), FetchError("down"), spec=2)
        assert decision.desired_replicas == 30
        assert decision.reason == "Current number of replicas below Spec.MinReplicas"

    def test_policies_do_not_hold_a_repair(self, given) -> None:
        rules = ScalingRules((ScalingPolicy(PolicyType.PODS, 1, 60),), stabilization_window_s=300)
        hpa = queue(given, high=5, behavior=Behavior(rules, rules))
        assert given.decide(hpa, ONE, spec=40).desired_replicas == 5

    def test_active_and_limited_are_not_touched(self, given) -> None:
        decision = given.decide(queue(given, high=5), ONE, spec=40)
        assert [c.type for c in decision.conditions] == ["AbleToScale"]

    def test_a_bad_selector_does_not_stop_a_repair(self, given) -> None:
        assert given.decide(queue(given, high=5), ONE, spec=40, selector="").desired_replicas == 5

    def test_missing_min_counts_as_one(self, given) -> None:
        # 0 / 1 asks for 0 replicas
        state = HpaState(recommendations=(Recommendation(0, given.now_ms),))
        decision = given.decide(queue(given, low=None), NONE, spec=3, state=state)
        assert decision.desired_replicas == 1
        assert condition(decision, "ScalingLimited").reason == "TooFewReplicas"


class TestPause:
    @pytest.mark.parametrize(
        ("low", "settings"),
        [
            pytest.param(1, ControllerSettings(), id="MinOne"),
            pytest.param(None, ControllerSettings(), id="MinUnset"),
            pytest.param(0, ControllerSettings(), id="MinZeroWithoutTheGate"),
            pytest.param(0, ON, id="MinZeroThatTheControllerDidNotReach"),
            pytest.param(5, ON, id="MinFive"),
        ],
    )
    def test_zero_replicas_pause(self, given, low: int | None, settings) -> None:
        decision = given.decide(queue(given, low=low), ONE, spec=0, settings=settings)
        assert not decision.rescale
        active = condition(decision, "ScalingActive")
        assert (active.status, active.reason) == ("False", "ScalingDisabled")
        assert decision.metrics == ()
        assert decision.next_state.desired_replicas == 0

    def test_pause_without_the_gate_drops_the_zero_condition(self, given) -> None:
        decision = given.decide(queue(given, low=0), ONE, spec=0, state=OWN_ZERO)
        assert condition(decision, "ScaledToZero") is None

    def test_pause_needs_no_selector(self, given) -> None:
        decision = given.decide(queue(given), ONE, spec=0, selector="")
        assert condition(decision, "ScalingActive").reason == "ScalingDisabled"

    def test_own_zero_without_object_or_external_metrics_pauses(self, given) -> None:
        hpa = given.hpa(given.pods_metric(20), low=0)
        decision = given.decide(hpa, given.values(), spec=0, state=OWN_ZERO, settings=ON)
        assert condition(decision, "ScalingActive").reason == "ScalingDisabled"


class TestToZero:
    def test_going_to_zero_is_remembered(self, given) -> None:
        hpa = queue(given, low=0, behavior=AT_ONCE)
        decision = given.decide(hpa, NONE, spec=3, settings=ON)
        assert decision.desired_replicas == 0
        zero = condition(decision, "ScaledToZero")
        assert (zero.status, zero.reason) == ("True", "ScaledToZero")
        assert zero.message == "the HPA controller scaled the workload to zero"

    def test_any_other_rescale_denies_it(self, given) -> None:
        decision = given.decide(queue(given, low=0), ExternalValues((5000,)), spec=3, settings=ON)
        zero = condition(decision, "ScaledToZero")
        assert (zero.status, zero.reason) == ("False", "NotScaledToZero")
        assert zero.message == "the HPA controller did not scale the workload to zero"

    def test_without_a_rescale_it_is_not_touched(self, given) -> None:
        decision = given.decide(queue(given, low=0), ExternalValues((3000,)), spec=3, settings=ON)
        assert condition(decision, "ScaledToZero") is None

    def test_without_the_gate_it_is_dropped(self, given) -> None:
        decision = given.decide(queue(given), ExternalValues((5000,)), spec=3, state=OWN_ZERO)
        assert condition(decision, "ScaledToZero") is None

    def test_failed_write_does_not_remember_zero(self, given) -> None:
        decision = given.decide(queue(given, low=0, behavior=AT_ONCE), NONE, spec=3, settings=ON)
        outcome = failed(decision, "conflict", given.now_ms)
        assert "ScaledToZero" not in [c.type for c in outcome.state.conditions]


class TestFromZero:
    def test_load_wakes_it(self, given) -> None:
        decision = given.decide(
            queue(given, low=0), ExternalValues((2500,)), spec=0, state=OWN_ZERO, settings=ON
        )
        assert decision.desired_replicas == 3
        assert decision.reason == "external metric queue(nil) above target"
        assert condition(decision, "ScaledToZero").reason == "NotScaledToZero"

    def test_legacy_cap_is_four(self, given) -> None:
        decision = given.decide(
            queue(given, low=0), ExternalValues((99_000,)), spec=0, state=OWN_ZERO, settings=ON
        )
        assert decision.desired_replicas == 4

    def test_no_load_keeps_zero(self, given) -> None:
        decision = given.decide(queue(given, low=0), NONE, spec=0, state=OWN_ZERO, settings=ON)
        assert not decision.rescale
        assert condition(decision, "ScaledToZero").status == "True"
        assert condition(decision, "ScalingActive").reason == "ValidMetricFound"

    def test_failed_metrics_keep_zero(self, given) -> None:
        decision = given.decide(
            queue(given, low=0), FetchError("down"), spec=0, state=OWN_ZERO, settings=ON
        )
        assert not decision.rescale
        assert condition(decision, "ScalingActive").status == "False"

    def test_raised_min_lifts_without_load(self, given) -> None:
        decision = given.decide(
            queue(given, low=2, behavior=AT_ONCE), NONE, spec=0, state=OWN_ZERO, settings=ON
        )
        assert decision.desired_replicas == 2
        assert decision.reason == "Current number of replicas below Spec.MinReplicas"

    def test_raised_min_lifts_a_smaller_load_in_its_name(self, given) -> None:
        decision = given.decide(
            queue(given, low=3, behavior=AT_ONCE), ONE, spec=0, state=OWN_ZERO, settings=ON
        )
        assert decision.desired_replicas == 3
        assert decision.reason == "external metric queue(nil) above target"

    def test_raised_min_without_behavior_has_no_reason(self, given) -> None:
        # there the older path raises to min by itself, and no reason was found before it
        decision = given.decide(queue(given, low=2), NONE, spec=0, state=OWN_ZERO, settings=ON)
        assert decision.desired_replicas == 2
        assert decision.event is not None
        assert decision.event.message == "New size: 2; reason: "

    def test_raised_min_lifts_with_pods_metrics_only_if_they_work(self, given) -> None:
        hpa = given.hpa(given.pods_metric(20), low=2)
        decision = given.decide(hpa, given.values(), spec=0, state=OWN_ZERO, settings=ON)
        assert not decision.rescale
        assert condition(decision, "ScalingActive").reason == "FailedGetPodsMetric"

    def test_pods_metric_beside_an_external_one_counts_as_failed(self, given) -> None:
        hpa = given.hpa(given.pods_metric(20), given.external(given.average(1)), low=0)
        decision = given.decide(
            hpa, given.values(30), ExternalValues((2000,)), spec=0, state=OWN_ZERO, settings=ON
        )
        # one failed, the other asks for 2 >= 0
        assert decision.desired_replicas == 2
        assert decision.metrics[0].error == (
            "no pods returned by selector while calculating replica count"
        )


@pytest.mark.parametrize(
    ("spec", "state", "needed"),
    [
        pytest.param(0, HpaState(), False, id="Paused"),
        pytest.param(0, OWN_ZERO, True, id="OwnZero"),
        pytest.param(1, HpaState(), False, id="BelowMin"),
        pytest.param(3, HpaState(), True, id="WithinBounds"),
        pytest.param(9, HpaState(), False, id="AboveMax"),
    ],
)
def test_needs_metrics_agrees_with_what_decide_looks_at(
    given, spec: int, state, needed: bool
) -> None:
    hpa = queue(given, low=2, high=5)
    assert needs_metrics(hpa, Scale(spec, spec, "app=web"), state, ON) is needed
    assert bool(given.decide(hpa, ONE, spec=spec, state=state, settings=ON).metrics) is needed


class TestZeroBefore136:
    """Source: kubernetes v1.35 horizontal.go: only `minReplicas != 0` makes a count of 0 a pause."""

    OLD = ControllerSettings(scale_to_zero=True, minor=35)

    def test_any_zero_is_the_controllers_own(self, given) -> None:
        hpa = queue(given, low=0)
        decision = given.decide(hpa, ExternalValues((2500,)), spec=0, settings=self.OLD)
        assert decision.desired_replicas == 3

    def test_min_above_zero_pauses(self, given) -> None:
        decision = given.decide(queue(given, low=1), ONE, spec=0, settings=self.OLD)
        assert condition(decision, "ScalingActive").reason == "ScalingDisabled"

    def test_there_is_no_condition(self, given) -> None:
        hpa = queue(given, low=0, behavior=AT_ONCE)
        decision = given.decide(hpa, NONE, spec=3, settings=self.OLD)
        assert decision.desired_replicas == 0
        assert condition(decision, "ScaledToZero") is None

"""Rate limits: the doubling cap without `behavior`, and policies with it.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go (convertDesiredReplicasWithRules,
    convertDesiredReplicasWithBehaviorRate, calculateScaleUpLimitWithScalingRules,
    calculateScaleDownLimitWithBehaviors, storeScaleEvent).
"""

from dataclasses import dataclass

import pytest

from gpuscale.base.objects.hpa import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from gpuscale.hpa import ControllerSettings, HpaState, ScaleEvent
from gpuscale.hpa.kernel.memory import Cells, scale_down_limit, scale_up_limit
from gpuscale.hpa.replicas.numbers import limits_of, memory_of


def pods(value: int, period_s: int = 60) -> ScalingPolicy:
    return ScalingPolicy(PolicyType.PODS, value, period_s)


def percent(value: int, period_s: int = 60) -> ScalingPolicy:
    return ScalingPolicy(PolicyType.PERCENT, value, period_s)


def rules(*policies: ScalingPolicy, select: SelectPolicy = SelectPolicy.MAX) -> ScalingRules:
    return ScalingRules(policies, select, stabilization_window_s=0)


FREE = rules(percent(100_000))


def limited(decision):
    return next(c for c in decision.state_before_write.conditions if c.type == "ScalingLimited")


@pytest.mark.parametrize(
    ("current", "wanted", "high", "result", "reason"),
    [
        # the cap is twice the current count, and at least 4
        pytest.param(1, 50, 100, 4, "ScaleUpLimit", id="OneReachesFour"),
        pytest.param(2, 50, 100, 4, "ScaleUpLimit", id="TwoReachesFour"),
        pytest.param(3, 50, 100, 6, "ScaleUpLimit", id="ThreeDoubles"),
        pytest.param(30, 61, 100, 60, "ScaleUpLimit", id="Doubling"),
        pytest.param(30, 60, 100, 60, "DesiredWithinRange", id="ExactlyDouble"),
        pytest.param(3, 50, 5, 5, "TooManyReplicas", id="MaxBelowTheCap"),
        # the cap equals max: max is the reason
        pytest.param(3, 50, 6, 6, "TooManyReplicas", id="MaxEqualsTheCap"),
        pytest.param(3, 6, 6, 6, "DesiredWithinRange", id="DesiredIsMax"),
    ],
)
def test_without_behavior_the_count_may_double_or_reach_four(
    controller, current: int, wanted: int, high: int, result: int, reason: str
) -> None:
    decision = controller(current, high=high).decide(0, wanted)
    assert decision.desired_replicas == result
    assert limited(decision).reason == reason


def test_without_behavior_doubling_repeats_at_every_sync(controller) -> None:
    it = controller(1)
    assert [it.sync(15 * i, 500) for i in range(5)] == [4, 8, 16, 32, 64]
    assert it.state.scale_up_events == ()


@dataclass(frozen=True)
class Limit:
    name: str
    current: int
    rules: ScalingRules
    limit: int
    added: tuple = ()
    """(change, age in seconds) of past scale-ups."""
    deleted: tuple = ()


MIN, MAX, DISABLED = SelectPolicy.MIN, SelectPolicy.MAX, SelectPolicy.DISABLED

UP = [
    Limit("Pods", 10, rules(pods(4)), 14),
    Limit("Percent", 10, rules(percent(50)), 15),
    # ceil(3 * 1.1) = ceil(3.3000000000000003) = 4: rounded up, so that a small count can grow
    Limit("PercentRoundsUp", 3, rules(percent(10)), 4),
    # ceil(90 * 1.1) = ceil(99.00000000000001) = 100
    Limit("FloatArtefact", 90, rules(percent(10)), 100),
    Limit("PercentAbove100", 10, rules(percent(300)), 40),
    Limit("MaxOfTwo", 10, rules(pods(4), percent(50)), 15),
    Limit("MinOfTwo", 10, rules(pods(4), percent(50), select=MIN), 14),
    Limit("Disabled", 10, rules(pods(4), select=DISABLED), 10),
    # start of the period is 10 - 3 = 7; 7 + 4 = 11
    Limit("EarlierScaleUpUsesTheBudget", 10, rules(pods(4)), 11, added=((3, 30),)),
    # 10 - 6 + 4 = 8 < current
    Limit("BudgetUsedUpLiesBelowCurrent", 10, rules(pods(4)), 8, added=((6, 30),)),
    # a scale-down within the period gives budget back: 10 + 5 + 4 = 19
    Limit("EarlierScaleDownGivesBudgetBack", 10, rules(pods(4)), 19, deleted=((5, 30),)),
    # an event exactly as old as the period no longer counts
    Limit("EventAtThePeriodIsOut", 10, rules(pods(4)), 14, added=((3, 60),)),
    Limit("EventJustInsideThePeriod", 10, rules(pods(4)), 11, added=((3, 59.999),)),
    # percent of the start of the period: ceil((10 - 5) * 2) = 10
    Limit("PercentOfTheStart", 10, rules(percent(100)), 10, added=((5, 30),)),
    # each policy looks back on its own period: pods 10 + 4 = 14; percent ceil((10 - 3) * 1.5) = 11
    Limit("PeriodsAreTheirOwn", 10, rules(pods(4, 15), percent(50, 60)), 14, added=((3, 30),)),
    Limit(
        "PeriodsAreTheirOwnMin", 10, rules(pods(4, 15), percent(50, 60), select=MIN), 11, ((3, 30),)
    ),
    # defaults: max(10 + 4, 20) = 20; max(2 + 4, 4) = 6
    Limit("DefaultDoubles", 10, DEFAULT_SCALE_UP, 20),
    Limit("DefaultAddsFour", 2, DEFAULT_SCALE_UP, 6),
]

DOWN = [
    Limit("Pods", 10, rules(pods(4)), 6),
    Limit("PodsMayGoBelowZero", 10, rules(pods(40)), -30),
    Limit("Percent", 10, rules(percent(50)), 5),
    # trunc(10 * (1 - 0.9)) = trunc(0.9999999999999998) = 0
    Limit("FloatArtefact", 10, rules(percent(90)), 0),
    # trunc(5 * 0.9) = trunc(4.5) = 4
    Limit("PercentIsCutOff", 5, rules(percent(10)), 4),
    # trunc(10 * (1 - 1.5)) = -5
    Limit("PercentAbove100", 10, rules(percent(150)), -5),
    # trunc(7 * (1 - 1.5)) = trunc(-3.5) = -3: toward zero
    Limit("NegativeIsCutOffTowardZero", 7, rules(percent(150)), -3),
    # the largest change: min(6, 5)
    Limit("MaxOfTwo", 10, rules(pods(4), percent(50)), 5),
    Limit("MinOfTwo", 10, rules(pods(4), percent(50), select=MIN), 6),
    Limit("Disabled", 10, rules(pods(4), select=DISABLED), 10),
    # start of the period is 10 + 3 = 13; 13 - 4 = 9
    Limit("EarlierScaleDownUsesTheBudget", 10, rules(pods(4)), 9, deleted=((3, 30),)),
    # 10 + 6 - 4 = 12 > current
    Limit("BudgetUsedUpLiesAboveCurrent", 10, rules(pods(4)), 12, deleted=((6, 30),)),
    # 10 - 5 - 4 = 1
    Limit("EarlierScaleUpGivesBudgetBack", 10, rules(pods(4)), 1, added=((5, 30),)),
    Limit("EventAtThePeriodIsOut", 10, rules(pods(4)), 6, deleted=((3, 60),)),
    Limit("DefaultAllowsAll", 10, DEFAULT_SCALE_DOWN, 0),
]


def history(case: Limit) -> Cells:
    def events(entries):
        return tuple(ScaleEvent(change, round(-age * 1000)) for change, age in entries)

    state = HpaState(scale_up_events=events(case.added), scale_down_events=events(case.deleted))
    return memory_of(state)


@pytest.mark.parametrize("case", UP, ids=lambda case: case.name)
def test_scale_up_limit(given, case) -> None:
    limits = limits_of(given.hpa(behavior=Behavior(scale_up=case.rules)), ControllerSettings())
    assert scale_up_limit(history(case), limits, case.current, 0) == case.limit


@pytest.mark.parametrize("case", DOWN, ids=lambda case: case.name)
def test_scale_down_limit(given, case) -> None:
    limits = limits_of(given.hpa(behavior=Behavior(scale_down=case.rules)), ControllerSettings())
    assert scale_down_limit(history(case), limits, case.current, 0) == case.limit


@pytest.mark.parametrize(
    ("current", "wanted", "up", "high", "result", "reason"),
    [
        pytest.param(10, 50, rules(pods(4)), 100, 14, "ScaleUpLimit", id="RateHolds"),
        pytest.param(10, 14, rules(pods(4)), 100, 14, "DesiredWithinRange", id="ExactlyTheRate"),
        pytest.param(10, 50, rules(pods(4)), 12, 12, "TooManyReplicas", id="MaxHolds"),
        pytest.param(10, 50, rules(pods(4)), 14, 14, "TooManyReplicas", id="MaxEqualsTheRate"),
        pytest.param(
            10, 50, rules(pods(4), select=DISABLED), 100, 10, "ScaleUpLimit", id="Disabled"
        ),
    ],
)
def test_scale_up_with_behavior(
    controller, current: int, wanted: int, up, high: int, result: int, reason: str
) -> None:
    decision = controller(current, high=high, behavior=Behavior(scale_up=up)).decide(0, wanted)
    assert decision.desired_replicas == result
    assert limited(decision).reason == reason
    assert limited(decision).status == ("False" if reason == "DesiredWithinRange" else "True")


@pytest.mark.parametrize(
    ("current", "wanted", "down", "low", "result", "reason"),
    [
        pytest.param(10, 1, rules(pods(4)), 1, 6, "ScaleDownLimit", id="RateHolds"),
        pytest.param(10, 6, rules(pods(4)), 1, 6, "DesiredWithinRange", id="ExactlyTheRate"),
        pytest.param(10, 1, rules(pods(4)), 8, 8, "TooFewReplicas", id="MinHolds"),
        pytest.param(10, 1, rules(pods(4)), 6, 6, "TooFewReplicas", id="MinEqualsTheRate"),
        pytest.param(
            10, 1, rules(pods(4), select=DISABLED), 1, 10, "ScaleDownLimit", id="Disabled"
        ),
    ],
)
def test_scale_down_with_behavior(
    controller, current: int, wanted: int, down, low: int, result: int, reason: str
) -> None:
    decision = controller(current, low=low, behavior=Behavior(scale_down=down)).decide(0, wanted)
    assert decision.desired_replicas == result
    assert limited(decision).reason == reason


def test_scale_up_in_steps_of_a_policy(controller) -> None:
    # four pods a minute, a sync every 15 s: 10 -> 14 at 0 s, then nothing until the event is 60 s old
    it = controller(10, behavior=Behavior(scale_up=rules(pods(4, 60))))
    counts = [it.sync(15 * i, 100) for i in range(9)]
    assert counts == [14, 14, 14, 14, 18, 18, 18, 18, 22]


def test_used_up_budget_never_turns_the_direction(controller) -> None:
    # start of the period 10 - 30, limit 10 - 30 + 4 = -16: the count stays at 10
    it = controller(10, behavior=Behavior(scale_up=rules(pods(4, 60))))
    it.state = HpaState(scale_up_events=(ScaleEvent(30, 1_000_000_000),))
    assert it.sync(15, 100) == 10


def test_default_behavior_allows_the_larger_of_four_pods_and_a_doubling(controller) -> None:
    it = controller(1, behavior=Behavior())
    # 1 + 4 = 5; at 15 s the event is out: max(9, 10) = 10; then max(14, 20) = 20
    assert [it.sync(15 * i, 100) for i in range(3)] == [5, 10, 20]


class TestScaleEvents:
    def test_changes_of_each_direction_are_recorded_without_sign(self, controller) -> None:
        it = controller(4, behavior=Behavior(scale_up=FREE, scale_down=FREE))
        it.sync(0, 9)
        it.sync(15, 2)
        assert [e.replica_change for e in it.state.scale_up_events] == [5]
        assert [e.replica_change for e in it.state.scale_down_events] == [7]

    def test_repairs_of_the_bounds_are_recorded(self, controller) -> None:
        it = controller(20, high=8, behavior=Behavior())
        it.sync(0, 8)
        assert [e.replica_change for e in it.state.scale_down_events] == [12]

    def test_without_behavior_nothing_is_recorded(self, controller) -> None:
        it = controller(4)
        it.sync(0, 8)
        assert it.state.scale_up_events == ()

    def test_last_outdated_place_is_reused(self, controller) -> None:
        it = controller(1, behavior=Behavior(scale_up=rules(pods(1, 15))))
        it.sync(0, 100)
        it.sync(15, 100)
        it.sync(30, 100)
        # at 30 s the first event is 30 s old, longer than the period of 15 s: its place is reused;
        # the second is exactly 15 s old and not outdated
        assert [e.time_ms - 1_000_000_000 for e in it.state.scale_up_events] == [30_000, 15_000]

    def test_of_several_outdated_places_the_last_is_reused(self, controller, given) -> None:
        it = controller(1, behavior=Behavior(scale_up=rules(pods(5, 15))))
        times_ms = [given.now_ms - age_s * 1000 for age_s in (50, 40, 5)]
        it.state = HpaState(scale_up_events=tuple(ScaleEvent(1, t) for t in times_ms))
        it.sync(0, 100)
        stored = [e.time_ms for e in it.state.scale_up_events]
        assert stored == [times_ms[0], given.now_ms, times_ms[2]]

    def test_longest_period_decides_what_is_outdated(self, controller) -> None:
        it = controller(1, behavior=Behavior(scale_up=rules(pods(1, 15), pods(1, 60))))
        it.sync(0, 100)
        it.sync(30, 100)
        assert len(it.state.scale_up_events) == 2

    def test_outdated_mark_stays_when_a_longer_period_comes(self, controller, given) -> None:
        it = controller(1, behavior=Behavior(scale_up=rules(pods(1, 15))))
        old = ScaleEvent(1, given.now_ms - 20_000, outdated=True)
        it.state = HpaState(scale_up_events=(old,))
        it.hpa = given.hpa(*it.hpa.metrics, behavior=Behavior(scale_up=rules(pods(5, 60))))
        it.sync(0, 100)
        assert len(it.state.scale_up_events) == 1

"""Stabilization windows, with `behavior` and without.

The controllers here have one metric that asks for exactly the count it is told, with tolerance 0.
A fresh one starts with its own count in the history.

Source: kubernetes pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendation,
    stabilizeRecommendationWithBehaviors).
"""

import pytest

from gpuscale.base.objects.hpa import Behavior, PolicyType, ScalingPolicy, ScalingRules
from gpuscale.hpa import Recommendation

UNLIMITED = (ScalingPolicy(PolicyType.PERCENT, 100_000, 15),)


def behavior(up_s: int | None = 0, down_s: int | None = None) -> Behavior:
    return Behavior(
        ScalingRules(UNLIMITED, stabilization_window_s=up_s),
        ScalingRules(UNLIMITED, stabilization_window_s=down_s),
    )


def able_to_scale(decision):
    return next(c.reason for c in decision.state_before_write.conditions if c.type == "AbleToScale")


class TestWithoutBehavior:
    def test_scale_down_of_a_fresh_controller_waits_the_whole_window(self, controller) -> None:
        it = controller(10)
        assert it.sync(0, 3) == 10
        assert it.sync(285, 3) == 10
        # at 300 s the seed is exactly as old as the window and still counts
        assert it.sync(300, 3) == 10
        assert it.sync(300.001, 3) == 3

    def test_scale_down_goes_to_the_highest_of_the_window(self, controller) -> None:
        it = controller(10)
        it.sync(0, 5)
        it.sync(100, 7)
        it.sync(200, 2)
        # the seed of 10 and the 5 are out, 7 and 2 are in
        assert it.sync(350, 2) == 7

    def test_scale_up_is_never_held(self, controller) -> None:
        it = controller(4)
        it.sync(0, 1)
        assert it.sync(15, 8) == 8

    def test_older_higher_recommendation_lifts_the_count(self, controller) -> None:
        # the metric asked for 20, the cap allowed 8; then it asks for 5, and the 20 still counts:
        # min(20, 2 * 8) = 16
        it = controller(4)
        assert it.sync(0, 20) == 8
        assert it.sync(15, 5) == 16

    def test_lift_after_a_manual_scale_down(self, controller) -> None:
        it = controller(10)
        it.sync(0, 10)
        it.replicas = 6
        assert it.sync(15, 6) == 10

    def test_condition_says_when_it_was_held(self, controller) -> None:
        it = controller(10)
        assert able_to_scale(it.decide(0, 3)) == "ScaleDownStabilized"
        assert able_to_scale(it.decide(15, 12)) == "ReadyForNewScale"

    def test_raw_recommendations_are_recorded_not_clamped_ones(self, controller) -> None:
        it = controller(4, high=6)
        it.sync(0, 50)
        assert [r.replicas for r in it.state.recommendations] == [4, 50]

    def test_last_too_old_place_is_reused(self, controller, given) -> None:
        it = controller(10)
        it.sync(0, 10)
        it.sync(100, 9)
        # at 350 s the seed and the first record are too old; the later of them gives its place
        it.sync(350, 8)
        assert [r.replicas for r in it.state.recommendations] == [10, 8, 9]

    def test_record_exactly_as_old_as_the_window_keeps_its_place(self, controller) -> None:
        it = controller(10)
        it.sync(0, 9)
        it.sync(300, 8)
        assert [r.replicas for r in it.state.recommendations] == [10, 9, 8]


class TestWithBehavior:
    def test_scale_down_window_is_half_open(self, controller) -> None:
        it = controller(10, behavior=behavior(down_s=60))
        assert it.sync(0, 3) == 10
        assert it.sync(59.999, 3) == 10
        # at 60 s the seed is exactly as old as the window and no longer counts
        assert it.sync(60, 3) == 3

    def test_unset_scale_down_window_takes_the_controllers(self, controller) -> None:
        it = controller(10, behavior=behavior(down_s=None))
        assert it.sync(0, 3) == 10
        assert it.sync(299.999, 3) == 10
        assert it.sync(300, 3) == 3

    def test_scale_down_window_of_zero_acts_at_once(self, controller) -> None:
        assert controller(10, behavior=behavior(down_s=0)).sync(0, 3) == 3

    def test_scale_up_window_waits_for_the_seed_to_leave(self, controller) -> None:
        it = controller(4, behavior=behavior(up_s=60))
        assert it.sync(0, 9) == 4
        assert it.sync(59.999, 9) == 4
        assert it.sync(60, 9) == 9

    def test_scale_up_takes_the_lowest_of_the_window(self, controller) -> None:
        it = controller(4, behavior=behavior(up_s=60))
        it.sync(0, 9)
        it.sync(30, 6)
        it.sync(45, 12)
        # at 60 s the seed and the first record are out; 6, 12 and the new 15 are in
        assert it.sync(60, 15) == 6

    def test_scale_down_takes_the_highest_of_the_window(self, controller) -> None:
        it = controller(10, behavior=behavior(down_s=60))
        it.sync(0, 5)
        it.sync(30, 7)
        it.sync(45, 4)
        assert it.sync(60, 2) == 7

    def test_behavior_path_never_lifts(self, controller) -> None:
        # unlike without behavior: 20 was asked for within the window, and the count falls no further,
        # but it does not rise either
        it = controller(4, high=8, behavior=behavior(down_s=300))
        assert it.sync(0, 20) == 8
        assert it.sync(15, 5) == 8

    def test_both_windows_keep_the_count_inside_a_band(self, controller) -> None:
        # up = min(5, 6) = 5, down = max(5, 9) = 9 and current 6 lies between
        it = controller(6, behavior=behavior(up_s=60, down_s=60))
        it.sync(0, 9)
        assert it.sync(15, 5) == 6

    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            pytest.param(9, "ScaleUpStabilized", id="Up"),
            pytest.param(2, "ScaleDownStabilized", id="Down"),
            pytest.param(4, "ReadyForNewScale", id="None"),
        ],
    )
    def test_condition_names_the_direction(self, controller, wanted: int, reason: str) -> None:
        it = controller(4, behavior=behavior(up_s=60, down_s=60))
        assert able_to_scale(it.decide(0, wanted)) == reason

    def test_asking_for_the_current_count_is_never_held(self, controller) -> None:
        # 9 was asked for within the down window; the count fell to 6 by hand, and 6 is asked for
        it = controller(9, behavior=behavior(up_s=0, down_s=60))
        it.sync(0, 9)
        it.replicas = 6
        assert able_to_scale(it.decide(15, 6)) == "ReadyForNewScale"

    def test_only_a_record_older_than_both_windows_gives_its_place(self, controller, given) -> None:
        it = controller(4, behavior=behavior(up_s=10, down_s=60))
        it.sync(0, 4)
        it.sync(30, 5)
        # at 60 s two records are exactly as old as the longer window: not older
        it.sync(60, 6)
        assert [r.replicas for r in it.state.recommendations] == [4, 4, 5, 6]
        it.sync(61, 7)
        assert [r.replicas for r in it.state.recommendations] == [4, 7, 5, 6]

    def test_history_is_seeded_once(self, controller, given) -> None:
        it = controller(4, behavior=behavior())
        it.sync(0, 4)
        it.sync(15, 4)
        assert it.state.recommendations == (
            Recommendation(4, given.now_ms),
            Recommendation(4, given.now_ms),
            Recommendation(4, given.now_ms + 15_000),
        )

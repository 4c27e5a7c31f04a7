from gpuscale.series.promapi.shapes import SAME_TIME, TimeAxis
from gpuscale.series.values import Vector, VectorSample
from gpuscale.testing.prometheus import query_data


def test_without_speed_both_times_are_the_same() -> None:
    assert SAME_TIME.to_store_ms(123) == SAME_TIME.to_caller_ms(123) == 123


def test_a_fast_store_is_further_from_the_origin() -> None:
    axis = TimeAxis(origin_ms=1_000, speed=10.0)
    assert axis.to_store_ms(3_000) == 21_000  # 1 s + 2 s x 10
    assert axis.to_caller_ms(21_000) == 3_000
    assert axis.step_to_store_ms(15_000) == 150_000


def test_answers_are_in_the_callers_time() -> None:
    value = Vector((VectorSample({}, 7.0, 21_000),))
    data = query_data(value, 21_000, TimeAxis(1_000, 10.0))
    assert data["result"] == [{"metric": {}, "value": [3, "7"]}]


def test_each_stretch_of_one_speed_has_its_own_slope() -> None:
    axis = TimeAxis(origin_ms=1_000, speed=10.0)
    axis.turn(3_000, 21_000, 10.0, is_paused=True)
    assert axis.to_store_ms(9_000) == 21_000  # it stands still, whatever the caller's time
    axis.turn(13_000, 21_000, 2.0, is_paused=False)
    # before, in, and after the pause; then 1 s x 2
    asked = (2_000, 3_000, 13_000, 14_000)
    assert [axis.to_store_ms(each) for each in asked] == [11_000, 21_000, 21_000, 23_000]
    # what was measured as it stopped is as old as that
    assert [axis.to_caller_ms(each) for each in (11_000, 21_000, 23_000)] == [2_000, 3_000, 14_000]
    assert axis.step_to_store_ms(15_000) == 30_000


def test_time_before_the_start_has_the_first_speed() -> None:
    axis = TimeAxis(1_000, 10.0)
    axis.turn(2_000, 11_000, 5.0, is_paused=False)
    assert axis.to_store_ms(0) == -9_000
    assert axis.to_caller_ms(-9_000) == 0


def test_another_speed_while_it_stands_still_moves_nothing() -> None:
    axis = TimeAxis(0, 10.0)
    axis.turn(1_000, 10_000, 10.0, is_paused=True)
    axis.turn(2_000, 10_000, 50.0, is_paused=True)
    assert axis.to_store_ms(5_000) == 10_000
    assert axis.to_caller_ms(10_000) == 1_000

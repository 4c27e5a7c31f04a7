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

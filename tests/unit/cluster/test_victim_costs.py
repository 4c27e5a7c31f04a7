"""The costs that let a scale-in take the pods with the least work."""

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.hpa.cluster.victims.costs import cost_of_work, planned_costs

WORK = st.floats(min_value=0, max_value=1e300)


def test_a_doubling_of_the_work_is_eight() -> None:
    # Eight times log2 of the work and one, from -1000 on.
    assert [cost_of_work(work) for work in (0, 1, 3, 7, 15, 1023)] == [
        -1000,
        -992,
        -984,
        -976,
        -968,
        -920,
    ]
    assert log2(1 + 1023) * 8 == 80


def test_each_small_number_of_requests_has_a_cost_of_its_own() -> None:
    costs = [cost_of_work(requests) for requests in range(12)]
    assert costs == sorted(set(costs))


@given(WORK, WORK)
def test_more_work_never_costs_less_and_no_cost_at_all_is_dearest(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert cost_of_work(small) <= cost_of_work(large) < 0


def test_the_least_busy_get_a_cost_and_as_many_as_may_leave() -> None:
    work = {"busy": 15.0, "idle": 0.0, "some": 1.0, "much": 31.0}
    assert planned_costs(work, {}, 2) == {"idle": -1000, "some": -992}
    assert planned_costs(work, {}, 0) == {}


def test_a_pod_whose_work_is_unknown_has_no_cost_though_it_had_one() -> None:
    assert planned_costs({"known": 3.0}, {"silent": -1000}, 2) == {"known": -984}


def test_a_cost_that_is_nearly_right_stays_and_one_that_is_wrong_goes() -> None:
    # 8 * log2(17 / 16) = 0.7, 8 * log2(20 / 16) = 2.6: one more is alike, four more are not.
    assert planned_costs({"a": 16.0}, {"a": -967}, 1) == {"a": -967}
    assert planned_costs({"a": 16.0}, {"a": -967}, 0) == {"a": -967}
    assert planned_costs({"a": 19.0}, {"a": -968}, 1) == {"a": -965}
    assert planned_costs({"a": 19.0}, {"a": -968}, 0) == {}


def test_idle_and_a_little_work_are_never_alike() -> None:
    # 8 * log2(1.1) = 1.1
    assert planned_costs({"a": 0.1}, {"a": -1000}, 1) == {"a": -999}
    assert planned_costs({"a": 0.0}, {"a": -999}, 1) == {"a": -1000}


def test_among_pods_alike_those_stay_marked_that_are() -> None:
    idle = dict.fromkeys("abcd", 0.0)
    marked = {"c": -1000, "d": -1000}
    assert planned_costs(idle, marked, 2) == planned_costs(idle, marked, 1) == marked
    assert planned_costs(idle, marked, 3) == {"a": -1000, **marked}


@given(st.dictionaries(st.text(max_size=3), WORK), st.integers(0, 9))
def test_a_plan_that_is_followed_is_the_next_plan(work: dict[str, float], leaving: int) -> None:
    plan = planned_costs(work, {}, leaving)
    assert planned_costs(work, plan, leaving) == plan
    assert len(plan) == min(leaving, len(work))

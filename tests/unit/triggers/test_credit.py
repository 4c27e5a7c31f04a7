# mypy: disable-error-code="import-not-found"
"""In-flight credit: the arithmetic case by case, and the loop with Kubernetes' HPA algorithm around it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.hpa.types import PodInfo, ReadyCondition
from gpuscale.triggers.credit import WINDOW_S, Flow, credited, kept_flows
from gpuscale.triggers.machine import TriggerState, evaluate
from gpuscale.triggers.observation import FlowSeen, Missing, Observation, PodsSeen, TotalLoad
from gpuscale.triggers.trigger import Credit, PodLoad, Trigger, WorkloadRef

ROOT = Path(__file__).parents[3]
BUSY = [
    # Two pods run 20 requests each and finish 2 a second: each request takes 20 s. 5 a second arrive.
    Flow(at_s=float(t), load=40.0 + 3.0 * t, waiting=3.0 * t, finished_per_s=2.0, ready=2)
    for t in range(5, 61, 5)
]
"""A minute, so that nothing is known of whether arrivals rise."""


def pods_wanted(flows=BUSY, desired=2, starting=(), expected_s=120.0, drain_s=120.0):
    """Return what an HPA with an AverageValue of 16 asks for."""
    return math.ceil(credited(16.0, desired, flows, starting, expected_s, drain_s).load / 16 - 1e-9)


def test_the_demand_counts_and_not_what_piled_up() -> None:
    # 5 a second for 20 s are 100 in flight: 7 pods of 16. The load of 220 would be 14 pods. Nothing of
    # the 180 that wait is explained yet: 5 + 180 / 120 = 6.5 a second, 1 a pod, are 7 pods too.
    assert BUSY[-1].load == 220
    assert pods_wanted() == 7


def test_a_backlog_that_no_start_up_explains_takes_more_pods() -> None:
    # 5 + 180 / 30 = 11 a second, 1 a pod.
    assert pods_wanted(drain_s=30.0) == 11


def test_a_starting_pod_explains_what_it_would_have_finished() -> None:
    # Five pods that began 36 s ago would have finished 180 by now, all that waits: 100 / 16 are 7 pods.
    assert pods_wanted(desired=7, starting=(36.0,) * 5, drain_s=30.0) == 7
    # Of 18 s they explain half: 5 + 90 / 30 = 8 a second.
    assert pods_wanted(desired=7, starting=(18.0,) * 5, drain_s=30.0) == 8


def test_a_pod_that_starts_for_too_long_loses_its_credit_and_is_replaced() -> None:
    # Stuck from 1.5 * 120 s on: the demand of 7 pods, and the five that serve nothing.
    assert pods_wanted(desired=7, starting=(179.0,) * 5) == 7
    assert pods_wanted(desired=7, starting=(180.0,) * 5) == 12


def test_one_reading_of_the_rate_that_is_wrong_orders_nothing() -> None:
    # Scrapes that came late once made 6 a second of 2.
    assert pods_wanted([*BUSY[:-1], BUSY[-1]._replace(finished_per_s=6.0)]) == 7


def test_credit_takes_nothing_from_pods_that_are_asked_for() -> None:
    assert pods_wanted(desired=9) == 9


def test_without_a_queue_the_load_counts_as_it_is() -> None:
    flows = [each._replace(load=40.0, waiting=0.0) for each in BUSY]
    assert credited(16.0, 2, flows, (), 120.0).load == 40.0
    assert credited(16.0, 20, BUSY, (), 120.0).load == 220.0  # no more is asked for than there is


def test_where_nothing_is_finished_nothing_is_credited() -> None:
    flows = [Flow(0.0, 220.0, 220.0, 0.0, 2)]
    found = credited(16.0, 2, flows, (10.0,), 120.0)
    assert found.load == 220.0
    assert "no pod is credited" in found.words


amounts = st.floats(0, 1e9, allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(amounts, amounts, amounts, st.integers(0, 50)), min_size=1, max_size=20),
    st.lists(st.floats(0, 1e5), max_size=5),
    st.integers(0, 100),
)
def test_the_value_is_never_above_the_load_nor_takes_from_what_is_there(seen, starting, desired):
    flows: tuple[Flow, ...] = ()
    for i, (running, waiting, finished, ready) in enumerate(seen):
        flows = kept_flows(flows, Flow(i * 7.0, running + waiting, waiting, finished, ready))
    load = flows[-1].load
    found = credited(16.0, desired, flows, starting, 120.0).load
    assert min(load, 16.0 * desired) <= found <= load
    assert math.isfinite(found)


def test_readings_are_bounded_and_a_clock_that_jumps_leaves_the_newest() -> None:
    flows: tuple[Flow, ...] = ()
    for t in range(10_000):
        flows = kept_flows(flows, Flow(t / 10, 1.0, 0.0, 1.0, 1))
    assert len(flows) == 300
    back = kept_flows(flows, Flow(0.0, 1.0, 0.0, 1.0, 1))
    assert [each.at_s for each in back] == [0.0]
    assert len(kept_flows(flows, Flow(999.9 + 300 + WINDOW_S, 1.0, 0.0, 1.0, 1))) == 1


TRIGGER = Trigger(
    "ml",
    "in-flight",
    WorkloadRef("Deployment", "vllm"),
    PodLoad(query="in_flight"),
    16.0,
    credit=Credit("waiting", "finished"),
)
PODS = PodsSeen(2, (PodInfo("a"), PodInfo("b")), (), 1800.0, 120.0)


def seen(flow, load=220.0, pods=PODS, now_s=60.0):
    return Observation(60_000, now_s, TotalLoad(load, 60_000), pods, flow=flow)


def test_a_trigger_serves_the_credited_load_and_says_how() -> None:
    state = TriggerState(flows=tuple(BUSY[:-1]))
    outcome = evaluate(TRIGGER, seen(FlowSeen(180.0, 2.0)), state)
    assert outcome.answer.value is not None
    assert math.ceil(outcome.answer.value / 16) == 7
    (line,) = [line for line in outcome.story if line.startswith("credit: ")]
    assert "5 arrive a second, and a full pod finishes 1" in line
    assert "220 counts as 104" in line  # 6.5 pods of 16


def test_pods_that_are_not_ready_take_no_requests() -> None:
    pods = replace(PODS, pods=(*PODS.pods, PodInfo("c", ready=ReadyCondition.FALSE)))
    outcome = evaluate(TRIGGER, seen(FlowSeen(180.0, 2.0), pods=pods), TriggerState())
    assert outcome.state.flows[-1].ready == 2


def test_what_is_not_known_is_not_zero() -> None:
    away = Missing("waiting: connection refused")
    first = evaluate(TRIGGER, seen(away), TriggerState())
    assert first.answer.value is None
    assert "connection refused" in first.answer.reason
    # A load that asks for no more pods needs nothing else.
    assert evaluate(TRIGGER, seen(away, load=20.0), TriggerState()).answer.value == 20.0
    # And a decision from before is held.
    known = evaluate(TRIGGER, seen(FlowSeen(180.0, 2.0)), TriggerState(flows=tuple(BUSY[:-1])))
    later = evaluate(TRIGGER, seen(away, load=400.0, now_s=65.0), known.state)
    assert (later.answer.basis, later.answer.value) == ("held", known.answer.value)


def test_arrivals_that_rise_beyond_chance_are_taken_to_go_on() -> None:
    # Two pods as before; 2 a second come for a minute, then 5. The rise of 3 within a minute is more than
    # two deviations, 2 * sqrt(7 / 60) = 0.68, and goes on for a quarter of 120 s. Arrivals of the minute
    # were 4.5, 4.75 and 5 last: 4.75 + 3 / 60 * 30 = 6.25 a second, 125 in flight, 7.8 pods.
    quiet = [Flow(float(t), 40.0, 0.0, 2.0, 2) for t in range(-60, 1, 5)]
    assert pods_wanted([*quiet, *BUSY]) == 8
    # With a start-up of ten minutes it goes on for one: 4.75 + 3 / 60 * 60 = 7.75 a second, 9.7 pods.
    assert pods_wanted([*quiet, *BUSY], expected_s=600.0) == 10
    # A rate that is known for less than two minutes may only seem to rise.
    assert pods_wanted([*quiet[1:], *BUSY]) == 7
    # 2.4 a second after 2 may be chance: 2.4 * 20 = 48 in flight are 3 pods.
    slow = [e._replace(load=40.0 + 0.4 * e.at_s, waiting=0.4 * e.at_s) for e in BUSY]
    assert pods_wanted([*quiet, *slow]) == 3


@pytest.mark.parametrize(("shape", "at_most"), [("ramp of 2 min", 11), ("step", 15)])
def test_the_loop_overshoots_without_credit_and_hardly_with_it(monkeypatch, shape, at_most) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_credit
    import closed_loop

    needed = bench_credit.NEEDED
    assert needed == 10  # 10 a second for 22.07 s are 220.7 in flight, 24 a pod
    hpa = closed_loop.autoscaler(closed_loop.TARGET, 3, 30)
    rate = bench_credit.SHAPES[shape]
    plain = closed_loop.run(rate, closed_loop.in_flight, hpa, 3, 1000)
    credit = closed_loop.run(rate, closed_loop.with_credit(), hpa, 3, 1000)
    assert plain.most_pods == 30  # the limit
    assert credit.most_pods <= at_most
    assert credit.replicas[-1] >= needed - 1  # nor does it stay short

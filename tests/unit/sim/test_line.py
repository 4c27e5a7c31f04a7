"""Single requests among a fluid load, against queueing theory and arithmetic."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.loads import StepsLoad
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.line import WaitingLine
from gpuscale.lab.sim.load.service import SimulatedService

S_MS = 50
"""What one request takes: 0.05 s of a GPU."""


def service(rate=0.0, limit=1e9, other=0.0, concurrency=100):
    return SimulatedService(
        ServiceModel(0.05, other, concurrency, limit), StepsLoad(((0.0, rate),)), 0
    )


def times(arrivals, item=None, pods=lambda _: 1, until=10_000):
    """Return what each request took, ms; None where it was turned away."""
    line = WaitingLine(item or service(), 0)
    took: list[float | None] = []
    for number, arrival in enumerate(arrivals):
        took.append(None)

        def done(due_ms, number=number, arrival=arrival) -> None:
            took[number] = due_ms - arrival

        line.join(arrival, pods(arrival), done)
    for now in range(arrivals[-1], until):
        line.look(now + 1, pods(now))
    assert not line
    return took


def test_a_request_alone_takes_its_own_time() -> None:
    assert times([100]) == [pytest.approx(S_MS)]
    assert times([100], service(other=0.2)) == [pytest.approx(S_MS + 200)]


def test_a_crowd_on_one_pod_is_served_one_after_the_other() -> None:
    assert times([100] * 4) == pytest.approx([50, 100, 150, 200])


def test_two_pods_serve_twice_as_fast() -> None:
    assert times([100] * 6, pods=lambda _: 2) == pytest.approx([50, 50, 75, 100, 125, 150])


def test_a_pod_that_becomes_ready_helps_who_waits_already() -> None:
    # Ten at once; one pod has served four when the second comes at 300, and both serve 40 a second.
    took = times([100] * 10, pods=lambda now: 1 if now < 300 else 2)
    assert took[:4] == pytest.approx([50, 100, 150, 200])
    assert took[4:] == pytest.approx([225, 250, 275, 300, 325, 350], abs=1)


def test_requests_wait_behind_the_load_that_is_there() -> None:
    item = service()
    item.waiting = 10.0  # half a second's work
    assert times([0], item) == [pytest.approx(550)]


def test_load_that_comes_later_stays_behind() -> None:
    # 15 a second come all the time, of 20 that one pod serves; nothing waits, so none wait for them.
    assert times([1000] * 3, service(rate=15.0)) == pytest.approx([50, 100, 150])


@pytest.mark.parametrize("use", [0.3, 0.7, 0.9])
def test_poisson_arrivals_on_one_pod_wait_as_in_m_d_1(use) -> None:
    draw = random.Random(1)
    waits: list[float] = []
    line, now = WaitingLine(service(), 0), 0.0
    for _ in range(200_000):
        now += draw.expovariate(use / S_MS)
        arrival = round(now)

        def done(due_ms: float, arrival: int = arrival) -> None:
            waits.append(due_ms - arrival - S_MS)

        line.join(arrival, 1, done)
    line.look(round(now) + 1_000_000, 1)
    assert len(waits) == 200_000
    # Pollaczek and Khinchine: use x S / (2 (1 - use))
    assert sum(waits) / len(waits) == pytest.approx(use * S_MS / (2 * (1 - use)), rel=0.06)


def test_without_a_ready_pod_a_request_is_turned_away_and_counted() -> None:
    item = service()
    assert not WaitingLine(item, 0).join(100, 0, lambda _: None)
    assert (item.arrived, item.rejected, item.single, item.waiting) == (1, 1, 1, 0)


def test_a_full_queue_turns_away() -> None:
    item = service(limit=2)
    line = WaitingLine(item, 0)
    assert [line.join(0, 1, lambda _: None) for _ in range(4)] == [True, True, False, False]
    assert item.rejected == 2


def test_real_requests_keep_gpus_busy() -> None:
    item = service()
    line = WaitingLine(item, 0)
    for second in range(10):
        for tenth in range(0, 1000, 100):  # 10 a second x 0.05 s
            line.join(second * 1000 + tenth, 1, lambda _: None)
        item.advance((second + 1) * 1000, 1)
    assert item.busy_ratio(0, 10_000) == pytest.approx(0.5)
    assert item.rate == pytest.approx(10)


def test_looking_more_often_changes_nothing() -> None:
    def busy(step_ms):
        item = service(rate=4.6)
        for now in range(step_ms, 60_001, step_ms):
            item.served_at(now, 1)
            if now % 1000 == 0:
                item.advance(now, 1)
        return item.busy_ratio(0, 60_000), item.rate, item.arrived

    assert busy(10) == pytest.approx(busy(1000))


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(0, 5)),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([0.0, 10.0, 90.0]),
    st.sampled_from([3.0, 1e9]),
)
def test_requests_are_conserved_and_keep_their_order(steps, rate, limit) -> None:
    item = service(rate=rate, limit=limit)
    line, now, order = WaitingLine(item, 0), 0, []
    joined = 0
    for pause, pods, count in steps:
        now += pause
        line.look(now, pods)
        for _ in range(count):

            def done(due_ms: float, number: int = joined) -> None:
                order.append((number, due_ms))

            joined += line.join(now, pods, done)
        item.advance(now, pods)
    assert item.arrived == pytest.approx(item.served + item.waiting + item.rejected)
    line.look(now + 10_000_000, 3)
    assert [number for number, _ in order] == list(range(joined))
    dues = [due for _, due in order]
    assert dues == sorted(dues)

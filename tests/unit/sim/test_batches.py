# mypy: disable-error-code="operator"
"""Pods that work in batches, against queueing theory and arithmetic.

With a batch of one they are plain servers. With exponential sizes a pod is a birth-death process: with n in
its batch a request ends at the rate n / T(n), so balance equations give how many are there in the mean.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.loads import StepsLoad
from gpuscale.lab.queueing.batching import BatchCurve, Batching
from gpuscale.lab.queueing.times import Constant, Exponential
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.service import SimulatedService
from queues import assert_near, batch_means, m_d_c_queue, m_m_c_queue, one_by_one

CURVE = BatchCurve([(1, 1.0), (4, 1.6), (8, 2.0), (16, 4.0)])
"""1, 2.5, 4 and again 4 requests per second."""


def model_of(curve, sizes=None, *, prompt=0.0, kv_tokens=None, limit=1e9, timeout_s=math.inf):
    batching = Batching(curve, prompt, sizes or Constant(1.0), kv_tokens)
    full = curve.seconds(curve.largest)
    return ServiceModel(
        full / curve.largest,
        0.0,
        curve.largest,
        limit,
        servers=curve.largest,
        times=Constant(full),
        timeout_s=timeout_s,
        batching=batching,
    )


def birth_death_mean(rate, curve, most=2_000):
    """Return the mean number of requests with one pod, those in the line included."""
    weight, total, mean = 1.0, 1.0, 0.0
    for count in range(1, most):
        size = min(count, curve.largest)
        weight *= rate * curve.seconds(size) / size
        total += weight
        mean += count * weight
    return mean / total


def test_a_curve_has_straight_lines_and_its_best_batch():
    assert [CURVE.seconds(size) for size in (1, 2, 4, 6, 8, 12)] == pytest.approx(
        [1.0, 1.2, 1.6, 1.8, 2.0, 3.0]
    )
    assert (CURVE.largest, CURVE.best, CURVE.best_rate) == (16, 8, 4.0)
    # Below one request at a time, between two batches (3 in 1.4 s and 4 in 1.6 s), and beyond all.
    middle = (3 / 1.4 + 4 / 1.6) / 2
    found = [CURVE.size_at(rate) for rate in (0.0, 0.5, 2.5, middle, 4.0, 9.0)]
    assert found == pytest.approx([0.0, 0.5, 4.0, 3.5, 8.0, 8.0])


@pytest.mark.parametrize(("pods", "service_s", "busy"), [(1, 0.1, 0.9), (8, 1.0, 0.9)])
@pytest.mark.parametrize(
    ("sizes", "theory"), [(Exponential(1.0), m_m_c_queue), (Constant(1.0), m_d_c_queue)]
)
def test_a_batch_of_one_is_a_plain_server(pods, service_s, busy, sizes, theory):
    rate = busy * pods / service_s
    model = model_of(BatchCurve([(1, service_s)]), sizes)
    means, _ = batch_means(model, rate, pods, round(200_000 / rate))
    assert_near(means, theory(pods, rate * service_s))


@pytest.mark.parametrize("busy", [0.5, 0.9])
def test_a_pod_with_exponential_sizes_is_a_birth_death_process(busy):
    curve = CURVE.cut(8)
    rate = busy * curve.best_rate
    service = one_by_one(model_of(curve, Exponential(200.0)), StepsLoad(((0.0, rate),)))
    counts = []
    for second in range(1, 40_001):
        service.advance(second * 1000, 1)
        counts.append(service.in_service + service.waiting)
    means = [sum(counts[first : first + 1_000]) / 1_000 for first in range(0, 40_000, 1_000)]
    assert_near(means, birth_death_mean(rate, curve))
    # Little's law, over a run that began empty: mean count is rate x mean time.
    mean_s = service.seen.mean_s
    assert sum(counts) / len(counts) == pytest.approx(rate * mean_s, rel=0.02)
    assert service.answered_s == pytest.approx(mean_s * service.served)


def test_saturated_pods_do_what_the_curve_has_at_the_most():
    curve = CURVE.cut(8)
    model = model_of(curve)
    assert model.largest_rate == curve.best_rate == 4.0
    service = one_by_one(model, StepsLoad(((0.0, 100.0),)), is_random=False)
    for second in range(1, 1_001):
        service.advance(second * 1000, 3)
    assert service.in_service == 3 * 8
    # The first batch of each pod fills while it runs, so the rate of 12 holds from then on.
    assert service.served == pytest.approx(3 * 4.0 * 1_000, rel=0.005)
    assert service.busy_ratio(500_000, 1_000_000) == pytest.approx(1.0)


def test_who_comes_slows_down_all_others_in_the_batch():
    # Alone for 0.5 s: half is done. With a second one each needs 1.2 s in all: 0.6 s for the other half, in
    # which the second does a half too. Alone again it takes 0.5 s for the rest: done at 1.1 and at 1.6 s.
    curve = BatchCurve([(1, 1.0), (2, 1.2)])
    service = one_by_one(model_of(curve), StepsLoad(((0.0, 0.0),)))
    service._arrivals = type("At", (), {"between": lambda _, a, b: [0.0, 0.5] if a == 0 else []})()
    service.advance(1_050, 1)
    assert service.in_service == 2
    service.advance(1_150, 1)
    assert service.served == 1
    service.advance(1_590, 1)
    assert service.served == 1
    service.advance(1_610, 1)
    assert service.served == 2
    assert service.seen.mean_s == pytest.approx((1.1 + 1.1) / 2)


def test_the_cache_bounds_a_batch_and_its_use_grows_with_the_output():
    # 100 tokens of prompt and 100 of output: of 450 tokens two requests take 400, and the third waits.
    model = model_of(
        BatchCurve([(1, 10.0), (8, 10.0)]), Constant(100.0), prompt=100.0, kv_tokens=450
    )
    service = one_by_one(model, StepsLoad(((0.0, 3.0), (1.0, 0.0))), is_random=False)
    service.advance(1_000, 1)
    assert (service.in_service, service.waiting) == (2, 1)
    # They came at 1/3 and 2/3 s; at 6 s 5 2/3 and 5 1/3 of 10 s are done: 200 + 56.67 + 53.33 tokens.
    service.advance(6_000, 1)
    assert service.kv_used == pytest.approx((200 + 100 * (17 / 30 + 16 / 30)) / 450)
    service.advance(30_000, 1)
    assert (service.served, service.waiting, service.kv_used) == (3, 0, 0.0)


def test_a_pod_that_goes_ends_its_batch_and_takes_nothing_new():
    model = model_of(BatchCurve([(1, 10.0), (2, 10.0)]))
    service = one_by_one(model, StepsLoad(((0.0, 4.0), (1.0, 0.0))), is_random=False)
    service.advance(1_000, 2)
    assert service.in_service == 4
    service.advance(5_000, 0)
    assert service.in_service == 4
    service.advance(12_000, 0)
    assert service.served == 4


@at_most(40)
@given(
    rate=st.floats(0.1, 30.0),
    pods=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    limit=st.integers(0, 30),
    timeout_s=st.one_of(st.just(math.inf), st.floats(0.5, 20.0)),
    room=st.one_of(st.none(), st.floats(1.0, 20.0)),
)
def test_requests_are_conserved_and_the_cache_is_never_over_full(
    rate, pods, limit, timeout_s, room
):
    model = model_of(CURVE, Exponential(1.0), kv_tokens=room, limit=limit, timeout_s=timeout_s)
    service = one_by_one(model, StepsLoad(((0.0, rate),)))
    for second, ready in enumerate(pods, start=1):
        service.advance(second * 1000, ready)
        gone = service.served + service.rejected + service.timed_out
        assert service.arrived == gone + service.waiting + service.in_service
        assert service.waiting <= limit
        assert service.served == service.waits.count == service.seen.count
        if ready and room is not None:
            assert 0 <= service.kv_used <= 1


def test_where_requests_flow_the_batch_is_as_large_as_their_rate_needs():
    model = model_of(CURVE.cut(8), Constant(100.0), prompt=50.0, kv_tokens=1_000)
    service = SimulatedService(model, StepsLoad(((0.0, 5.0),)), 0)
    for second in range(1, 100):
        service.advance(second * 1000, 2)
    # 2.5 requests a second and pod are a batch of 4, each with 50 tokens of prompt and half its output.
    assert service.in_service == pytest.approx(8.0)
    assert service.kv_used == pytest.approx(4 * 100 / 1_000)
    assert service.busy_ratio(0, 90_000) == pytest.approx(1.0)

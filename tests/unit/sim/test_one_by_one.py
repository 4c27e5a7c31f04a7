"""Requests served one by one, against queueing theory.

The mean of correlated waits is compared over batches of a run: theory has to be within four standard errors
of the batches' mean, which a right model misses once in some ten thousand runs, and the seed is fixed.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base.loads import SineLoad, StepsLoad, TraceLoad
from gpuscale.lab.queueing.tally import percentile
from gpuscale.lab.queueing.theory import erlang_c
from gpuscale.lab.queueing.times import Constant, Exponential
from gpuscale.lab.sim.load.arrivals import Arrivals
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.service import SimulatedService
from queues import assert_near, batch_means, m_d_c_queue, m_m_c_queue, one_by_one

CASES = ((1, 0.1, 0.9), (1, 0.1, 0.7), (8, 1.0, 0.9), (32, 5.0, 0.8))
"""Pods, seconds of GPU time per request, utilisation: the table of the findings."""


@pytest.mark.parametrize(("pods", "service_s", "busy"), CASES)
def test_exponential_service_is_m_m_c(pods, service_s, busy):
    rate = busy * pods / service_s
    model = ServiceModel(service_s, 0.0, 1, 1e9, servers=1, times=Exponential(service_s))
    means, service = batch_means(model, rate, pods, round(200_000 / rate))
    assert_near(means, m_m_c_queue(pods, rate * service_s))
    # Every request's wait is exponential with the mean 1 / (c mu - lambda), where it waits.
    chance = erlang_c(pods, rate * service_s)
    if chance > 0.02:
        mean_s = service_s / (pods * (1 - busy))
        assert percentile(service.waits, 99) == pytest.approx(
            math.log(chance / 0.01) * mean_s, rel=0.25
        )


@pytest.mark.parametrize(("pods", "service_s", "busy"), CASES)
def test_constant_service_is_m_d_c(pods, service_s, busy):
    rate = busy * pods / service_s
    model = ServiceModel(service_s, 0.0, 1, 1e9)
    means, _ = batch_means(model, rate, pods, round(200_000 / rate))
    assert_near(means, m_d_c_queue(pods, rate * service_s))


def test_even_arrivals_of_a_steady_load_never_wait():
    service = one_by_one(ServiceModel(0.1, 0.0, 1, 1e9), StepsLoad(((0.0, 9.0),)), is_random=False)
    for second in range(1, 1001):
        service.advance(second * 1000, 1)
    assert service.arrived == 9000
    assert service.waiting_s == pytest.approx(0.0, abs=1e-6)


@at_most(40)
@given(
    rate=st.floats(0.1, 50.0),
    pods=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    servers=st.integers(1, 5),
    limit=st.integers(0, 30),
    timeout_s=st.one_of(st.just(math.inf), st.floats(0.5, 20.0)),
)
def test_requests_are_conserved_and_littles_law_is_exact(rate, pods, servers, limit, timeout_s):
    times = Exponential(0.3)
    model = ServiceModel(0.01, 0.0, 1, limit, servers=servers, times=times, timeout_s=timeout_s)
    service = one_by_one(model, StepsLoad(((0.0, rate),)))
    for second, ready in enumerate(pods, start=1):
        service.advance(second * 1000, ready)
        gone = service.served + service.rejected + service.timed_out
        assert service.arrived == gone + service.waiting + service.in_service
        assert service.waiting <= limit
    # Little's law, as a sum of times: the line's length over time is the waits of those who left it, and of
    # those still in it.
    seconds = float(len(pods))
    left = (service.waits.mean_s or 0.0) * service.waits.count
    gave_up = service.timed_out * timeout_s if service.timed_out else 0.0
    still = sum(seconds - came_s for came_s in service.line)
    assert service.waiting_s == pytest.approx(
        left + gave_up + still, abs=1e-4 * (1 + service.arrived)
    )


def test_gpus_are_as_busy_as_the_requests_that_are_served():
    # 2 servers of 0.5 s a pod, 0.1 GPU seconds each: at 3/s 1.5 of the 8 servers of 4 pods work, and each
    # pod's GPU is busy for 3 x 0.1 / 4 of the time.
    model = ServiceModel(0.1, 0.0, 1, 1e9, servers=2, times=Constant(0.5))
    service = one_by_one(model, StepsLoad(((0.0, 3.0),)), is_random=False)
    for second in range(1, 500):
        service.advance(second * 1000, 4)
    assert service.busy_ratio(0, 499_000) == pytest.approx(0.075, rel=0.02)


def test_a_pod_that_goes_ends_what_it_serves_and_takes_nothing_new():
    model = ServiceModel(1.0, 0.0, 1, 1e9, servers=1, times=Constant(10.0))
    service = one_by_one(model, TraceLoad([0.5, 0.6, 0.7], 1.0))
    service.advance(1000, 2)
    assert (service.in_service, service.waiting) == (2, 1)
    service.advance(11_000, 1)
    assert service.served == 2
    assert service.in_service == 1  # the third took the server that stayed, when both were free
    service.advance(21_000, 1)
    assert service.served == 3


def test_recorded_requests_come_when_they_were_recorded():
    arrivals = Arrivals(TraceLoad([0.25, 0.5, 3.0], 2.0), None)
    assert arrivals.between(0.0, 1.0) == [0.25, 0.25, 0.5, 0.5]
    assert arrivals.between(1.0, 4.0) == [3.0, 3.0]


def test_random_arrivals_follow_a_shape():
    load = SineLoad(20.0, 20.0, 1000.0)
    arrivals = Arrivals(load, random.Random(5).random)
    found = [moment for second in range(1000) for moment in arrivals.between(second, second + 1)]
    assert found == sorted(found)
    # The first half of the wave has 20 x 500 + 20 x 1000 / pi requests; Poisson: within 4 roots of that.
    expected = 20 * 500 + 20 * 1000 / math.pi
    assert abs(sum(moment < 500 for moment in found) - expected) < 4 * math.sqrt(expected)


class TestFluid:
    """The same figures where requests flow."""

    def run(self, model, rate, pods, seconds=1000):
        service = SimulatedService(model, StepsLoad(((0.0, rate),)), 0)
        for second in range(1, seconds + 1):
            service.advance(second * 1000, pods)
        return service

    @pytest.mark.parametrize(("pods", "service_s", "busy"), CASES)
    def test_a_steady_load_waits_as_theory_says(self, pods, service_s, busy):
        rate = busy * pods / service_s
        model = ServiceModel(service_s, 0.0, 1, 1e9, servers=1, times=Exponential(service_s))
        service = self.run(model, rate, pods)
        assert percentile(service.latencies, 50) > 0
        # Little's law gives Erlang's queue from the mean wait.
        assert rate * service.waits.mean_s == pytest.approx(m_m_c_queue(pods, rate * service_s))

    def test_work_that_is_left_over_waits_in_its_order(self):
        # 20/s are served, 30/s come: after 10 s 100 wait. The one that comes at t is number 30 t, served
        # at 1.5 t, so it waits t / 2: those served by 10 s came until 6.67 s, and waited 0 to 3.33 s.
        service = self.run(ServiceModel(0.05, 0.0, 100, 1e9), 30.0, 1, seconds=10)
        assert service.waiting == pytest.approx(100)
        assert service.waits.count == pytest.approx(200)
        assert service.waits.mean_s == pytest.approx(10 / 6, rel=0.05)
        assert percentile(service.waits, 99) == pytest.approx(10 / 3, rel=0.1)
        # All 10 s were short, by half a pod.
        assert service.short_s == pytest.approx(10)
        assert service.short_pod_s == pytest.approx(5)

    def test_clients_give_up(self):
        service = self.run(ServiceModel(0.05, 0.0, 100, 1e9, timeout_s=5.0), 10.0, 0, seconds=60)
        assert service.waiting == pytest.approx(50, abs=10)
        assert service.arrived == pytest.approx(service.waiting + service.timed_out)
        assert service.waits.mean_s is None

    def test_a_long_queue_is_kept_in_bounded_memory(self):
        service = self.run(ServiceModel(0.05, 0.0, 100, 1e9), 1.0, 0, seconds=25_000)
        assert len(service._cohorts) <= 10_001
        assert service.waiting == pytest.approx(25_000)
        service.advance(25_001_000, 10_000)  # served at once
        # Those of 25 000 s waited from 25 000 s to nothing.
        assert service.waits.mean_s == pytest.approx(12_500, rel=0.01)

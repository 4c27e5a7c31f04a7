"""Waiting times against queueing theory and against queues simulated request by request."""

import heapq
import math
import random

import numpy
import pytest

from gpuscale.lab.plan.waiting import Requests, waits, waits_at_all
from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings


def steady(rate: float, service_s: float, pods: int) -> Replayed:
    """Return a replay at rest: requests come at a rate, each takes a pod a time."""
    demand = numpy.full(100, rate * service_s)
    nothing = numpy.zeros(100)
    return Replayed(
        ReplaySettings(),
        demand,
        numpy.full(100, float(pods)),
        numpy.full(100, pods),
        nothing,
        nothing,
    )


def erlang_c(servers: int, offered: float) -> float:
    """Return Erlang's C from its definition, with factorials."""
    full = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)


def simulated(rate: float, service_s: float, pods: int, *, is_constant: bool) -> list[float]:
    """Return the waits of 200 000 requests that come at random."""
    draw = random.Random(11)
    now, free, found = 0.0, [0.0] * pods, []
    for _ in range(200_000):
        now += draw.expovariate(rate)
        start = max(now, heapq.heappop(free))
        found.append(start - now)
        busy_s = service_s if is_constant else draw.expovariate(1 / service_s)
        heapq.heappush(free, start + busy_s)
    return sorted(found)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (2, 1.9), (8, 7.2), (50, 40.0)])
def test_erlangs_c_is_its_definition(servers, offered):
    found = waits_at_all(numpy.array([float(servers)]), numpy.array([offered]))
    assert found[0] == pytest.approx(erlang_c(servers, offered), rel=1e-12)


def test_a_mean_wait_in_m_m_1():
    # rho 0.9, service 0.1 s: rho / (1 - rho) x 0.1 s = 0.9 s.
    found = waits(steady(9.0, 0.1, 1), Requests(0.1))
    assert found.mean() == pytest.approx(0.9)
    # The tail of M/M/1 is rho x exp(-(mu - lambda) t): 99 % at ln(90) / 1 s.
    assert found.percentile(99) == pytest.approx(math.log(90), rel=1e-6)
    # Little's law: 9 requests a second that wait 0.9 s are 8.1 in the queue, as M/M/1 has it.
    assert 9.0 * found.mean() == pytest.approx(0.9**2 / 0.1)


@pytest.mark.parametrize(
    ("pods", "service_s", "busy"), [(1, 0.1, 0.7), (8, 1.0, 0.9), (32, 5.0, 0.8)]
)
def test_exponential_service_agrees_with_a_simulation(pods, service_s, busy):
    rate = busy * pods / service_s
    real = simulated(rate, service_s, pods, is_constant=False)
    found = waits(steady(rate, service_s, pods), Requests(service_s))
    # 200 000 requests, strongly correlated at 90 %: within 12 % of theory.
    assert found.mean() == pytest.approx(sum(real) / len(real), rel=0.12)
    assert found.percentile(99) == pytest.approx(real[int(0.99 * len(real))], rel=0.12)


def test_constant_service_waits_about_half():
    # 8 servers at 90 %: Cosmetatos' approximation for M/D/c is within a few per cent, Allen and Cunneen's
    # half of M/M/c within 10 %.
    real = simulated(7.2, 1.0, 8, is_constant=True)
    found = waits(steady(7.2, 1.0, 8), Requests(1.0, spread=0.0))
    assert found.mean() == pytest.approx(sum(real) / len(real), rel=0.15)


def test_slots_pool():
    # Four pods of two slots that take 2 s each are eight servers.
    alone = waits(steady(3.6, 2.0, 8), Requests(2.0))
    slots = Replayed(
        ReplaySettings(),
        numpy.full(10, 3.6),  # 3.6 requests/s x 2 s / 2 slots
        numpy.full(10, 4.0),
        numpy.full(10, 4.0),
        numpy.zeros(10),
        numpy.zeros(10),
    )
    assert waits(slots, Requests(2.0, slots=2)).mean() == pytest.approx(alone.mean())


def test_a_backlog_comes_first_and_nothing_ready_waits_the_clients_patience():
    found = waits(
        Replayed(
            ReplaySettings(patience_s=60.0),
            numpy.array([3.0, 1.0]),
            numpy.array([2.0, 0.0]),
            numpy.array([2.0, 1.0]),
            numpy.array([15.0, 0.0]),
            numpy.zeros(2),
        ),
        Requests(0.1),
    )
    # Three of four requests meet 15 s of work on two pods, one meets nothing that is ready.
    assert found.mean() == pytest.approx(0.75 * 7.5 + 0.25 * 60)
    assert found.percentile(70) == pytest.approx(7.5)
    assert found.percentile(99) == pytest.approx(60.0)


def test_without_requests_nothing_waits():
    found = waits(steady(0.0, 0.1, 2), Requests(0.1))
    assert (found.mean(), found.percentile(99)) == (0.0, 0.0)

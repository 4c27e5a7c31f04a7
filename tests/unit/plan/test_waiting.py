"""Waiting times against queueing theory and against queues simulated request by request."""

import heapq
import math
import random

import numpy
import pytest

from gpuscale.base.errors import UsageError
from gpuscale.base.promises import promise_terms
from gpuscale.lab.plan.bounds import bounds
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.waiting import Requests, waits
from gpuscale.lab.queueing import theory
from gpuscale.triggers.policies import HPA, policy_function, replay
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
    assert theory.erlang_c(servers, offered) == pytest.approx(erlang_c(servers, offered), rel=1e-12)


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
        numpy.full(100, 3.6),  # 3.6 requests/s x 2 s / 2 slots
        numpy.full(100, 4.0),
        numpy.full(100, 4.0),
        numpy.zeros(100),
        numpy.zeros(100),
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
    # Three of four requests meet up to 15 s of work, which waits for a step without a pod and then for one
    # pod; one of four meets nothing that is ready.
    assert found.mean() == pytest.approx(0.75 * 30 / 2 + 0.25 * 60)
    # 0.25 + 0.75 x 2 / 30 wait longer than 28 s.
    assert found.percentile(70) == pytest.approx(28.0)
    assert found.percentile(99) == pytest.approx(60.0)


def test_without_requests_nothing_waits():
    found = waits(steady(0.0, 0.1, 2), Requests(0.1))
    assert (found.mean(), found.percentile(99)) == (0.0, 0.0)


def test_the_time_to_an_answer_in_m_m_1_is_exponential():
    # Wait and service together have the rate mu - lambda = 10 - 9 a second.
    late = waits(steady(9.0, 0.1, 1), Requests(0.1)).late(2.0, Requests(0.1))
    assert late.tolist() == pytest.approx([math.exp(-2)] * 100)


@pytest.mark.parametrize("limit_s", [0.5, 3.0, 9.0, 20.0])
@pytest.mark.parametrize(("service_s", "spread"), [(0.5, 0.0), (2.0, 0.4), (2.0, 1.0)])
def test_an_answer_comes_after_the_backlog_and_the_service(limit_s, service_s, spread):
    requests = Requests(service_s, 1, spread)
    rising = Replayed(
        ReplaySettings(step_s=15.0),
        numpy.array([3.0]),
        numpy.array([2.0]),
        numpy.array([2.0]),
        numpy.array([15.0]),
        numpy.zeros(1),
    )
    # The backlog before a request is anything up to 15 s of work on two pods.
    drawn = numpy.random.default_rng(5)
    takes_s = service_s * (1 - spread) + drawn.exponential(1.0, 400_000) * service_s * spread
    after_s = drawn.uniform(0, 7.5, 400_000) + takes_s
    found = waits(rising, requests).late(limit_s, requests)[0]
    assert found == pytest.approx(float((after_s > limit_s).mean()), abs=0.003)


def one_by_one(drawn, replayed: Replayed, requests: Requests) -> numpy.ndarray:
    """Return the waits of requests that a replay's ready pods serve one by one, first come, first served."""
    step_s, patience_s = replayed.service.step_s, replayed.service.patience_s
    slots, steps = requests.slots, len(replayed.demand)
    per_step = drawn.poisson(replayed.demand * step_s * slots / requests.service_s)
    begins = numpy.repeat(numpy.arange(steps) * step_s, per_step)
    came = numpy.sort(begins + drawn.uniform(0, step_s, len(begins)))
    takes = drawn.exponential(requests.service_s, len(came))
    found, ends, now = numpy.empty(len(came)), [], 0.0
    for at, arrival in enumerate(came):
        now = max(now, arrival)
        while True:
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            step = min(int(now // step_s), steps - 1)
            if len(ends) < replayed.ready[step] * slots or now - arrival > patience_s:
                break
            now = min([ends[0], (step + 1) * step_s]) if step < steps - 1 else ends[0]
        found[at] = min(now - arrival, patience_s)
        if now - arrival <= patience_s:
            heapq.heappush(ends, now + takes[at])
    return found


def test_waits_are_those_of_requests_that_are_served_one_by_one():
    """Demand that swings and jumps, under the default HPA: bursts wait for pods, the rest for each other."""
    desired, errors = policy_function(HPA.desired), []
    for seed in range(10):
        drawn = numpy.random.default_rng(seed)
        steps = 240
        demand = 6 + 3 * numpy.sin(numpy.arange(steps) / drawn.uniform(30, 90))
        for _ in range(3):
            begin, length = drawn.integers(0, steps), drawn.integers(4, 60)
            demand[begin : begin + length] += drawn.uniform(2, 12)
        start_up_s, patience_s = drawn.choice([60.0, 150.0]), drawn.choice([30.0, 60.0])
        service = ReplaySettings(start_up_s=start_up_s, patience_s=patience_s, most=100.0)
        replayed = replay(desired, HPA.settings(), HPA.memory, demand, service)
        # Short requests: with long ones a burst differs by chance from the mean of bursts like it.
        requests = Requests(0.1)
        exact = float(numpy.percentile(one_by_one(drawn, replayed, requests), 99))
        errors.append(abs(waits(replayed, requests).percentile(99) - exact) / max(exact, 5.0))
    # Bursts that just exceed the pods are worse by chance than work that flows.
    assert sum(each < 0.1 for each in errors) >= 9
    assert max(errors) < 0.25


def test_the_fewest_standing_pods_are_those_that_keep_the_promise_with_what_waits():
    # 7 requests a second of 1 s each: M/M/8 and M/M/9, by Erlang's C and the tail of its wait.
    demand = numpy.full(200, 7.0)
    beyond = {pods: erlang_c(pods, 7.0) * math.exp(-(pods - 7.0) * 2) for pods in (8, 9)}
    for pods, text in ((8, beyond[8] * 1.01), (9, beyond[8] * 0.99)):
        promise = Promise(promise_terms("--promise", [f"wait=2s:{100 - 100 * text:.6f}%"]))
        assert bounds(demand, ReplaySettings(), promise).static_replicas == pods
    assert bounds(demand, ReplaySettings(), Promise()).static_replicas == 7


def test_a_promise_that_no_number_of_pods_keeps_is_refused():
    # A request of 1 s is answered within 0.1 s in 1 - exp(-0.1) of all cases, at the most.
    promise = Promise(promise_terms("--promise", ["latency=100ms:99%"]))
    with pytest.raises(UsageError, match="no number of pods keeps: a request takes 1 s"):
        bounds(numpy.full(50, 2.0), ReplaySettings(), promise)

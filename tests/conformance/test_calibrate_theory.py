"""Knee and limit of queues whose theory is known, from ramps in virtual time.

Theory, for Poisson arrivals at rate r and service D:
M/D/1: P(wait <= t) = (1 - rD) sum_{k=0}^{floor(t/D)} (r(kD - t))^k / k! * exp(-r(kD - t))  (Erlang 1909)
M/M/1: latency is exponential with rate C - r, so p95 = ln 20 / (C - r).
Kleinrock's knee, the largest throughput divided by mean latency, is at
1 / (1 + sqrt((1 + c^2) / 2)) of the capacity.
"""

import math
import random
from dataclasses import replace

import pytest

from gpuscale.load.calibrate.analysis import Measurements, analyse
from gpuscale.load.calibrate.knee import Curve, Limit
from gpuscale.load.calibrate.levels import Objective, measured_limit
from gpuscale.load.calibrate.queues import BatchQueue, LaneQueue, SharedQueue, SlotQueue, poisson
from gpuscale.load.calibrate.scaleout import LoadStep, predict_step
from gpuscale.load.calibrate.signals import Fitness, SignalJudgement
from gpuscale.load.calibrate.writing import ChosenSignal, ScaledWorkload, hpa_of, hpa_text
from ramps import ramp

SERVICE_S = 0.01
OBJECTIVE = Objective(95, 50)


def md1_within(rate: float, latency_s: float) -> float:
    """Return the share of requests of an M/D/1 queue that are answered within a time."""
    wait_s = latency_s - SERVICE_S
    terms = (
        (rate * (k * SERVICE_S - wait_s)) ** k
        / math.factorial(k)
        * math.exp(-rate * (k * SERVICE_S - wait_s))
        for k in range(int(wait_s / SERVICE_S + 1e-9) + 1)
    )
    return (1 - rate * SERVICE_S) * sum(terms)


def md1_limit(latency_s: float) -> float:
    low, high = 1.0, 99.9
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if md1_within(middle, latency_s) >= 0.95 else (low, middle)
    return low


def test_the_formula_gives_the_mean_wait_of_pollaczek_and_khinchine() -> None:
    # Mean wait of M/D/1 at 70 %: 0.7 * 10 ms / (2 * 0.3) = 11.67 ms; the integral of P(wait > t).
    step = 0.0002
    mean = sum(1 - md1_within(70, SERVICE_S + (k + 0.5) * step) for k in range(1500)) * step
    assert mean == pytest.approx(0.01167, rel=0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_deterministic_worker_is_found_within_five_percent(seed: int) -> None:
    found = ramp(SlotQueue(100, 1, SERVICE_S), 10, OBJECTIVE, seed, spread=False)
    curve = Curve(found.fit)
    limit = curve.limit(OBJECTIVE)
    assert limit is not None
    assert limit.rate == pytest.approx(md1_limit(0.05), rel=0.05)
    assert limit.low <= limit.rate <= limit.high
    assert curve.knee().rate == pytest.approx(100 / (1 + math.sqrt(0.5)), rel=0.05)
    assert found.fit.queue.capacity == pytest.approx(100, rel=0.03)
    # 75 requests/s: the 20th part of the requests takes longer than what the formula says.
    predicted_s = curve.at(65).percentile_ms[95] / 1000
    assert md1_within(65, predicted_s) == pytest.approx(0.95, abs=0.01)


def test_a_level_that_something_else_held_up_is_left_out() -> None:
    """A stop of a third of a second in a few seconds of load makes a mean some times what it is."""
    found = ramp(SlotQueue(100, 1, SERVICE_S), 10, OBJECTIVE, 1, spread=False)
    undisturbed = Measurements(OBJECTIVE, found.baseline, tuple(found.levels), found.end)
    assert analyse(undisturbed).disturbed == ()
    held_up = max(
        (each for each in found.levels if each.keeps(OBJECTIVE)), key=lambda each: each.rate
    )
    assert held_up.mean_ms is not None
    slow = replace(
        held_up,
        mean_ms=8 * held_up.mean_ms,
        percentile_ms={each: 10 * value for each, value in held_up.percentile_ms.items()},
    )
    levels = tuple(slow if each is held_up else each for each in found.levels)
    analysis = analyse(Measurements(OBJECTIVE, found.baseline, levels, found.end))
    assert analysis.disturbed == (slow,)
    assert analysis.is_modelled
    assert analysis.limit is not None
    assert analysis.limit.rate == pytest.approx(md1_limit(0.05), rel=0.07)
    assert f"at {slow.rate:.4g} requests/s" in analysis.notes[-1]


def test_exponential_service_is_found_with_longer_holds() -> None:
    objective = Objective(95, 100)
    found = ramp(SlotQueue(100, 1, SERVICE_S), 10, objective, 2, spread=True, hold_s=40.0)
    curve = Curve(found.fit)
    limit = curve.limit(objective)
    assert limit is not None
    # p95 = ln 20 / (C - r) = 0.1 s at r = 100 - 29.96.
    assert limit.rate == pytest.approx(100 - math.log(20) / 0.1, rel=0.08)
    assert limit.low < 70.04 < limit.high
    assert curve.knee().rate == pytest.approx(50, rel=0.08)


def test_several_workers_are_counted() -> None:
    found = ramp(SlotQueue(400, 4, SERVICE_S), 10, OBJECTIVE, 1, spread=False)
    assert found.fit.queue.capacity == pytest.approx(400, rel=0.05)
    limit = Curve(found.fit).limit(OBJECTIVE)
    assert limit is not None
    border = measured_limit(found.levels, OBJECTIVE)
    assert border.missed is not None
    assert 0.93 * border.kept <= limit.rate <= 1.07 * border.missed


@pytest.mark.parametrize(
    ("queue", "base_ms"),
    [(SharedQueue(100, 1.0, SERVICE_S), 10.0), (BatchQueue(400, 16, 0.012), 12.0)],
)
def test_other_kinds_of_service_are_predicted_between_their_levels(
    queue: SharedQueue | BatchQueue, base_ms: float
) -> None:
    found = ramp(queue, base_ms, OBJECTIVE, 3, spread=False)
    limit = Curve(found.fit).limit(OBJECTIVE)
    border = measured_limit(found.levels, OBJECTIVE)
    assert limit is not None
    assert border.missed is not None
    assert 0.93 * border.kept <= limit.rate <= 1.07 * border.missed


@pytest.mark.parametrize("together", [0.6, 1.0, 1.5])
def test_two_lanes_that_slow_each_other_down_are_a_birth_and_death_process(together: float) -> None:
    """With exponential service the mean latency of two lanes is known, whatever the two do together.

    One at work ends at a rate m = 1 / base, two or more in the replica at `together` m. For arrivals at a
    rate r, with a = r / m and b = r / (together m): P(0) = 1 / (1 + a / (1 - b)), and the mean number in it
    is P(0) a / (1 - b)^2; the mean latency is that by r (Little).
    """
    queue, rate = LaneQueue(together / SERVICE_S, 2, SERVICE_S), 0.7 * together / SERVICE_S
    draw = random.Random(5)
    arrivals = [each / rate for each in poisson(200_000, 5)]
    found = [
        latency for _, latency in queue.answers(arrivals, [draw.expovariate(1) for _ in arrivals])
    ]
    one, two = rate * SERVICE_S, 0.7
    expected = one / (1 - two) ** 2 / (1 + one / (1 - two)) / rate
    assert len(found) == len(arrivals)
    assert sum(found) / len(found) == pytest.approx(expected, rel=0.05)


def test_two_lanes_that_do_less_together_than_one_alone_are_found() -> None:
    """One request takes 8.4 ms alone, two at once 28 ms each: 71 requests/s where one lane has 119."""
    objective, queue = Objective(95, 41), LaneQueue(71.4, 2, 0.0084)
    found = ramp(queue, 8.4, objective, 1, spread=False, hold_s=8)
    analysis = analyse(Measurements(objective, found.baseline, tuple(found.levels), found.end))
    assert analysis.is_modelled
    assert analysis.fit is not None
    assert analysis.limit is not None
    assert analysis.fit.difference < 0.1
    assert analysis.fit.queue.capacity == pytest.approx(71.4, rel=0.05)
    border = measured_limit(found.levels, objective)
    assert border.missed is not None
    assert 0.9 * border.kept <= analysis.limit.rate <= 1.1 * border.missed


def test_a_step_that_one_replica_can_take_misses_as_many_requests_as_theory_says() -> None:
    # Below the capacity a fluid has no queue. The HPA's first sync is at 14 s; others serve ten minutes
    # later.
    objective = Objective(95, 40)
    curve = Curve(ramp(SlotQueue(100, 1, SERVICE_S), 10, objective, 1, spread=False).fit)
    points = [(each, each) for each in (10.0, 100.0)]
    judgement = SignalJudgement("load", Fitness.GOOD, "", target=45.0)
    limit = Limit(60, 58, 62, 0.03)
    hpa = hpa_of(
        hpa_text(ScaledWorkload("web"), ChosenSignal("load", judgement, 45.0), objective, limit)
    )
    for rate in (70, 80, 90):
        step = LoadStep(60, rate, startup_s=600, signal_delay_s=0)
        found = predict_step(curve, objective, limit.rate, 60, points, hpa, step)
        assert (found.from_replicas, found.decided_s, found.ready_s) == (1, 14, 614)
        share = 1 - md1_within(rate, 0.04)
        assert found.missed == pytest.approx(rate * 614 * share, rel=0.1)
        assert found.worst_ms > 40

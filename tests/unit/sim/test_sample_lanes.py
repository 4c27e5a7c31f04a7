"""The queue of the sample services, in virtual time, against what queueing theory says of it."""

import math
import random

import pytest

from common.lanes import Lanes

ARRIVALS = 200_000


def mean_wait(lanes, rate, seconds, seed):
    """Return the mean of what Poisson arrivals wait, seconds."""
    draw = random.Random(seed)
    queue, now, waited = Lanes(lanes), 0.0, 0.0
    for _ in range(ARRIVALS):
        now += draw.expovariate(rate)
        waited += queue.admit(now, seconds(draw)).start - now
    return waited / ARRIVALS


def erlang_c(lanes, offered):
    """Return the chance that a request has to wait in M/M/c (Erlang, 1917)."""
    terms = [offered**k / math.factorial(k) for k in range(lanes)]
    last = offered**lanes / math.factorial(lanes) * lanes / (lanes - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("use", [0.3, 0.7, 0.9])
def test_equal_times_on_one_lane_wait_as_in_m_d_1(use) -> None:
    # Pollaczek and Khinchine: use x time / (2 (1 - use)), with a time of 1 s
    expected = use / (2 * (1 - use))
    waits = [mean_wait(1, use, lambda _: 1.0, seed) for seed in range(3)]
    assert sum(waits) / 3 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("lanes", "use"), [(1, 0.7), (2, 0.7), (4, 0.8)])
def test_exponential_times_wait_as_in_m_m_c(lanes, use) -> None:
    offered = lanes * use
    expected = erlang_c(lanes, offered) / (lanes - offered)
    waits = [mean_wait(lanes, offered, lambda draw: draw.expovariate(1), seed) for seed in range(3)]
    assert sum(waits) / 3 == pytest.approx(expected, rel=0.06)


def test_a_crowd_is_worked_off_in_rows() -> None:
    queue = Lanes(2)
    turns = [queue.admit(10.0, 3.0) for _ in range(5)]
    assert [turn.start for turn in turns] == [10.0, 10.0, 13.0, 13.0, 16.0]
    assert [turn.end for turn in turns] == [13.0, 13.0, 16.0, 16.0, 19.0]

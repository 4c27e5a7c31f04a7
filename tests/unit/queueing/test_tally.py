"""Percentiles of what was counted, against the same of a sorted list and of closed formulas."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.lab.queueing.tally import Latencies, WaitTally, percentile
from gpuscale.lab.queueing.theory import erlang_c, steady_wait


def factorial_erlang_c(servers: int, offered: float) -> float:
    """Return Erlang's C from its definition."""
    full = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.5), (2, 1.9), (8, 7.2), (50, 40.0)])
def test_erlangs_c_is_its_definition(servers, offered):
    assert erlang_c(servers, offered) == pytest.approx(factorial_erlang_c(servers, offered))


def test_a_queue_that_is_full_or_empty_has_no_steady_wait():
    assert steady_wait(2, 10.0, 0.2, 1.0).overall_s == 0.0  # exactly full
    assert steady_wait(2, 0.0, 0.2, 1.0).overall_s == 0.0


def test_the_tail_of_m_m_1():
    # rho 0.9, 0.1 s: rho x exp(-(mu - lambda) t), so 99 % wait less than ln(90) / 1 s.
    wait = steady_wait(1, 9.0, 0.1, 1.0)
    tally = WaitTally()
    tally.add_exponential(wait.chance, wait.mean_s, 1000)
    assert tally.mean_s == pytest.approx(0.9)
    assert percentile(tally, 99) == pytest.approx(math.log(90), rel=0.01)
    assert percentile(tally, 5) == 0.0  # one in ten does not wait


@given(st.lists(st.floats(min_value=1e-4, max_value=1e5), min_size=1, max_size=200))
def test_a_percentile_is_within_a_bucket_of_the_sorted_lists(waits):
    tally = WaitTally()
    for each in waits:
        tally.add(each)
    exact = sorted(waits)
    for percent in (50, 95, 99):
        found = percentile(tally, percent)
        rank = math.ceil(percent / 100 * len(exact) - 1e-9)
        near = exact[max(0, rank - 2) : rank + 1]
        assert any(found == pytest.approx(each, rel=0.011) for each in near)


def test_latencies_are_waits_and_what_follows():
    draw, tally = random.Random(4), WaitTally()
    tally.add(0.0, 1)
    tally.add(1.0, 1)
    likely = [draw.random() for _ in range(20)]
    # Half of the requests wait for 1 s more: the largest of all is the slow one's that waited.
    found = percentile(Latencies(tally, likely), 99.9)
    assert found == pytest.approx(1.0 + max(likely), rel=0.01)


def test_nothing_counted_is_no_time():
    assert WaitTally().mean_s is None

"""When requests are due."""

import math
from itertools import pairwise

import pytest

from gpuscale.base.loads import RampLoad, SpikesLoad, StepsLoad, TraceLoad
from gpuscale.load.arrivals import arrival_times


def test_an_even_constant_load_has_equal_gaps() -> None:
    moments = list(arrival_times(StepsLoad(((0.0, 8.0),)), 10.0, "even", 1))
    # 8 a second, each in the middle of its own eighth of a second
    assert moments == pytest.approx([(k + 0.5) / 8 for k in range(80)])


def test_an_even_ramp_is_due_where_its_integral_says() -> None:
    # From 0 to 10 a second in 10 s: N(t) = t^2 / 2, so the k-th is due at sqrt(2 (k - 1/2)) = sqrt(2k - 1).
    moments = list(arrival_times(RampLoad(0.0, 10.0, 0.0, 10.0), 10.0, "even", 1))
    assert moments == pytest.approx([math.sqrt(2 * k - 1) for k in range(1, 51)], abs=0.01)


def test_a_step_counts_from_its_own_moment() -> None:
    # Nothing for 1.234 s, then 1000 a second.
    moments = list(arrival_times(StepsLoad(((1.234, 1000.0),)), 2.0, "even", 1))
    assert moments[0] == pytest.approx(1.2345)
    assert len(moments) == 766


def test_poisson_has_the_rate_and_the_spread_of_theory() -> None:
    moments = list(arrival_times(StepsLoad(((0.0, 100.0),)), 1000.0, "poisson", 7))
    # 100 000 expected with a standard deviation of sqrt(100 000) = 316
    assert abs(len(moments) - 100_000) < 4 * 316
    gaps = [after - before for before, after in pairwise(moments)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    # Exponential gaps: mean and standard deviation are both 1/100 s.
    assert mean == pytest.approx(0.01, rel=0.02)
    assert deviation == pytest.approx(0.01, rel=0.02)
    # and the part above the mean is exp(-1)
    share = sum(gap > mean for gap in gaps) / len(gaps)
    assert share == pytest.approx(math.exp(-1), abs=0.01)


def test_poisson_follows_a_rate_that_changes() -> None:
    load = SpikesLoad(base=1.0, peak=200.0, every=10.0, length=2.0)
    moments = list(arrival_times(load, 1000.0, "poisson", 3))
    spiking = sum(moment % 10 < 2 for moment in moments)
    # 100 spikes of 2 s at 200 a second, 100 times 8 s at 1 a second
    assert abs(spiking - 40_000) < 4 * 200
    assert abs(len(moments) - spiking - 800) < 4 * 29


def test_the_same_seed_gives_the_same_moments() -> None:
    load = RampLoad(1.0, 50.0, 0.0, 60.0)
    first, again, other = (list(arrival_times(load, 60.0, "poisson", seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_trace_is_replayed_request_by_request() -> None:
    moments = list(arrival_times(TraceLoad([0.5, 0.501, 3.25]), 10.0, "even", 1))
    assert moments == pytest.approx([0.5, 0.501, 3.25], abs=0.01)


def test_none_is_due_at_or_after_the_end() -> None:
    assert list(arrival_times(StepsLoad(((0.0, 2.0),)), 0.25, "even", 1)) == []
    assert max(arrival_times(StepsLoad(((0.0, 1e5),)), 0.05, "even", 1)) < 0.05

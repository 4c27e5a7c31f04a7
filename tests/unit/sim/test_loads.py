import math

import pytest

from gpuscale.base.loads import (
    RampLoad,
    RateTraceLoad,
    SineLoad,
    SpikesLoad,
    StepsLoad,
    TraceLoad,
)

STEPS = StepsLoad(((60.0, 4.0), (120.0, 10.0), (180.0, 0.0)))
RAMP = RampLoad(2.0, 12.0, 100.0, 200.0)
SINE = SineLoad(10.0, 5.0, 86_400.0)
SPIKES = SpikesLoad(1.0, 11.0, every=100.0, length=20.0, first=50.0)
RATES = RateTraceLoad([0.0, 10.0, 30.0], [1.0, 2.0, 0.0], scale=3.0)


@pytest.mark.parametrize(
    ("load", "t", "rate"),
    [
        (STEPS, 59.9, 0.0),
        (STEPS, 60.0, 4.0),
        (STEPS, 179.9, 10.0),
        (STEPS, 1e6, 0.0),
        (RAMP, 0.0, 2.0),
        (RAMP, 150.0, 7.0),  # half way from 2 to 12
        (RAMP, 300.0, 12.0),
        (SINE, 21_600.0, 15.0),  # a quarter period: sin(pi/2) = 1
        (SINE, 64_800.0, 5.0),  # three quarters: -1
        (SPIKES, 49.0, 1.0),
        (SPIKES, 50.0, 11.0),
        (SPIKES, 70.0, 1.0),
        (SPIKES, 169.0, 11.0),
        (RATES, 15.0, 6.0),  # 2 at scale 3
    ],
)
def test_rates_follow_the_shape(load, t: float, rate: float) -> None:
    assert load.rate(t) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("load", "t", "requests"),
    [
        (STEPS, 60.0, 0.0),
        (STEPS, 150.0, 60 * 4 + 30 * 10),
        (STEPS, 1000.0, 60 * 4 + 60 * 10),
        (RAMP, 100.0, 200.0),
        (RAMP, 200.0, 200 + 100 * (2 + 12) / 2),  # a trapezoid
        (RAMP, 210.0, 900 + 10 * 12),
        (SINE, 86_400.0, 864_000.0),  # a whole wave adds nothing to the mean
        (SINE, 43_200.0, 432_000 + 5 * 86_400 / math.pi),  # half a wave: amplitude x period / pi
        (SPIKES, 70.0, 70 * 1 + 20 * 10),
        (SPIKES, 260.0, 260 * 1 + 2 * 20 * 10 + 10 * 10),
        (RATES, 20.0, 10 * 3 + 10 * 6),
        (RATES, 100.0, 10 * 3 + 20 * 6),
    ],
)
def test_requests_are_the_integral_of_the_rate(load, t: float, requests) -> None:
    assert load.requests_until(t) == pytest.approx(requests)


def test_a_trace_counts_its_own_arrivals() -> None:
    trace = TraceLoad([0.0, 1.0, 1.5, 12.0], scale=2.0)
    assert trace.requests_until(0.9) == 2.0
    assert trace.requests_until(100.0) == 8.0
    assert trace.rate(5.0) == pytest.approx(3 * 2 / 10)  # [0, 10) holds 3 arrivals


def test_jumps_are_told_and_standing_still_is_not() -> None:
    assert STEPS.changes(150.0) == (60.0, 120.0)
    assert StepsLoad(((0.0, 0.0), (5.0, 3.0), (9.0, 3.0))).changes(100.0) == (5.0,)
    assert SPIKES.changes(160.0) == (50.0, 70.0, 150.0)
    assert RAMP.changes(1e9) == SINE.changes(1e9) == ()

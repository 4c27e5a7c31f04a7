"""Distributions against their definitions."""

import math

import pytest

from gpuscale.lab.queueing.times import (
    Constant,
    Exponential,
    Lognormal,
    ObservedTimes,
    Quantiles,
    Uniform,
)

SHARES = [(index + 0.5) / 100_000 for index in range(100_000)]


@pytest.mark.parametrize(
    "times",
    [
        Constant(0.2),
        Exponential(3.0),
        Uniform(1.0, 4.0),
        Lognormal(30.0, 120.0),
        ObservedTimes([5.0, 1.0, 2.0], [1, 3, 4]),
        Quantiles([0.1, 0.5, 0.95, 0.95], [10.0, 20.0, 60.0, 90.0]),
        Quantiles([0.0, 1.0], [1.0, 4.0]),
    ],
    ids=lambda times: type(times).__name__,
)
def test_the_inverse_has_the_mean_and_the_spread_that_are_told(times):
    values = [times.at(share) for share in SHARES]
    mean = sum(values) / len(values)
    square = sum((value - mean) ** 2 for value in values) / len(values)
    assert times.mean == pytest.approx(mean, rel=1e-3)
    assert times.spread == pytest.approx(math.sqrt(square) / mean, rel=5e-3, abs=1e-9)


def test_a_lognormal_goes_through_its_median_and_its_99th_percentile():
    times = Lognormal(30.0, 120.0)
    assert times.at(0.5) == pytest.approx(30.0)
    assert times.at(0.99) == pytest.approx(120.0)


def test_quantiles_are_met_with_straight_lines_between_and_flat_ends():
    times = Quantiles([0.5, 0.95], [60.0, 240.0])
    # Half way between 0.5 and 0.95 is 0.725, half way between 60 and 240 is 150.
    found = [times.at(share) for share in (0.0, 0.2, 0.5, 0.725, 0.95, 0.99, 1.0)]
    assert found == pytest.approx([60.0, 60.0, 60.0, 150.0, 240.0, 240.0, 240.0])
    # 0.5 x 60 + 0.45 x 150 + 0.05 x 240
    assert times.mean == pytest.approx(109.5)


def test_measured_times_come_as_often_as_they_were_seen():
    times = ObservedTimes([10.0, 20.0], [1, 3])
    assert [times.at(share) for share in (0.0, 0.25, 0.26, 1.0)] == [10.0, 10.0, 20.0, 20.0]

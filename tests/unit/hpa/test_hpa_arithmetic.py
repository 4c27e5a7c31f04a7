"""Go's arithmetic at its edges."""

import math

import pytest

from gpuscale.hpa.replicas.arithmetic import (
    MAX_INT32,
    MAX_INT64,
    ceil_replicas,
    float_quotient,
    saturated_sum,
    truncated_quotient,
)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (6, 3, 2), (0, 5, 0)],
)
def test_integer_division_cuts_off_toward_zero(dividend: int, divisor: int, quotient: int) -> None:
    assert truncated_quotient(dividend, divisor) == quotient


def test_sum_saturates() -> None:
    assert saturated_sum([1, 2, 3]) == 6
    assert saturated_sum([MAX_INT64, 1]) == MAX_INT64


@pytest.mark.parametrize(
    ("count", "replicas"),
    [
        (2.0, 2),
        (2.0000001, 3),
        (0.07 * 100, 8),  # 7.000000000000001
        (-0.5, 0),
        (-2.5, -2),
        (math.inf, MAX_INT32),
        (-math.inf, -MAX_INT32),
        (1e300, MAX_INT32),
    ],
)
def test_counts_round_up_within_int32(count, replicas) -> None:
    assert ceil_replicas(count) == replicas


def test_division_by_zero_follows_ieee() -> None:
    assert float_quotient(3, 0) == math.inf
    assert float_quotient(-3, 0) == -math.inf
    assert math.isnan(float_quotient(0, 0))


def test_large_integers_are_rounded_before_they_are_divided() -> None:
    # float64(2^53 + 1) is 2^53, and 2^53 / 3 differs from the exact quotient's rounding
    assert float_quotient(2**53 + 1, 3) == float(2**53) / 3.0

"""Go's arithmetic at its edges."""

import math

import pytest

from gpuscale.hpa.kernel.numbers import (
    MAX_INT32,
    MAX_INT64,
    MIN_INT32,
    MIN_INT64,
    capped_ceil_int32,
    ceil_int32,
    ceil_int64,
    float_quotient,
    int32_of,
    quotient,
    wrapped32,
    wrapped64,
)


@pytest.mark.parametrize(
    ("dividend", "divisor", "cut_off"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (6, 3, 2), (0, 5, 0)],
)
def test_integer_division_cuts_off_toward_zero(dividend: int, divisor: int, cut_off: int) -> None:
    assert quotient(dividend, divisor) == cut_off


def test_numbers_wrap_around() -> None:
    assert [wrapped32(n) for n in (5, -5, MAX_INT32, MIN_INT32)] == [5, -5, MAX_INT32, MIN_INT32]
    assert [wrapped64(n) for n in (5, -5, MAX_INT64, MIN_INT64)] == [5, -5, MAX_INT64, MIN_INT64]
    assert wrapped32(MAX_INT32 + 1) == MIN_INT32
    assert wrapped64(MAX_INT64 + 1) == MIN_INT64
    assert wrapped64(MIN_INT64 - 1) == MAX_INT64
    assert wrapped64(3 * 2**64 + 7) == 7
    assert quotient(MIN_INT64, -1) == MIN_INT64


@pytest.mark.parametrize(
    ("count", "replicas"),
    [
        (2.0, 2),
        (2.0000001, 3),
        (0.07 * 100, 8),  # 7.000000000000001
        (-0.5, 0),
        (-2.5, -2),
        (2147483647.0, MAX_INT32),
        (2147483646.5, MAX_INT32),
        # int32(math.Ceil(count)) on amd64, where CVTTSD2SL gives 0x80000000 for all that does not fit
        (2147483647.5, MIN_INT32),
        (2147483648.0, MIN_INT32),
        (-2147483648.5, MIN_INT32),
        (math.inf, MIN_INT32),
        (-math.inf, MIN_INT32),
        (math.nan, MIN_INT32),
        (1e300, MIN_INT32),
    ],
)
def test_counts_round_up_within_int32(count, replicas) -> None:
    assert ceil_int32(count) == replicas


def test_other_conversions_at_the_ends() -> None:
    assert capped_ceil_int32(2147483647.5) == MAX_INT32
    assert capped_ceil_int32(math.inf) == MAX_INT32
    assert capped_ceil_int32(math.nan) == MIN_INT32
    assert [int32_of(c) for c in (2.9, -2.9, 3e9)] == [2, -2, MIN_INT32]
    assert ceil_int64(2.5) == 3
    assert ceil_int64(2.0**63) == MIN_INT64


def test_division_by_zero_follows_ieee() -> None:
    assert float_quotient(3, 0) == math.inf
    assert float_quotient(-3, 0) == -math.inf
    assert math.isnan(float_quotient(0, 0))


def test_large_integers_are_rounded_before_they_are_divided() -> None:
    # float64(2^53 + 1) is 2^53, and 2^53 / 3 differs from the exact quotient's rounding
    assert float_quotient(2**53 + 1, 3) == float(2**53) / 3.0

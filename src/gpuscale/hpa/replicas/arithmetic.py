"""The controller's arithmetic: int64 sums and float64 ratios with Go's rules at the edges."""

import math
from collections.abc import Iterable

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1


def saturated_sum(values: Iterable[int]) -> int:
    """Return the sum, or the largest int64 where it would be larger."""
    return min(sum(values), MAX_INT64)


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Return the quotient cut off toward zero, as Go divides integers."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def float_quotient(dividend: float, divisor: float) -> float:
    """Return the float64 quotient; a divisor of zero gives an infinity, or NaN for 0 / 0."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor == 0.0:
        return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)
    return dividend / divisor


def ceil_replicas(count: float) -> int:
    """Return the count rounded up and held within int32."""
    if count >= MAX_INT32:
        return MAX_INT32
    if count <= -MAX_INT32:
        return -MAX_INT32
    return math.ceil(count)

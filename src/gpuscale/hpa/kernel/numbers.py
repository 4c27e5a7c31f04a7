"""Go's numbers as amd64 computes them: int32 and int64 that wrap around, float64 with IEEE's edges.

Python's integers don't wrap, compiled ones do; each function gives the same for both.

Source: the Go specification (Integer overflow, Conversions), and what Go 1.26 compiles for amd64: a float
    that does not fit an integer becomes the smallest one. On arm64 it would become the nearest.
"""

import math

MIN_INT32 = -(1 << 31)
MAX_INT32 = (1 << 31) - 1
MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
_LOW = (1 << 32) - 1
_HALF = 1 << 31


def wrapped32(number: int) -> int:
    """Return the number as int32."""
    return ((number + _HALF) & _LOW) - _HALF


def wrapped64(number: int) -> int:
    """Return the number as int64."""
    # In two halves, as compiled integers have 64 bits.
    return (wrapped32(number >> 32) << 32) | (number & _LOW)


def int32_of(count: float) -> int:
    """Return a float cut off toward zero as int32; one beyond it, and NaN, is the smallest."""
    if -2147483649.0 < count < 2147483648.0:
        return int(count)
    return MIN_INT32


def ceil_int32(count: float) -> int:
    """Return a float rounded up as int32; one beyond it, and NaN, is the smallest."""
    if -2147483649.0 < count <= 2147483647.0:
        return math.ceil(count)
    return MIN_INT32


def capped_ceil_int32(count: float) -> int:
    """Return a float rounded up as int32; a larger one is the largest."""
    return MAX_INT32 if count > 2147483647.0 else ceil_int32(count)


def ceil_int64(count: float) -> int:
    """Return a float rounded up as int64; one beyond it, and NaN, is the smallest."""
    if -9223372036854775808.0 <= count < 9223372036854775808.0:
        return math.ceil(count)
    return MIN_INT64


def quotient(dividend: int, divisor: int) -> int:
    """Return the quotient cut off toward zero."""
    if divisor == -1:
        return wrapped64(-dividend)
    floor = dividend // divisor
    return floor + 1 if floor < 0 and floor * divisor != dividend else floor


def float_quotient(dividend: float, divisor: float) -> float:
    """Return the float64 quotient; a divisor of zero gives an infinity, or NaN for 0 / 0."""
    dividend, divisor = float(dividend), float(divisor)
    if divisor == 0.0:
        return math.nan if dividend == 0.0 else math.copysign(math.inf, dividend)
    return dividend / divisor

"""Statistics of a list of numbers, for aggregations over labels and over time.

Source: prometheus promql (engine.go aggregation, functions.go aggrOverTime, quantile.go).
"""

import math
from collections.abc import Sequence

from gpuscale.series.promql.rows import NAN


def total(values: Sequence[float]) -> float:
    """Return the sum, correctly rounded."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, even if the sum would overflow."""
    count = len(values)
    if count == 1:
        return values[0]
    result = total(values) / count
    if math.isinf(result) and all(map(math.isfinite, values)):
        return math.fsum(value / count for value in values)
    return result


def smallest(values: Sequence[float]) -> float:
    """Return the minimum; NaN only if all values are NaN."""
    return min((value for value in values if value == value), default=NAN)


def largest(values: Sequence[float]) -> float:
    """Return the maximum; NaN only if all values are NaN."""
    return max((value for value in values if value == value), default=NAN)


def variance(values: Sequence[float]) -> float:
    """Return the population variance, equal for any order of the values.

    It is that of the distances from a number near the mean, their sums rounded once.
    """
    if not all(map(math.isfinite, values)):
        return NAN
    count = len(values)
    # Clamped between minimum and maximum, so that equal values have no variance.
    middle = min(max(mean(values), min(values)), max(values))
    distances = [value - middle for value in values]
    squares = total([distance * distance for distance in distances])
    if math.isinf(squares):
        return squares
    off = total(distances)
    found = (squares - off * off / count) / count
    return found if found > 0 else 0.0


def compensated(values: Sequence[float]) -> float:
    """Return the Kahan sum of the values in this order.

    Source: prometheus util/kahansum, 3.16 (Inc).
    """
    found = error = 0.0
    for value in values:
        found, error = _added(value, found, error)
    return found + error


def variance_over_time(values: Sequence[float]) -> float:
    """Return the population variance by Welford's method with Kahan summation.

    Source: prometheus promql/functions.go, 3.16 (varianceOverTime), util/kahansum (Inc).
    """
    average = average_error = squares = squares_error = 0.0
    for count, value in enumerate(values, start=1):
        delta = value - (average + average_error)
        average, average_error = _added(delta / count, average, average_error)
        square = delta * (value - (average + average_error))
        squares, squares_error = _added(square, squares, squares_error)
    return (squares + squares_error) / len(values)


def _added(term: float, sum_so_far: float, error: float) -> tuple[float, float]:
    """Return a Kahan sum with one more term, and its error term."""
    after = sum_so_far + term
    if math.isinf(after):
        return after, 0.0
    if abs(sum_so_far) >= abs(term):
        return after, error + ((sum_so_far - after) + term)
    return after, error + ((term - after) + sum_so_far)


def deviation_over_time(values: Sequence[float]) -> float:
    """Return the population standard deviation, from `variance_over_time`."""
    squared = variance_over_time(values)
    # With infinite values, the variance can be anything.
    return math.sqrt(squared) if squared >= 0 else NAN


def quantile(share: float, values: Sequence[float]) -> float:
    """Return a quantile, interpolated linearly.

    Args:
        share: from 0 to 1; beyond that an infinity comes back.
        values: NaN sorts below all numbers.
    """
    if not values or math.isnan(share):
        return NAN
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    ranked = sorted(values, key=lambda value: (value == value, value))
    rank = share * (len(ranked) - 1)
    lower = math.floor(rank)
    upper = min(len(ranked) - 1, lower + 1)
    weight = rank - lower
    if weight == 0:
        # An infinity times zero would be NaN.
        return ranked[lower]
    return ranked[lower] * (1 - weight) + ranked[upper] * weight

"""Statistics of a list of numbers, the same for aggregations over labels and over time.

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
    """Return the arithmetic mean; values whose sum overflows still have one."""
    count = len(values)
    if count == 1:
        return values[0]
    result = total(values) / count
    if math.isinf(result) and all(map(math.isfinite, values)):
        return math.fsum(value / count for value in values)
    return result


def smallest(values: Sequence[float]) -> float:
    """Return the minimum; NaN only where nothing else is there."""
    return min((value for value in values if value == value), default=NAN)


def largest(values: Sequence[float]) -> float:
    """Return the maximum; NaN only where nothing else is there."""
    return max((value for value in values if value == value), default=NAN)


def variance(values: Sequence[float]) -> float:
    """Return the population variance, by Welford's method."""
    average = squares = 0.0
    for count, value in enumerate(values, start=1):
        delta = value - average
        average += delta / count
        squares += delta * (value - average)
    return squares / len(values)


def deviation(values: Sequence[float]) -> float:
    """Return the population standard deviation."""
    squared = variance(values)
    # Infinities among the values can make the variance anything.
    return math.sqrt(squared) if squared >= 0 else NAN


def quantile(share: float, values: Sequence[float]) -> float:
    """Return the value below which a share of the values lies, between neighbours by proportion.

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
    return ranked[lower] * (1 - weight) + ranked[upper] * weight

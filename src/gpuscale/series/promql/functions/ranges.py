"""Functions of range vectors: one number from a window's samples.

Source: prometheus promql/functions.go, release 3 (extrapolatedRate, instantValue, linearRegression,
aggrOverTime, funcDoubleExponentialSmoothing).
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.elementwise import divide
from gpuscale.series.promql.functions.statistics import (
    compensated,
    deviation_over_time,
    largest,
    mean,
    quantile,
    smallest,
    total,
    variance_over_time,
)
from gpuscale.series.promql.rows import NAN, Window


class Bounds(NamedTuple):
    """The window's range, and the evaluation time."""

    start_ms: int
    end_ms: int
    at_ms: int


RangeFunction = Callable[..., float | None]
"""Called with a window, its bounds and the scalar arguments; None leaves the series out."""


def _rate(window: Window, bounds: Bounds) -> float | None:
    increase = _extrapolated(window, bounds, is_counter=True)
    return None if increase is None else increase / ((bounds.end_ms - bounds.start_ms) / 1000)


def _increase(window: Window, bounds: Bounds) -> float | None:
    return _extrapolated(window, bounds, is_counter=True)


def _delta(window: Window, bounds: Bounds) -> float | None:
    return _extrapolated(window, bounds, is_counter=False)


def _extrapolated(window: Window, bounds: Bounds, *, is_counter: bool) -> float | None:
    """Return the change over the whole range, extrapolated from the first and last sample.

    A series that begins or ends inside the range is taken to do so half an interval beyond its samples,
    a counter never before it was zero.
    """
    values, times_ms = window.values, window.times_ms
    if len(values) < 2:
        return None
    change = values[-1] - values[0]
    if is_counter:
        lost = [before for before, after in pairwise(values) if after < before]
        change += total(lost) if lost else 0.0
    sampled = (times_ms[-1] - times_ms[0]) / 1000
    interval = sampled / (len(values) - 1)
    to_start = _reach((times_ms[0] - bounds.start_ms) / 1000, interval)
    to_end = _reach((bounds.end_ms - times_ms[-1]) / 1000, interval)
    if is_counter and change > 0 and values[0] >= 0:
        to_start = min(to_start, sampled * (values[0] / change))
    return change * ((sampled + to_start + to_end) / sampled)


def _reach(seconds: float, interval: float) -> float:
    """Return how far beyond its outermost sample a series is extrapolated."""
    return interval / 2 if seconds >= interval * 1.1 else seconds


def _irate(window: Window, bounds: Bounds) -> float | None:
    if len(window.values) < 2:
        return None
    before, last = window.values[-2:]
    change = last if last < before else last - before
    return change / ((window.times_ms[-1] - window.times_ms[-2]) / 1000)


def _idelta(window: Window, bounds: Bounds) -> float | None:
    if len(window.values) < 2:
        return None
    return window.values[-1] - window.values[-2]


def _resets(window: Window, bounds: Bounds) -> float:
    values = window.values
    return float(sum(1 for before, after in pairwise(values) if after < before))


def _changes(window: Window, bounds: Bounds) -> float:
    return float(
        sum(
            1
            for before, after in pairwise(window.values)
            if after != before and not (math.isnan(after) and math.isnan(before))
        )
    )


def _deriv(window: Window, bounds: Bounds) -> float | None:
    if len(window.values) < 2:
        return None
    return _line(window, window.times_ms[0])[0]


def _predict_linear(window: Window, bounds: Bounds, seconds: float) -> float | None:
    if len(window.values) < 2:
        return None
    slope, intercept = _line(window, bounds.at_ms)
    return slope * seconds + intercept


def _line(window: Window, origin_ms: int) -> tuple[float, float]:
    """Return the least-squares line: slope per second, and value at `origin_ms`."""
    values = window.values
    if all(value == values[0] for value in values):
        return (NAN, NAN) if math.isinf(values[0]) else (0.0, values[0])
    count = len(values)
    seconds = [(time_ms - origin_ms) / 1000 for time_ms in window.times_ms]
    sum_x, sum_y = compensated(seconds), compensated(values)
    sum_xy = compensated([x * y for x, y in zip(seconds, values, strict=True)])
    sum_xx = compensated([x * x for x in seconds])
    slope = divide(sum_xy - sum_x * sum_y / count, sum_xx - sum_x * sum_x / count)
    return slope, sum_y / count - slope * sum_x / count


def _median_deviation(window: Window, bounds: Bounds) -> float:
    """Return the median absolute deviation; NaN if any value is NaN."""
    if any(map(math.isnan, window.values)):
        return NAN
    median = quantile(0.5, window.values)
    return quantile(0.5, [abs(value - median) for value in window.values])


def _time_of_last(reaches: Callable[[float, float], bool]) -> RangeFunction:
    """Return a function for the time in seconds of a window's last minimum or maximum."""

    def answer(window: Window, bounds: Bounds) -> float:
        best, time_ms = window.values[0], window.times_ms[0]
        for at_ms, value in zip(window.times_ms, window.values, strict=True):
            if reaches(value, best) or math.isnan(best):
                best, time_ms = value, at_ms
        return time_ms / 1000

    return answer


def _smoothed(window: Window, bounds: Bounds, smoothing: float, trending: float) -> float | None:
    _check_factor("smoothing", smoothing)
    _check_factor("trend", trending)
    values = window.values
    if len(values) < 2:
        return None
    level, trend = values[0], values[1] - values[0]
    for value in values[1:]:
        before = level
        level = smoothing * value + (1 - smoothing) * (before + trend)
        trend = trending * (level - before) + (1 - trending) * trend
    return level


def _check_factor(name: str, factor: float) -> None:
    if not 0 < factor < 1:
        bounds = f"0 < {name[0]}f < 1"
        raise QueryError(f"invalid {name} factor. Expected: {bounds}, got: {factor:f}")


def _over_time(reduce: Callable[[Sequence[float]], float]) -> RangeFunction:
    return lambda window, bounds: reduce(window.values)


RANGE_FUNCTIONS: dict[str, RangeFunction] = {
    "rate": _rate,
    "increase": _increase,
    "delta": _delta,
    "irate": _irate,
    "idelta": _idelta,
    "deriv": _deriv,
    "changes": _changes,
    "resets": _resets,
    "predict_linear": _predict_linear,
    "holt_winters": _smoothed,
    "double_exponential_smoothing": _smoothed,
    "avg_over_time": _over_time(mean),
    "min_over_time": _over_time(smallest),
    "max_over_time": _over_time(largest),
    "sum_over_time": _over_time(total),
    "stddev_over_time": _over_time(deviation_over_time),
    "stdvar_over_time": _over_time(variance_over_time),
    "count_over_time": _over_time(lambda values: float(len(values))),
    "first_over_time": _over_time(lambda values: values[0]),
    "last_over_time": _over_time(lambda values: values[-1]),
    "mad_over_time": _median_deviation,
    "ts_of_first_over_time": lambda window, bounds: window.times_ms[0] / 1000,
    "ts_of_last_over_time": lambda window, bounds: window.times_ms[-1] / 1000,
    "ts_of_max_over_time": _time_of_last(lambda value, best: value >= best),
    "ts_of_min_over_time": _time_of_last(lambda value, best: value <= best),
    "present_over_time": _over_time(lambda values: 1.0),
    "quantile_over_time": lambda window, bounds, share: quantile(share, window.values),
}
KEEPS_NAME = frozenset({"first_over_time", "last_over_time"})
"""What these return is a sample of the series itself."""

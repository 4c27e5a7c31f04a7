"""Functions of range vectors, on the windows of all series and steps at once.

Each gives what its namesake in `series.promql.functions.ranges` gives for a single window. A function
that takes sample after sample is called window by window where windows are long, and so are the columns
where a sum would meet an infinity or NaN.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from gpuscale.series.labels import EMPTY
from gpuscale.series.promql.functions.ranges import RANGE_FUNCTIONS, Bounds
from gpuscale.series.promql.rows import NAN, Window
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints
from gpuscale.series.promql.vectorised.sums import Compensated, exact_cuts, window_sums
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.promql.vectorised.windows import Windows

_LONGEST_LOOP = 2_000
"""Samples in a window up to which a recurrence is computed sample by sample for all windows at once."""
_WINDOWS_PER_CHECK = 500

WindowFunction = Callable[..., tuple[Floats, Flags]]
"""From windows, and scalar arguments of K x 1, to K x S values, and which of them there are."""


def over_windows(name: str, windows: Windows, numbers: list[Floats]) -> tuple[Floats, Flags]:
    """Return a function's value for each window, and where there is one; K x S.

    Args:
        name: of the function.
        windows: at least one.
        numbers: its scalar arguments, K each.

    Raises:
        QueryError: an argument is out of bounds.
    """
    longest = int(windows.lengths().max(initial=0))
    if name not in _SAMPLE_BY_SAMPLE or longest <= _LONGEST_LOOP:
        return _FUNCTIONS[name](windows, *(each[:, None] for each in numbers))
    everything = np.ones(windows.block.values.shape[1], np.bool_)
    shape = len(windows.low), windows.block.values.shape[1]
    values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
    _one_by_one(name, windows, numbers, everything, values, present)
    return values, present


def _one_by_one(
    name: str,
    windows: Windows,
    numbers: list[Floats],
    series: Flags,
    values: Floats,
    present: Flags,
) -> None:
    """Store the row-wise function's results for the windows of some series."""
    function, block = RANGE_FUNCTIONS[name], windows.block
    arguments = list(zip(*(each.tolist() for each in numbers), strict=True))
    times = list(
        zip(*(x.tolist() for x in (windows.starts_ms, windows.ends_ms, windows.at_ms)), strict=True)
    )
    done = 0
    for column in np.flatnonzero(series).tolist():
        group = int(block.group[column])
        count = int(block.counts[group])
        times_ms = block.times_ms[:count, group].tolist()
        samples = block.values[:count, column].tolist()
        lows, highs = windows.low[:, group].tolist(), windows.high[:, group].tolist()
        for step, (low, high) in enumerate(zip(lows, highs, strict=True)):
            if low >= high:
                continue
            window = Window(EMPTY, times_ms[low:high], samples[low:high], times_ms[high - 1])
            value = function(window, Bounds(*times[step]), *(arguments[step] if arguments else ()))
            if value is not None:
                values[step, column], present[step, column] = value, True
            done += 1
            if not done % _WINDOWS_PER_CHECK:
                windows.check()


def _rate(windows: Windows) -> tuple[Floats, Flags]:
    increase, present = _extrapolated(windows, is_counter=True)
    increase /= ((windows.ends_ms - windows.starts_ms) / 1000)[:, None]
    return increase, present


def _extrapolated(windows: Windows, *, is_counter: bool) -> tuple[Floats, Flags]:
    first = windows.first()
    change = windows.last() - first
    if is_counter:
        _add_resets(windows, change)
    # Below, up to the sum at the end, what depends on times only is computed once for each group.
    time_of_first, time_of_last = windows.time_of_first(), windows.time_of_last()
    sampled = (time_of_last - time_of_first) / 1000
    interval = sampled / np.maximum(windows.lengths() - 1, 1)
    to_start = _reach((time_of_first - windows.starts_ms[:, None]) / 1000, interval)
    to_end = windows.spread(_reach((windows.ends_ms[:, None] - time_of_last) / 1000, interval))
    sampled, to_start = windows.spread(sampled), windows.spread(to_start)
    if is_counter:
        to_zero = first / change
        to_zero *= sampled
        is_nearer = (to_zero < to_start) & (change > 0) & (first >= 0)
        to_start = np.where(is_nearer, to_zero, to_start)
    change *= (sampled + to_start + to_end) / sampled
    return change, windows.at_least(2)


def _reach(seconds: Floats, interval: Floats) -> Floats:
    reach: Floats = np.where(seconds >= interval * 1.1, interval / 2, seconds)
    return reach


def _add_resets(windows: Windows, change: Floats) -> None:
    """Add to each window's change what counter resets hid."""
    block = windows.block
    drops = _falls(block)
    series = np.flatnonzero(drops.any(axis=0))
    if not series.size:
        return
    lost = np.zeros((len(drops), len(series)))
    np.copyto(lost[1:], block.values[:-1, series], where=drops[1:, series])
    resetting = Block(
        block.times_ms, block.counts, lost, block.group[series], block.positions[series]
    )
    inside = windows.over(resetting, windows.low + 1)
    endless = np.isinf(lost)
    if endless.any():
        lost[endless] = 0.0
        change[:, series] += np.where(_counted(inside, endless) > 0, np.inf, 0.0)
    change[:, series] += _window_sums(inside, lost)


def _falls(block: Block) -> Flags:
    """Return where a value is lower than the one before; T x S."""
    falls = np.zeros(block.values.shape, np.bool_)
    np.less(block.values[1:], block.values[:-1], out=falls[1:])
    if not block.is_even:
        # Fillers are no samples.
        falls &= np.arange(len(falls))[:, None] < block.counts[block.group]
    return falls


def _window_sums(windows: Windows, numbers: Floats) -> Floats:
    """Return each window's correctly rounded sum of a finite T x S matrix."""
    block = windows.block
    shape = len(windows.low), numbers.shape[1]

    def running() -> Iterator[tuple[Floats, Floats]]:
        for cut in exact_cuts(numbers, len(numbers)):
            windows.check()
            totals = np.zeros((len(numbers) + 1, numbers.shape[1]))
            np.cumsum(cut, axis=0, out=totals[1:])
            last = len(numbers)
            yield (
                block.at(totals, np.minimum(windows.high, last)),
                block.at(totals, np.minimum(windows.low, last)),
            )

    return window_sums(running(), shape)


def _counted(windows: Windows, flags: Flags) -> Floats:
    """Return how many elements of a T x S matrix are true in each window."""
    totals = np.zeros((len(flags) + 1, flags.shape[1]))
    np.cumsum(flags, axis=0, out=totals[1:])
    last = len(flags)
    block = windows.block
    counted: Floats = block.at(totals, np.minimum(windows.high, last))
    counted -= block.at(totals, np.minimum(windows.low, last))
    return counted


def _sum(windows: Windows) -> tuple[Floats, Flags]:
    return _summed("sum_over_time", windows, lambda sums: sums)


def _average(windows: Windows) -> tuple[Floats, Flags]:
    lengths = _counts(windows)
    means, present = _summed("avg_over_time", windows, lambda sums: sums / lengths)
    single = np.broadcast_to(lengths == 1, means.shape)
    if single.any():
        # Also for the negative zero.
        means = np.where(single, windows.last(), means)
    return means, present


def _summed(
    name: str, windows: Windows, finish: Callable[[Floats], Floats]
) -> tuple[Floats, Flags]:
    values = windows.block.values
    odd = np.logical_not(np.all(np.isfinite(values), axis=0, keepdims=True))[0]
    has_odd = bool(odd.any())
    sums = finish(_window_sums(windows, np.where(odd, 0.0, values) if has_odd else values))
    present = windows.at_least(1)
    if has_odd:
        present = present.copy()
        _one_by_one(name, windows, [], odd, sums, present)
    return sums, present


def _extreme(goes_before: np.ufunc) -> WindowFunction:
    """Return a function for each window's minimum or maximum; NaN only if all values are NaN."""

    def least(one: Floats, other: Floats) -> Floats:
        # Of zero and negative zero, which are equal, the earlier one.
        return np.where(goes_before(other, one) | np.isnan(one), other, one)

    def answer(windows: Windows) -> tuple[Floats, Flags]:
        block, lengths = windows.block, windows.lengths()
        present = windows.at_least(1)
        level, span = block.values, 1
        found = np.full(present.shape, NAN)
        longest = int(lengths.max(initial=0))
        while span <= longest:
            # Two spans, one from each end, cover a window of up to twice their length.
            here = (lengths >= span) & (lengths < 2 * span)
            if here.any():
                top = len(level) - 1
                one = block.at(level, np.clip(windows.low, 0, top))
                other = block.at(level, np.clip(windows.high - span, 0, top))
                np.copyto(found, least(one, other), where=block.spread(here))
            if 2 * span <= longest:
                level = least(level[:-span], level[span:])
            span *= 2
            windows.check()
        return found, present

    return answer


def _irate(windows: Windows) -> tuple[Floats, Flags]:
    before, last = windows.last(1), windows.last()
    change = np.where(last < before, last, last - before)
    change /= windows.spread((windows.time_of_last() - windows.time_of_last(1)) / 1000)
    return change, windows.at_least(2)


def _idelta(windows: Windows) -> tuple[Floats, Flags]:
    return windows.last() - windows.last(1), windows.at_least(2)


def _changes(windows: Windows) -> tuple[Floats, Flags]:
    values = windows.block.values
    changed = _differs(values)
    changed[1:] &= ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    return _counted_between(windows, changed), windows.at_least(1)


def _differs(values: Floats) -> Flags:
    """Return where a value differs from the one before; T x S."""
    differs = np.zeros(values.shape, np.bool_)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _resets(windows: Windows) -> tuple[Floats, Flags]:
    return _counted_between(windows, _falls(windows.block)), windows.at_least(1)


def _counted_between(windows: Windows, flags: Flags) -> Floats:
    """Return how many flags between neighbours are inside each window; a flag is at the later one."""
    return _counted(windows.over(windows.block, windows.low + 1), flags)


def _variance(windows: Windows) -> tuple[Floats, Flags]:
    """Return the result of `statistics.variance_over_time` for all windows, sample by sample."""
    present = windows.at_least(1)
    average, squares = Compensated(present.shape), Compensated(present.shape)
    for count, (value, _, longer) in enumerate(windows.samples(), start=1):
        inside = windows.block.spread(longer)
        delta = value - average.value()
        average.add(delta / count, inside)
        squares.add(delta * (value - average.value()), inside)
    return squares.value() / _counts(windows), present


def _deviation(windows: Windows) -> tuple[Floats, Flags]:
    squared, present = _variance(windows)
    return np.where(squared >= 0, np.sqrt(squared), NAN), present


def _count(windows: Windows) -> tuple[Floats, Flags]:
    present = windows.at_least(1)
    lengths = windows.spread(windows.lengths().astype(np.float64))
    return np.broadcast_to(lengths, present.shape), present


def _seconds(times_ms: Callable[[Windows], Ints]) -> WindowFunction:
    def answer(windows: Windows) -> tuple[Floats, Flags]:
        present = windows.at_least(1)
        return np.broadcast_to(windows.spread(times_ms(windows) / 1000), present.shape), present

    return answer


def _counts(windows: Windows) -> Floats:
    """Return each window's number of samples, at least 1."""
    return windows.spread(np.maximum(windows.lengths(), 1).astype(np.float64))


def _slope(windows: Windows) -> tuple[Floats, Flags]:
    slope, _ = _line(windows, windows.time_of_first())
    return slope, windows.at_least(2)


def _predicted(windows: Windows, seconds: Floats) -> tuple[Floats, Flags]:
    slope, intercept = _line(windows, windows.at_ms[:, None])
    return slope * seconds + intercept, windows.at_least(2)


def _line(windows: Windows, origin_ms: Ints) -> tuple[Floats, Floats]:
    """Return each window's least-squares line: slope per second, and value at the origin."""
    shape, by_group = windows.at_least(1).shape, windows.low.shape
    sum_x, sum_xx = Compensated(by_group), Compensated(by_group)
    sum_y, sum_xy = Compensated(shape), Compensated(shape)
    for y, times_ms, inside in windows.samples():
        x = (times_ms - origin_ms) / 1000
        sum_x.add(x, inside)
        sum_xx.add(x * x, inside)
        sum_y.add(y, windows.block.spread(inside))
        sum_xy.add(windows.spread(x) * y, windows.block.spread(inside))
    count = _counts(windows)
    x, xx = windows.spread(sum_x.value()), windows.spread(sum_xx.value())
    y, xy = sum_y.value(), sum_xy.value()
    slope = (xy - x * y / count) / (xx - x * x / count)
    intercept = y / count - slope * x / count
    # Equal values have slope 0, whatever rounding makes of their sums.
    first = windows.first()
    is_flat = _counted_between(windows, _differs(windows.block.values)) == 0
    is_endless = np.isinf(first)
    np.copyto(slope, np.where(is_endless, NAN, 0.0), where=is_flat)
    np.copyto(intercept, np.where(is_endless, NAN, first), where=is_flat)
    return slope, intercept


def _smoothed(windows: Windows, smoothing: Floats, trending: Floats) -> tuple[Floats, Flags]:
    """Return each window's level after double exponential smoothing.

    Raises:
        RowWiseError: a factor is out of bounds.
    """
    is_wrong = ~((smoothing > 0) & (smoothing < 1) & (trending > 0) & (trending < 1))
    if (is_wrong & (windows.lengths() > 0)).any():
        raise RowWiseError("a factor is out of bounds")
    level, trend = np.zeros(0), np.zeros(0)
    for place, (value, _, longer) in enumerate(windows.samples()):
        if place == 0:
            level = value
            continue
        if place == 1:
            trend = value - level
        inside = windows.block.spread(longer)
        after = smoothing * value + (1 - smoothing) * (level + trend)
        bend = trending * (after - level) + (1 - trending) * trend
        level, trend = np.where(inside, after, level), np.where(inside, bend, trend)
    present = windows.at_least(2)
    return np.broadcast_to(level, present.shape) if level.size else np.zeros(present.shape), present


def _quantile(windows: Windows, shares: Floats) -> tuple[Floats, Flags]:
    """Return each window's quantile."""
    found = np.full(windows.at_least(1).shape, NAN)
    for place, values, lengths in windows.step_by_step():
        found[place] = _at_share(float(shares[place[0], 0]), values, lengths)
    return found, windows.at_least(1)


def _at_share(share: float, values: Floats, lengths: Ints) -> Floats:
    """Return the result of `statistics.quantile` for each column.

    Args:
        share: from 0 to 1; beyond that an infinity comes back.
        values: NaN below the last one of each column; this sorts them.
        lengths: how many of each column count, at least one.
    """
    if math.isnan(share) or share < 0 or share > 1:
        return np.full(len(lengths), share * math.inf)
    # NaN is sorted last here, and first in PromQL.
    values.sort(axis=0, kind="stable")
    unordered = lengths - np.count_nonzero(values == values, axis=0)
    columns = np.arange(len(lengths))

    def ranked(rank: Ints) -> Floats:
        places = np.maximum(rank - unordered, 0)
        chosen: Floats = np.where(rank < unordered, NAN, values[places, columns])
        return chosen

    rank = share * (lengths - 1)
    lower = np.floor(rank).astype(np.int64)
    upper = np.minimum(lengths - 1, lower + 1)
    weight = rank - lower
    low, high = ranked(lower), ranked(upper)
    # An infinity times zero would be NaN.
    return np.where(weight == 0, low, low * (1 - weight) + high * weight)


def _median_deviation(windows: Windows) -> tuple[Floats, Flags]:
    """Return each window's median absolute deviation; NaN if any value is NaN."""
    found = np.full(windows.at_least(1).shape, NAN)
    for place, values, lengths in windows.step_by_step():
        distances = np.abs(values - _at_share(0.5, values, lengths))
        unordered = np.isnan(values).any(axis=0) & (
            np.count_nonzero(values == values, axis=0) < lengths
        )
        found[place] = np.where(unordered, NAN, _at_share(0.5, distances, lengths))
    return found, windows.at_least(1)


def _time_of_extreme(reaches: np.ufunc) -> WindowFunction:
    """Return a function for the time in seconds of each window's last minimum or maximum."""

    def answer(windows: Windows) -> tuple[Floats, Flags]:
        present = windows.at_least(1)
        best, found_ms = np.full(present.shape, NAN), np.zeros(present.shape, np.int64)
        for value, times_ms, longer in windows.samples():
            taken = (reaches(value, best) | np.isnan(best)) & windows.block.spread(longer)
            np.copyto(best, value, where=taken)
            np.copyto(found_ms, windows.block.spread(times_ms), where=taken)
        return found_ms / 1000, present

    return answer


_SAMPLE_BY_SAMPLE = frozenset(
    {
        *("stdvar_over_time", "stddev_over_time", "deriv", "predict_linear"),
        *("holt_winters", "double_exponential_smoothing"),
        *("ts_of_max_over_time", "ts_of_min_over_time"),
    }
)
_FUNCTIONS: dict[str, WindowFunction] = {
    "rate": _rate,
    "increase": lambda windows: _extrapolated(windows, is_counter=True),
    "delta": lambda windows: _extrapolated(windows, is_counter=False),
    "irate": _irate,
    "idelta": _idelta,
    "changes": _changes,
    "resets": _resets,
    "sum_over_time": _sum,
    "avg_over_time": _average,
    "min_over_time": _extreme(np.less),
    "max_over_time": _extreme(np.greater),
    "stdvar_over_time": _variance,
    "stddev_over_time": _deviation,
    "count_over_time": _count,
    "present_over_time": lambda windows: (
        np.ones(windows.at_least(1).shape),
        windows.at_least(1),
    ),
    "first_over_time": lambda windows: (windows.first(), windows.at_least(1)),
    "last_over_time": lambda windows: (windows.last(), windows.at_least(1)),
    "ts_of_first_over_time": _seconds(Windows.time_of_first),
    "ts_of_last_over_time": _seconds(Windows.time_of_last),
    "ts_of_max_over_time": _time_of_extreme(np.greater_equal),
    "ts_of_min_over_time": _time_of_extreme(np.less_equal),
    "deriv": _slope,
    "predict_linear": _predicted,
    "holt_winters": _smoothed,
    "double_exponential_smoothing": _smoothed,
    "quantile_over_time": _quantile,
    "mad_over_time": _median_deviation,
}

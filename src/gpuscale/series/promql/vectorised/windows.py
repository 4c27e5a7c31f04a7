"""Functions of range vectors, over the windows of all series and steps at once.

Each gives what its namesake in `series.promql.functions.ranges` gives for a single window. A function
that has no entry here is called window by window, and so are the columns where a sum would meet an
infinity or NaN.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuscale.series.labels import EMPTY
from gpuscale.series.promql.functions.ranges import RANGE_FUNCTIONS, Bounds
from gpuscale.series.promql.rows import NAN, Window
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints
from gpuscale.series.promql.vectorised.sums import Compensated, exact_cuts, window_sums

Check = Callable[[], None]

_LONGEST_LOOP = 2_000
"""Samples in a window up to which a recurrence is computed sample by sample for all windows at once."""
_WINDOWS_PER_CHECK = 500


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The windows of a block's series at K steps: the rows from `low` up to, and without, `high`."""

    block: Block
    low: Ints
    """K x G."""
    high: Ints
    """K x G."""
    starts_ms: Ints
    """K: where the range begins, whatever is kept of it."""
    ends_ms: Ints
    """K."""
    at_ms: Ints
    """K: the times of evaluation."""
    check: Check

    def over(self, block: Block, low: Ints) -> "Windows":
        """Return windows with the same ends, but other beginnings, over a block of the same rows."""
        return replace(self, block=block, low=np.minimum(low, self.high))

    def spread(self, by_group: Floats) -> Floats:
        """Return numbers of groups as numbers of series."""
        spread: Floats = self.block.spread(by_group)
        return spread

    def lengths(self) -> Ints:
        """Return how many samples each window has; K x G."""
        return self.high - self.low

    def at_least(self, samples: int) -> Flags:
        """Return which windows have so many samples; K x S."""
        block = self.block
        enough = self.lengths() >= samples
        shape = len(self.low), block.values.shape[1]
        flags: Flags = np.broadcast_to(block.spread(enough), shape)
        return flags

    def first(self) -> Floats:
        return self.block.at(self.block.values, self._rows(self.low))

    def last(self, before: int = 0) -> Floats:
        """Return the last value of each window, or one some samples before it."""
        return self.block.at(self.block.values, self._rows(self.high - (1 + before)))

    def time_of_first(self) -> Ints:
        """Return the time of the first sample; K x G."""
        return np.take_along_axis(self.block.times_ms, self._rows(self.low), axis=0)

    def time_of_last(self, before: int = 0) -> Ints:
        """Return the time of the last sample, or of one some samples before it; K x G."""
        return np.take_along_axis(self.block.times_ms, self._rows(self.high - (1 + before)), axis=0)

    def _rows(self, rows: Ints) -> Ints:
        """Return rows inside the block; where a window is too short for them, any."""
        return np.clip(rows, 0, len(self.block.times_ms) - 1)


WindowFunction = Callable[[Windows], tuple[Floats, Flags]]
"""From windows to K x S values, and which of them there are."""


def over_windows(name: str, windows: Windows, numbers: list[Floats]) -> tuple[Floats, Flags]:
    """Return a function's value for each window, and where there is one; K x S.

    Args:
        name: of the function.
        windows: at least one.
        numbers: its scalar arguments, K each.

    Raises:
        QueryError: an argument is out of bounds.
    """
    if not numbers and name in _FUNCTIONS:
        return _FUNCTIONS[name](windows)
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
    """Write what the row-wise function gives for the windows of some series."""
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
    # From here to the sum at the end, what depends on times alone is computed once a group.
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
    """Add to each change what the counter lost in resets inside its window."""
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
    """Return where a value is below the one before it; T x S."""
    falls = np.zeros(block.values.shape, np.bool_)
    np.less(block.values[1:], block.values[:-1], out=falls[1:])
    if not block.is_even:
        # Fillers are no samples.
        falls &= np.arange(len(falls))[:, None] < block.counts[block.group]
    return falls


def _window_sums(windows: Windows, numbers: Floats) -> Floats:
    """Return the sums, rounded once, of the elements of a finite T x S matrix in each window."""
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
    """Return how many elements of a T x S matrix are set in each window."""
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
    lengths = windows.spread(np.maximum(windows.lengths(), 1).astype(np.float64))
    means, present = _summed("avg_over_time", windows, lambda sums: sums / lengths)
    single = np.broadcast_to(lengths == 1, means.shape)
    if single.any():
        # Also where it is the negative zero.
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


def _extreme(least: np.ufunc) -> WindowFunction:
    """Return a function to the least, or greatest, of each window; NaN only where nothing else is there."""

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
    changed = np.zeros(values.shape, np.bool_)
    after, before = values[1:], values[:-1]
    changed[1:] = (after != before) & ~(np.isnan(after) & np.isnan(before))
    return _counted_between(windows, changed), windows.at_least(1)


def _resets(windows: Windows) -> tuple[Floats, Flags]:
    return _counted_between(windows, _falls(windows.block)), windows.at_least(1)


def _counted_between(windows: Windows, flags: Flags) -> Floats:
    """Return how many neighbours in each window are flagged, at the later of the two."""
    return _counted(windows.over(windows.block, windows.low + 1), flags)


def _variance(windows: Windows) -> tuple[Floats, Flags]:
    """Return what `statistics.variance_over_time` gives, sample by sample for all windows at once."""
    lengths, present = windows.lengths(), windows.at_least(1)
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST_LOOP:
        values, found = np.full(present.shape, NAN), np.zeros(present.shape, np.bool_)
        everything = np.ones(present.shape[1], np.bool_)
        _one_by_one("stdvar_over_time", windows, [], everything, values, found)
        return values, found
    average, squares = Compensated(present.shape), Compensated(present.shape)
    block = windows.block
    last = len(block.times_ms) - 1
    for position in range(longest):
        inside = block.spread(lengths > position)
        value = block.at(block.values, np.clip(windows.low + position, 0, last))
        delta = value - average.value()
        average.add(delta / (position + 1), inside)
        squares.add(delta * (value - average.value()), inside)
        windows.check()
    return squares.value() / windows.spread(np.maximum(lengths, 1).astype(np.float64)), present


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
    "min_over_time": _extreme(np.fmin),
    "max_over_time": _extreme(np.fmax),
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
}

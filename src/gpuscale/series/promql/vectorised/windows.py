"""The windows of a range vector for a block's series, at all steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints

Check = Callable[[], None]

_CELLS_AT_ONCE = 1 << 16
"""Samples of one step that are looked at together; what is made of them then stays in the caches."""


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows at K steps: for each, the block's rows from `low` up to, but not including, `high`."""

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
        """Return windows with other starts over a block of the same rows."""
        return replace(self, block=block, low=np.minimum(low, self.high))

    def spread(self, by_group: Floats) -> Floats:
        """Return numbers by group as numbers by series."""
        spread: Floats = self.block.spread(by_group)
        return spread

    def lengths(self) -> Ints:
        """Return each window's number of samples; K x G."""
        return self.high - self.low

    def at_least(self, samples: int) -> Flags:
        """Return which windows have at least this many samples; K x S."""
        block = self.block
        enough = self.lengths() >= samples
        shape = len(self.low), block.values.shape[1]
        flags: Flags = np.broadcast_to(block.spread(enough), shape)
        return flags

    def first(self) -> Floats:
        return self.block.at(self.block.values, self._rows(self.low))

    def last(self, before: int = 0) -> Floats:
        """Return each window's last value, or an earlier one counted from the end."""
        return self.block.at(self.block.values, self._rows(self.high - (1 + before)))

    def time_of_first(self) -> Ints:
        """Return each window's first sample time; K x G."""
        return np.take_along_axis(self.block.times_ms, self._rows(self.low), axis=0)

    def time_of_last(self, before: int = 0) -> Ints:
        """Return each window's last sample time, or an earlier one counted from the end; K x G."""
        return np.take_along_axis(self.block.times_ms, self._rows(self.high - (1 + before)), axis=0)

    def _rows(self, rows: Ints) -> Ints:
        """Return row indexes inside the block; arbitrary ones for windows that are too short."""
        return np.clip(rows, 0, len(self.block.times_ms) - 1)

    def samples(self) -> Iterator[tuple[Floats, Ints, Flags]]:
        """Yield the first sample of each window, then the second, and so on.

        Values are K x S, their times K x G, and so is which windows are that long.
        """
        block, lengths = self.block, self.lengths()
        for place in range(int(lengths.max(initial=0))):
            self.check()
            rows = self._rows(self.low + place)
            times_ms = np.take_along_axis(block.times_ms, rows, axis=0)
            yield block.at(block.values, rows), times_ms, lengths > place

    def step_by_step(self) -> Iterator[tuple[tuple[int, slice], Floats, Ints]]:
        """Yield windows of one step and a batch of series, as rows of one matrix.

        With their step and their series comes a matrix of a column each, where NaN fills what is below the
        shorter ones, and how long each is; what is yielded may be written to.
        """
        block, lengths = self.block, self.lengths()
        width = max(1, _CELLS_AT_ONCE // max(1, int(lengths.max(initial=0))))
        for first in range(0, len(block.group), width):
            series = slice(first, first + width)
            group = block.group[series]
            for step, (low, length) in enumerate(zip(self.low, lengths, strict=True)):
                self.check()
                if not length[group].any():
                    continue
                if block.is_even:
                    values = block.values[low[0] : low[0] + length[0], series].copy()
                    yield (step, series), values, np.broadcast_to(length, group.shape)
                    continue
                places = np.arange(length[group].max())[:, None]
                rows = np.minimum(low[group] + places, len(block.values) - 1)
                values = np.take_along_axis(block.values[:, series], rows, axis=0)
                values[places >= length[group]] = np.nan
                yield (step, series), values, length[group]

"""A table in the making, block by block."""

import numpy as np

from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints
from gpuscale.series.promql.vectorised.samples import (
    Selection,
)
from gpuscale.series.promql.vectorised.table import Table


class Pieces:
    """A table whose columns come block by block.

    Args:
        selection: whose series the columns are.
        series: the first and last place of those that there are; None for all.
        moments: the number of rows.
        with_times: whether the table says when each value was measured.
    """

    def __init__(
        self,
        selection: Selection,
        series: tuple[int, int] | None,
        moments: int,
        *,
        with_times: bool,
    ) -> None:
        self._axis = selection.axis
        self._first, self._last = series or (0, len(selection.axis))
        self._moments = moments
        self._with_times = with_times
        self._pieces: list[tuple[Ints, Floats, Flags, Ints | None]] = []

    def add(self, block: Block, values: Floats, present: Flags, times_ms: Ints) -> None:
        """Put in the columns of a block."""
        shape = self._moments, len(block.positions)
        times = np.broadcast_to(block.spread(times_ms), shape) if self._with_times else None
        present = np.broadcast_to(present, shape)
        self._pieces.append((block.positions - self._first, values, present, times))

    def table(self, steps: int) -> Table:
        """Return the table; where there is one row for many steps, it is theirs."""
        width = self._last - self._first
        columns = None
        if width != len(self._axis):
            columns = np.arange(self._first, self._last)
        values, present, times = self._together(width)
        if self._moments == 1 and steps > 1:
            values = np.broadcast_to(values, (steps, width))
            present = np.broadcast_to(present, (steps, width))
            times = None if times is None else np.broadcast_to(times, (steps, width))
        there = None if present.all() else present
        return Table(self._axis, columns, values, there, times)

    def _together(self, width: int) -> tuple[Floats, Flags, Ints | None]:
        if len(self._pieces) == 1:
            places, values, present, times = self._pieces[0]
            if len(places) == width and (places[1:] > places[:-1]).all():
                return values, present, times
        shape = self._moments, width
        values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
        times_ms = np.zeros(shape, np.int64) if self._with_times else None
        for places, some, there, times in self._pieces:
            values[:, places] = some
            present[:, places] = there
            if times_ms is not None and times is not None:
                times_ms[:, places] = times
        return values, present, times_ms

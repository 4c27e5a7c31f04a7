"""A table that is built block by block."""

import numpy as np

from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints
from gpuscale.series.promql.vectorised.samples import (
    Selection,
)
from gpuscale.series.promql.vectorised.table import Table


class Pieces:
    """A table whose columns arrive in blocks.

    Args:
        selection: whose series the columns are.
        series: the first and last place of those that there are; None for all.
        moments: the number of rows.
        with_times: whether the table says when each value was measured.

    Raises:
        TooManyBytesError: so large a table is too much for the query.
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
        cells = moments * (self._last - self._first)
        # The three arrays to assemble: values, presence, times.
        selection.making.budget.hold(cells * (17 if with_times else 9))
        self._whole: tuple[Floats, Flags, Ints | None] | None = None
        self._parts: tuple[Floats, Flags, Ints | None] | None = None

    def add(self, block: Block, values: Floats, present: Flags, times_ms: Ints) -> None:
        """Add a block's columns."""
        shape = self._moments, len(block.positions)
        times = np.broadcast_to(block.spread(times_ms), shape) if self._with_times else None
        present = np.broadcast_to(present, shape)
        places = block.positions - self._first
        width = self._last - self._first
        if len(places) == width and (places[1:] > places[:-1]).all():
            self._whole = values, present, times
            return
        all_values, all_present, all_times = self._together(width)
        all_values[:, places] = values
        all_present[:, places] = present
        if all_times is not None and times is not None:
            all_times[:, places] = times

    def table(self, steps: int) -> Table:
        """Return the table; a single row stands for all steps."""
        width = self._last - self._first
        columns = None
        if width != len(self._axis):
            columns = np.arange(self._first, self._last)
        values, present, times = self._whole or self._together(width)
        if self._moments == 1 and steps > 1:
            values = np.broadcast_to(values, (steps, width))
            present = np.broadcast_to(present, (steps, width))
            times = None if times is None else np.broadcast_to(times, (steps, width))
        there = None if present.all() else present
        return Table(self._axis, columns, values, there, times)

    def _together(self, width: int) -> tuple[Floats, Flags, Ints | None]:
        """Return the arrays assembled from parts of the columns."""
        if self._parts is None:
            shape = self._moments, width
            times_ms = np.zeros(shape, np.int64) if self._with_times else None
            self._parts = np.full(shape, NAN), np.zeros(shape, np.bool_), times_ms
        return self._parts

"""A vector at many steps: values by step and series."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql.budget import Budget
from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.vectorised.axis import Axis, Making
from gpuscale.series.promql.vectorised.blocks import Flags, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """K rows (steps) and C columns (series); in an instant query all cells are present.

    So the columns of an instant query are rows of the vector, in its order.
    """

    axis: Axis
    columns: Ints | None
    """C: the position of each column on the axis; None where they are all of it, in order."""
    values: Floats
    """K x C; where a cell is not present, anything."""
    present: Flags | None
    """K x C; None where all are."""
    measured_ms: Ints | None
    """K x C; None in range queries, which answer without it."""

    @property
    def width(self) -> int:
        return len(self.values.T)

    @property
    def size(self) -> int:
        """Return the arrays' bytes; a view counts as well."""
        arrays = self.columns, self.values, self.present, self.measured_ms
        return sum(each.nbytes for each in arrays if each is not None)

    def of(self, by_position: Ints) -> Ints:
        """Return an array's elements for each column, by axis index."""
        return by_position if self.columns is None else by_position[self.columns]

    def with_values(self, values: Floats, axis: Axis | None = None) -> "Table":
        """Return the table with other values, and optionally other labels."""
        return Table(axis or self.axis, self.columns, values, self.present, self.measured_ms)

    def where(self, kept: Flags) -> "Table":
        """Return the table with only some cells present."""
        present = kept if self.present is None else self.present & kept
        return Table(
            self.axis, self.columns, self.values, present, self.measured_ms
        ).compressed_if_instant()

    def compressed_if_instant(self) -> "Table":
        """Return an instant query's table without absent columns."""
        if self.measured_ms is None or self.present is None:
            return self
        return self.taken(np.flatnonzero(self.present[0]))

    def taken(self, chosen: Ints) -> "Table":
        """Return some columns of an instant query, all present, in a given order."""
        columns = chosen if self.columns is None else self.columns[chosen]
        measured = None if self.measured_ms is None else self.measured_ms[:, chosen]
        return Table(self.axis, columns, self.values[:, chosen], None, measured)

    def columns_in(self, other: "Table", budget: Budget) -> Ints:
        """Return the index of each column in another table: by axis index, or else by labels."""
        if self.axis is other.axis:
            place_of = np.full(len(other.axis), -1)
            place_of[... if other.columns is None else other.columns] = np.arange(other.width)
            return self.of(place_of)
        known = {
            labels.key: place for place, labels in enumerate(other.axis.some(other.columns, budget))
        }
        mine = self.axis.some(self.columns, budget)
        return np.array([known[labels.key] for labels in mine], np.int64)

    def rows(self, start: int, stop: int) -> "Table":
        if stop - start == len(self.values):
            return self
        present = None if self.present is None else self.present[start:stop]
        return Table(self.axis, self.columns, self.values[start:stop], present, None)

    def filled(self, value: float) -> Floats:
        """Return the values with a number in all absent cells."""
        if self.present is None:
            return self.values
        filled: Floats = np.where(self.present, self.values, value)
        return filled

    def presence(self) -> Flags:
        return np.ones(self.values.shape, np.bool_) if self.present is None else self.present


def aligned(tables: Sequence[Table], making: Making) -> Sequence[Table]:
    """Return consecutive tables with equal columns; times are dropped.

    Most have them already. Those that depend on values, as of `count_values`, are found by their labels.

    Raises:
        RowWiseError: two columns of one table have the same labels.
    """
    first = tables[0]
    if all(each.axis is first.axis and _same(each.columns, first.columns) for each in tables):
        return tables
    places: dict[LabelKey, int] = {}
    label_sets: list[LabelSet] = []
    columns: list[Ints] = []
    for table in tables:
        of_table = table.axis.distinct(making).some(table.columns, making.budget)
        columns.append(np.empty(len(of_table), np.int64))
        for place, labels in enumerate(of_table):
            columns[-1][place] = places.setdefault(labels.key, len(label_sets))
            if columns[-1][place] == len(label_sets):
                label_sets.append(labels)
    axis = Axis.listed(label_sets)
    found: list[Table] = []
    for table, places_of in zip(tables, columns, strict=True):
        shape = len(table.values), len(axis)
        making.budget.hold(9 * shape[0] * shape[1])
        values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
        values[:, places_of], present[:, places_of] = table.values, table.presence()
        found.append(Table(axis, None, values, present, None))
    return found


def stacked(tables: Sequence[Table], making: Making) -> Table:
    """Return consecutive tables as one; times are dropped; errors as `aligned`."""
    tables = aligned(tables, making)
    first = tables[0]
    if len(tables) == 1:
        return first
    making.budget.hold(sum(each.size for each in tables))
    present = None
    if any(each.present is not None for each in tables):
        present = np.concatenate([each.presence() for each in tables])
    values = np.concatenate([each.values for each in tables])
    return Table(first.axis, first.columns, values, present, None)


def _same(one: Ints | None, other: Ints | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one, other))

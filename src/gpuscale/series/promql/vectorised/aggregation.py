"""Aggregations of tables: columns reduced by group, for all steps at once.

The columns may come some at a time, so that a sum over a hundred thousand series never holds all of them.
"""

import math
import sys

import numpy as np

from gpuscale.base.exposition.write import positional
from gpuscale.series.promql.functions.sorting import kept_of_equals
from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.tree import Aggregate
from gpuscale.series.promql.vectorised.axis import Groups, Making
from gpuscale.series.promql.vectorised.blocks import Flags, Floats, Ints
from gpuscale.series.promql.vectorised.sums import Sums, exact_cuts
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.promql.vectorised.table import Table
from gpuscale.series.promql.vectorised.windows import Check

GRADUAL = frozenset({"sum", "avg", "min", "max", "count", "group"})
"""What can be reduced some columns at a time."""


class Reduction:
    """A running aggregation that takes columns in batches.

    Args:
        operator: one of `GRADUAL`.
        groups: of the axis that all columns are on.
        steps: the number of rows.
    """

    NEVER_MS = 1 << 62

    def __init__(self, operator: str, groups: Groups, steps: int) -> None:
        self._operator = operator
        self._groups = groups
        shape = steps, len(groups.axis)
        self._counts = np.zeros(shape, np.int64)
        self._sums = Sums(shape)
        self._odd: Floats | None = None
        """Sums of infinities and NaN; zero where there are none."""
        self._single: Floats | None = None
        """The only value of a group, where its sum is zero and might be the negative one."""
        self._extremes = np.full(shape, NAN)
        self._measured_ms: Ints | None = None
        self._seen = 0
        self._first = np.full(shape[1], self.NEVER_MS)
        """The number of the first column of each group, in an instant query."""

    def add(self, table: Table) -> None:
        """Add some columns.

        Raises:
            RowWiseError: a sum may overflow.
        """
        if table.measured_ms is not None and self._measured_ms is None:
            self._measured_ms = np.full(self._counts.shape, self.NEVER_MS)
        if not table.width:
            return
        ids = table.of(self._groups.ids)
        segments = Segments(ids)
        found = segments.found
        if table.present is None:
            counts = np.broadcast_to(segments.sizes, (len(table.values), len(segments.sizes)))
        else:
            counts = segments.reduced(np.add, table.present.astype(np.int64))
        self._counts[:, found] += counts
        if self._operator in {"sum", "avg"}:
            self._add_sums(table, segments, counts)
        elif self._operator in {"min", "max"}:
            least = np.fmin if self._operator == "min" else np.fmax
            extremes = segments.reduced(least, table.filled(NAN))
            self._extremes[:, found] = least(self._extremes[:, found], extremes)
        if table.measured_ms is not None and self._measured_ms is not None:
            self._add_times(table.measured_ms, self._measured_ms, segments)

    def _add_sums(self, table: Table, segments: "Segments", counts: Ints) -> None:
        found, shape = segments.found, self._counts.shape
        values = table.filled(0.0)
        finite = np.isfinite(values)
        if not finite.all():
            if self._odd is None:
                self._odd = np.zeros(shape)
            self._odd[:, found] += segments.reduced(np.add, np.where(finite, 0.0, values))
            values = np.where(finite, values, 0.0)
        total = np.zeros(counts.shape)
        for cut in exact_cuts(values, int(segments.sizes.max())):
            part = segments.reduced(np.add, cut)
            total += part
            self._sums.add(part, found)
        lonely = (counts == 1) & (total == 0)
        if self._operator == "avg" and lonely.any():
            if self._single is None:
                self._single = np.zeros(shape)
            single = segments.reduced(np.add, table.filled(-0.0))
            self._single[:, found] = np.where(lonely, single, self._single[:, found])

    def _add_times(self, measured_ms: Ints, oldest_ms: Ints, segments: "Segments") -> None:
        found, width = segments.found, measured_ms.shape[1]
        oldest = segments.reduced(np.minimum, measured_ms)
        oldest_ms[:, found] = np.minimum(oldest_ms[:, found], oldest)
        first = segments.reduced(np.minimum, np.arange(width)[None, :])[0] + self._seen
        self._first[found] = np.minimum(self._first[found], first)
        self._seen += width

    def table(self) -> Table:
        """Return the result, a column for each group."""
        counts = self._counts
        values = self._values()
        result = Table(self._groups.axis, None, values, counts > 0, self._measured_ms)
        if self._measured_ms is None:
            return result
        there = np.flatnonzero(counts[0] > 0)
        return result.taken(there[np.argsort(self._first[there], kind="stable")])

    def _values(self) -> Floats:
        counts = self._counts
        if self._operator == "count":
            return counts.astype(np.float64)
        if self._operator == "group":
            return np.ones(counts.shape)
        if self._operator in {"min", "max"}:
            return self._extremes
        values = self._sums.rounded()
        if self._operator == "avg":
            values /= np.maximum(counts, 1)
            if self._single is not None:
                values = np.where((counts == 1) & (values == 0), self._single, values)
        if self._odd is not None:
            values = np.where(self._odd != 0, self._odd, values)
        return values


class Segments:
    """Columns sorted by group, so that each group is a contiguous run.

    Args:
        ids: the group of each column, at least one.
    """

    def __init__(self, ids: Ints) -> None:
        self._order: Ints | None = None
        if (ids[1:] < ids[:-1]).any():
            self._order = np.argsort(ids, kind="stable")
            ids = ids[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        found = ids[self._starts]
        self.found: Ints | slice = found
        """The groups that have a column, ascending."""
        if found[-1] - found[0] == len(found) - 1:
            self.found = slice(int(found[0]), int(found[-1]) + 1)
        self.sizes: Ints = np.diff(self._starts, append=len(ids))

    def reduced(self, function: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Return one column for each of `found`."""
        ordered = values if self._order is None else np.take(values, self._order, axis=1)
        reduced: np.ndarray = function.reduceat(ordered, self._starts, axis=1)
        return reduced


def aggregated(
    node: Aggregate, table: Table, groups: Groups, numbers: Floats | None, check: Check
) -> Table:
    """Return the result of an aggregation that needs all columns at once.

    Args:
        node: the aggregation; not of `count_values` or `limit_ratio`.
        table: what is aggregated.
        groups: of the table's axis.
        numbers: the parameter at each step.
        check: raises once the query has to stop.

    Raises:
        RowWiseError: a parameter is out of bounds.
    """
    if node.operator in GRADUAL:
        reduction = Reduction(node.operator, groups, len(table.values))
        reduction.add(table)
        return reduction.table()
    if node.operator in {"stddev", "stdvar"}:
        values, present = _variances(table, groups, check)
        if node.operator == "stddev":
            values = np.where(values >= 0, np.sqrt(values), NAN)
        return _of_groups(table, groups, values, present)
    if numbers is None:
        raise RowWiseError("the parameter is missing")
    if node.operator == "quantile":
        return _quantiles(table, groups, numbers, check)
    key = {"topk": -table.values, "bottomk": table.values}.get(node.operator)
    return _first(table, groups, numbers, check, key)


_VALUE_TEXT_BYTES = 80
"""A number's text and its place in a list: 49 bytes and a digit each, most have fewer than 20."""


def counted_values(node: Aggregate, label: str, table: Table, making: Making) -> Table:
    """Return how often each value occurs in each group, with the value as a label.

    Args:
        node: the aggregation.
        label: has the value; its name is not among those that the groups are without.
        table: what is counted.
        making: of the query's label sets.
    """
    names = (
        tuple(name for name in node.labels if name != label) if node.by else (*node.labels, label)
    )
    groups = table.axis.groups(names, making, by=node.by)
    with making.holding(5 * table.values.nbytes):
        steps, columns = np.nonzero(table.presence())
        numbers = table.values[steps, columns]
        numbers[np.isnan(numbers)] = NAN
        # By their bits, as zero and negative zero have different texts.
        distinct, which = np.unique(numbers.view(np.int64), return_inverse=True)
        pairs = table.of(groups.ids)[columns] * len(distinct) + which
        found, first, place = np.unique(pairs, return_index=True, return_inverse=True)
        if table.measured_ms is not None:
            # Rows are in the order of their value's first occurrence.
            rank = np.argsort(np.argsort(first))
            found, place = found[np.argsort(first)], rank[place]
    shape = len(table.values), len(found)
    making.budget.hold(25 * math.prod(shape))
    cells = steps * shape[1] + place
    counts = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
    measured = None
    if table.measured_ms is not None:
        measured = np.full(shape, Reduction.NEVER_MS)
        np.minimum.at(measured[0], place, table.measured_ms[0, columns])
    del steps, columns, numbers, which, pairs, first, place, cells
    making.budget.hold_labels(_VALUE_TEXT_BYTES * len(distinct))
    texts = [positional(float(number)) for number in distinct.view(np.float64)]
    axis = making.listed(
        (
            groups.axis.label(owner).override({label: texts[value]})
            for owner, value in (divmod(int(each), len(texts)) for each in found)
        ),
        groups.axis.size + sum(map(sys.getsizeof, texts)),
    )
    result = Table(axis, None, counts.astype(np.float64), counts > 0, measured)
    return result.compressed_if_instant()


def _of_groups(table: Table, groups: Groups, values: Floats, present: Flags) -> Table:
    """Return one column for each group, with times and order as for a minimum."""
    times = Reduction("group", groups, len(table.values))
    times.add(table)
    shape = times.table()
    if shape.columns is None:
        return Table(groups.axis, None, values, present, None)
    return Table(groups.axis, shape.columns, values[:, shape.columns], None, shape.measured_ms)


def _variances(table: Table, groups: Groups, check: Check) -> tuple[Floats, Flags]:
    """Return the result of `statistics.variance` for each group."""
    shape = len(table.values), len(groups.axis)
    counts = np.zeros(shape, np.int64)
    if not table.width:
        return np.full(shape, NAN), counts > 0
    ids, presence = table.of(groups.ids), table.presence()
    segments = Segments(ids)
    counts[:, segments.found] = segments.reduced(np.add, presence.astype(np.int64))
    values = table.filled(0.0)
    is_odd = np.zeros(shape, np.bool_)
    is_odd[:, segments.found] = segments.reduced(np.logical_or, ~np.isfinite(values))
    values = np.where(np.isfinite(values), values, 0.0)

    def sums(numbers: Floats) -> Floats:
        check()
        if not np.isfinite(numbers).all():
            raise RowWiseError("a sum may overflow")
        found = Sums(shape)
        for cut in exact_cuts(numbers, int(segments.sizes.max())):
            found.add(segments.reduced(np.add, cut), segments.found)
        return found.rounded()

    many = np.maximum(counts, 1)
    middle, least, most = sums(values) / many, np.full(shape, np.inf), np.full(shape, -np.inf)
    least[:, segments.found] = segments.reduced(np.minimum, np.where(presence, values, np.inf))
    most[:, segments.found] = segments.reduced(np.maximum, np.where(presence, values, -np.inf))
    middle = np.minimum(np.maximum(middle, least), most)
    distances = np.where(presence, values - middle[:, ids], 0.0)
    off = sums(distances)
    squared = (sums(distances * distances) - off * off / many) / many
    squared = np.where(squared > 0, squared, 0.0)
    return np.where(is_odd, NAN, squared), counts > 0


def _ranked(table: Table, ids: Ints, step: int, *, key: Floats, nan_first: bool) -> Ints:
    """Return a step's present columns, sorted by group, then value."""
    there = np.arange(table.width) if table.present is None else np.flatnonzero(table.present[step])
    value = key[step, there]
    is_nan = np.isnan(value)
    nan_rank = ~is_nan if nan_first else is_nan
    ranked: Ints = there[np.lexsort((value, nan_rank, ids[there]))]
    return ranked


def _starts(ids: Ints) -> Ints:
    """Return, for each element, the start of its run of equal neighbours."""
    starts: Ints = np.searchsorted(ids, ids)
    return starts


def _quantiles(table: Table, groups: Groups, shares: Floats, check: Check) -> Table:
    ids = table.of(groups.ids)
    shape = len(table.values), len(groups.axis)
    values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
    for step, share in enumerate(shares.tolist()):
        check()
        ranked = _ranked(table, ids, step, key=table.values, nan_first=True)
        found, starts, sizes = np.unique(ids[ranked], return_index=True, return_counts=True)
        present[step, found] = True
        if math.isnan(share):
            continue
        if share < 0 or share > 1:
            values[step, found] = math.copysign(math.inf, share)
            continue
        rank = share * (sizes - 1)
        lower = np.floor(rank)
        upper = np.minimum(sizes - 1, lower + 1)
        weight = rank - lower
        ordered = table.values[step, ranked]
        low = ordered[starts + lower.astype(np.int64)]
        high = ordered[starts + upper.astype(np.int64)]
        # An infinity times zero would be NaN.
        values[step, found] = np.where(weight == 0, low, low * (1 - weight) + high * weight)
    return _of_groups(table, groups, values, present)


def sampled(table: Table, offsets: Floats, ratios: Floats) -> Table:
    """Return the columns that a ratio keeps (`limit_ratio`).

    Args:
        table: the vector.
        offsets: where each position of its axis lies among all label sets.
        ratios: K of them; below 0 it is the last of all.

    Raises:
        RowWiseError: a ratio is not a number.
    """
    if np.isnan(ratios).any():
        raise RowWiseError("a ratio is NaN")
    bounded = np.clip(ratios, -1.0, 1.0)[:, None]
    place = offsets if table.columns is None else offsets[table.columns]
    return table.where(
        np.where(bounded >= 0, place < bounded, place >= 1 + bounded) & (bounded != 0)
    )


def _first(
    table: Table, groups: Groups, numbers: Floats, check: Check, key: Floats | None
) -> Table:
    """Return each group's cells with the smallest keys, or its first cells without keys."""
    if not (np.abs(numbers) < 2.0**63).all():
        raise RowWiseError("the parameter is out of bounds")
    ids = table.of(groups.ids)
    if table.measured_ms is not None:
        # Groups are in the order of their first rows.
        _, first, ids = np.unique(ids, return_index=True, return_inverse=True)
        ids = np.argsort(np.argsort(first))[ids]
    keys = np.zeros(table.values.shape) if key is None else key
    kept = np.zeros(table.values.shape, np.bool_)
    chosen = np.zeros(0, np.int64)
    for step, number in enumerate(numbers.astype(np.int64).tolist()):
        check()
        ranked = _ranked(table, ids, step, key=keys, nan_first=False)
        starts = _starts(ids[ranked])
        within = np.arange(len(ranked)) - starts
        if key is not None and number > 0:
            borders = np.flatnonzero(within == number)
            last, next_one = keys[step, ranked[borders - 1]], keys[step, ranked[borders]]
            is_equal = (last == next_one) | (np.isnan(last) & np.isnan(next_one))
            for border in borders[is_equal].tolist():
                _order_equals(ranked, keys[step], starts, border)
        chosen = ranked[within < number]
        kept[step, chosen] = True
    return table.taken(chosen) if table.measured_ms is not None else table.where(kept)


def _order_equals(ranked: Ints, keys: Floats, starts: Ints, border: int) -> None:
    """Reorder the cells a group keeps, where equal values lie on both sides of the limit."""
    group = slice(starts[border], np.searchsorted(starts, starts[border], side="right"))
    members = np.sort(ranked[group])
    kept = members[kept_of_equals(keys[members].tolist(), border - int(starts[border]))]
    is_kept = np.isin(ranked[group], kept)
    ranked[group] = np.concatenate([ranked[group][is_kept], ranked[group][~is_kept]])

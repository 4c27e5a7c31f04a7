"""Quantiles and fractions of classic histograms, for all histograms and steps at once.

Which buckets belong together depends on label sets alone. So it is worked out once for an axis, and what
is left at each step is arithmetic on a matrix: histograms by buckets, in the order of their bounds. What is
rare is asked of `series.promql.functions.histogram`, histogram by histogram: one that lacks a bucket at some
step, has two of one bound, or a count that is not finite.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql.functions.histogram import (
    BUCKET,
    SMALL_DELTA,
    Buckets,
    bound_of,
    bucket_fraction,
    bucket_quantile,
)
from gpuscale.series.promql.rows import NAN
from gpuscale.series.promql.vectorised.aggregation import Reduction
from gpuscale.series.promql.vectorised.axis import Axis, Making
from gpuscale.series.promql.vectorised.blocks import Floats, Ints
from gpuscale.series.promql.vectorised.table import Table


@dataclass(frozen=True, slots=True, eq=False)
class _Histograms:
    """The histograms of an axis: their buckets, sorted by histogram and bound."""

    axis: Axis
    """What the buckets of each have in common."""
    positions: Ints
    """Of the buckets."""
    bounds: Floats
    """Of the buckets."""
    starts: Ints
    """Where the buckets of each histogram begin, and at the end where those of the last one end."""

    @property
    def size(self) -> int:
        arrays = self.positions, self.bounds, self.starts
        return sum(each.nbytes for each in arrays) + self.axis.size

    def of_one_size(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield the histograms with an equal number of buckets, and the indexes of these: H, and H x B."""
        sizes = np.diff(self.starts)
        for size in np.unique(sizes).tolist():
            found = np.flatnonzero(sizes == size)
            yield found, self.starts[found][:, None] + np.arange(size)


def _histograms(axis: Axis, making: Making) -> _Histograms:
    numbers: dict[LabelKey, int] = {}
    rests: list[LabelSet] = []
    found: list[tuple[int, float, int]] = []
    for part in making.parts(range(len(axis))):
        for position in part:
            labels = axis.label(position)
            bound = bound_of(labels.value(BUCKET))
            if bound is None:
                continue
            rest = labels.drop((BUCKET,))
            number = numbers.setdefault(rest.key, len(rests))
            if number == len(rests):
                rests.append(rest)
            found.append((number, bound, position))
    with making.holding(160 * len(found)):
        histogram = np.array([each[0] for each in found], np.int64)
        bounds = np.array([each[1] for each in found], np.float64)
        positions = np.array([each[2] for each in found], np.int64)
        order = np.lexsort((bounds, histogram))
        starts = np.searchsorted(histogram[order], np.arange(len(rests) + 1))
    rest_axis = making.listed(rests, axis.size)
    made = _Histograms(rest_axis, positions[order], bounds[order], starts)
    making.budget.hold_labels(made.size - rest_axis.size)
    return made


def quantiles(table: Table, shares: Floats, making: Making) -> Table:
    """Return the quantile of each histogram at each step.

    Args:
        table: of buckets.
        shares: K x 1.
        making: of the query's label sets.

    Raises:
        RowWiseError: two histograms differ by nothing but their name.
    """

    def of_many(counts: Floats, bounds: Floats) -> Floats:
        beyond = np.where(np.isnan(shares), NAN, np.copysign(np.inf, shares))
        within = (shares >= 0) & (shares <= 1)
        last = counts.shape[-1] - 1
        if last < 1:
            return np.broadcast_to(np.where(within, NAN, beyond), counts.shape[:-1])
        counts = _monotonic(counts)
        total = counts[..., -1]
        rank = shares * total
        reached = counts[..., :last] >= rank[..., None]
        place = np.where(reached.any(axis=-1), reached.argmax(axis=-1), last)

        def taken(place: Ints) -> tuple[Floats, Floats]:
            there = np.maximum(place, 0)
            count: Floats = np.take_along_axis(counts, there[..., None], axis=-1)[..., 0]
            return count, bounds[np.arange(len(bounds)), there]

        (count, end), (below, start) = taken(place), taken(place - 1)
        is_first = place == 0
        start, below = np.where(is_first, 0.0, start), np.where(is_first, 0.0, below)
        inside = start + (end - start) * ((rank - below) / (count - below))
        inside = np.where(count - below == 0, NAN, inside)
        found = np.where(is_first & (end <= 0), end, inside)
        found = np.where(place == last, start, found)
        found = np.where((bounds[:, -1] != math.inf) | (total == 0), NAN, found)
        return np.where(within, found, beyond)

    def of_one(buckets: Buckets, step: int) -> float:
        return bucket_quantile(float(shares[step, 0]), buckets)

    return _of_each(table, making, of_many, of_one)


def fractions(table: Table, low: Floats, high: Floats, making: Making) -> Table:
    """Return the fraction of each histogram's observations between two values (K x 1 each)."""

    def of_many(counts: Floats, bounds: Floats) -> Floats:
        total = counts[..., -1]

        def rank(value: Floats) -> Floats:
            """Return how many observations are up to a value."""
            found, done = total, np.zeros(total.shape, np.bool_)
            start = np.where(bounds[:, 0] > 0, 0.0, -np.inf)
            below = np.zeros(total.shape)
            for place in range(counts.shape[-1]):
                bound, up_to = bounds[:, place], counts[..., place]
                spread = below + (up_to - below) * (value - start) / (bound - start)
                spread = np.where(start == -np.inf, up_to, spread)
                for reached, so_far in ((start >= value, below), (value < bound, spread)):
                    found = np.where(reached & ~done, np.minimum(so_far, total), found)
                    done = done | reached
                start, below = bound, up_to
            return found

        share = np.where(low >= high, 0.0, (rank(high) - rank(low)) / total)
        is_none = (bounds[:, -1] != math.inf) | (total == 0) | np.isnan(low) | np.isnan(high)
        return np.where(is_none, NAN, share)

    def of_one(buckets: Buckets, step: int) -> float:
        return bucket_fraction(float(low[step, 0]), float(high[step, 0]), buckets)

    return _of_each(table, making, of_many, of_one)


def side_by_side(
    label: str, texts: Sequence[str], tables: Sequence[Table], making: Making
) -> Table:
    """Return several tables over one axis as one table, told apart by a label.

    Raises:
        RowWiseError: two label sets are alike then.
    """
    first = tables[0]
    width, of = len(first.axis), first.axis.label

    def made() -> Axis:
        return Axis(
            width * len(texts),
            lambda place: of(place % width).override({label: texts[place // width]}),
            first.axis.size,
        )

    axis = making.once((first.axis,), ("quantiles", label, tuple(texts)), made).distinct(making)
    columns = np.concatenate([
        (np.arange(width) if each.columns is None else each.columns) + width * number
        for number, each in enumerate(tables)
    ])  # fmt: skip
    present = None
    if any(each.present is not None for each in tables):
        present = np.concatenate([each.presence() for each in tables], axis=1)
    measured = None
    if first.measured_ms is not None:
        measured = np.concatenate(
            [each.measured_ms for each in tables if each.measured_ms is not None], axis=1
        )
    values = np.concatenate([each.values for each in tables], axis=1)
    return Table(axis, columns, values, present, measured)


def _of_each(
    table: Table,
    making: Making,
    of_many: Callable[[Floats, Floats], Floats],
    of_one: Callable[[Buckets, int], float],
) -> Table:
    """Return a function applied to each histogram.

    Args:
        table: of buckets.
        making: of the query's label sets.
        of_many: from counts, K x H x B, and their bounds, H x B, to K x H values; all of them finite.
        of_one: from the buckets of one histogram, and the step.
    """
    histograms = making.once((table.axis,), "histograms", lambda: _histograms(table.axis, making))
    axis, steps = histograms.axis.nameless(making), len(table.values)
    shape = steps, len(axis)
    making.budget.hold(17 * math.prod(shape))
    values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
    measured = np.full(shape, Reduction.NEVER_MS) if table.measured_ms is not None else None
    first = np.full(len(axis), table.width)
    # -1 for a bucket without a column.
    column_of = np.full(len(table.axis), -1)
    column_of[... if table.columns is None else table.columns] = np.arange(table.width)
    for found, places in histograms.of_one_size():
        making.budget()
        if not table.width:
            break
        columns, bounds = column_of[histograms.positions[places]], histograms.bounds[places]
        there = np.broadcast_to(columns >= 0, (steps, *columns.shape))
        if table.present is not None:
            there = there & table.present[:, columns]
        counts = table.values[:, columns]
        present[:, found] = there.any(axis=-1)
        is_plain = (there & np.isfinite(counts)).all(axis=-1)
        is_plain &= (np.diff(bounds, axis=-1) > 0).all(axis=-1)
        values[:, found] = np.where(is_plain, of_many(counts, bounds), NAN)
        if measured is not None and table.measured_ms is not None:
            times_ms = np.where(there, table.measured_ms[:, columns], Reduction.NEVER_MS)
            measured[:, found] = times_ms.min(axis=-1)
            first[found] = np.where(there[0], columns, table.width).min(axis=-1)
        for step, place in np.argwhere(present[:, found] & ~is_plain).tolist():
            kept = there[step, place]
            pairs = zip(
                bounds[place, kept].tolist(), counts[step, place, kept].tolist(), strict=True
            )
            values[step, found[place]] = of_one(list(pairs), step)
    result = Table(axis, None, values, present, measured)
    if measured is None:
        return result
    shown = np.flatnonzero(present[0])
    # As for rows: in the order of their first buckets.
    return result.taken(shown[np.argsort(first[shown], kind="stable")])


def _monotonic(counts: Floats) -> Floats:
    """Return non-decreasing bucket counts, which scrapes at slightly different times can violate."""
    risen = np.empty(counts.shape)
    highest = counts[..., 0]
    for place in range(counts.shape[-1]):
        count = counts[..., place]
        apart = np.abs(count - highest) > SMALL_DELTA * np.maximum(np.abs(count), np.abs(highest))
        highest = np.where((count > highest) & apart, count, highest)
        risen[..., place] = highest
    return risen

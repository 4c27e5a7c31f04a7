"""The walk over a query's tree, with a table at every node.

A long range query takes its steps some at a time: that bounds what is held beside the samples and the
results, and how long it takes until a deadline is looked at.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gpuscale.core.errors import QueryError
from gpuscale.series.labels import LabelKey, LabelSet
from gpuscale.series.promql import tree
from gpuscale.series.promql.binary import scalar_binary, vector_binary
from gpuscale.series.promql.budget import Check, QueryTimeoutError
from gpuscale.series.promql.elementwise import ELEMENTWISE
from gpuscale.series.promql.functions.aggregate import aggregate
from gpuscale.series.promql.functions.functions import (
    DATE_FUNCTIONS,
    SCALAR_FUNCTIONS,
    VECTOR_FUNCTIONS,
    date_part,
    expected_labels,
)
from gpuscale.series.promql.functions.ranges import KEEPS_NAME, RANGE_FUNCTIONS
from gpuscale.series.promql.rows import NAN, QueryRange, Reading, Rows
from gpuscale.series.promql.rows import Windows as RowWindows
from gpuscale.series.promql.tree import Anchor, Moment, ValueType, value_type
from gpuscale.series.promql.vectorised.aggregation import AGGREGATORS, Reduction, aggregated
from gpuscale.series.promql.vectorised.axis import ONE, Axis
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Floats, Ints, is_stale
from gpuscale.series.promql.vectorised.elementwise import clamped, each, function_of, rounded_to
from gpuscale.series.promql.vectorised.matching import matched, set_operation, with_scalar
from gpuscale.series.promql.vectorised.samples import (
    SLICE_CELLS,
    QuerySamples,
    Selection,
    reduced_selector,
)
from gpuscale.series.promql.vectorised.support import RowWiseError, UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table
from gpuscale.series.promql.vectorised.windows import Windows, over_windows
from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.store import Selector
from gpuscale.series.values import Matrix, MatrixSeries, Points, Scalar, Value, Vector, VectorSample

_CHUNK_CELLS = 2 * SLICE_CELLS
"""Cells of the widest table that are computed at a time."""


def instant(
    samples: QuerySamples,
    root: tree.Node,
    at_ms: int,
    lookback_ms: int,
    *,
    left_open: bool,
    check: Check,
) -> Value:
    """Return the value of a query at one time.

    Raises:
        QueryError: it would hold too many samples.
        QueryTimeoutError: the time is up.
        RowWiseError: the row-wise evaluation has to answer.
    """
    covered = QueryRange(at_ms, at_ms, 0)
    shared = _Shared(samples, covered, np.array([at_ms]), lookback_ms, left_open, check)
    with np.errstate(all="ignore"):
        evaluation = _Evaluation(shared, shared.steps, samples.selections)
        if value_type(root) is ValueType.SCALAR:
            return Scalar(evaluation.numbers(root)[0].item(0))
        table = evaluation.table(root)
    samples.hold(2 * table.width)
    labels = table.axis.labels
    columns = range(table.width) if table.columns is None else table.columns.tolist()
    measured_ms = _measured(table).tolist()[0]
    return Vector(
        tuple(
            map(VectorSample, (labels[i] for i in columns), table.values[0].tolist(), measured_ms)
        )
    )


def range_query(
    samples: QuerySamples,
    root: tree.Node,
    covered: QueryRange,
    steps: range,
    lookback_ms: int,
    *,
    left_open: bool,
    check: Check,
) -> Matrix:
    """Return the values of a query at many times; errors as `instant`."""
    while steps:
        held = samples.held
        try:
            return _range_query(
                samples, root, covered, steps, lookback_ms, left_open=left_open, check=check
            )
        except UncoveredStepsError as error:
            uncovered = bisect_left(steps, error.from_ms)
            if not uncovered:
                raise
            steps = steps[uncovered:]
            samples.held = held
    return Matrix(())


def _range_query(
    samples: QuerySamples,
    root: tree.Node,
    covered: QueryRange,
    steps: range,
    lookback_ms: int,
    *,
    left_open: bool,
    check: Check,
) -> Matrix:
    shared = _Shared(samples, covered, np.array(steps), lookback_ms, left_open, check)
    while isinstance(root, tree.Call) and root.function in {"sort", "sort_desc"}:
        # A matrix has an order of its own.
        root = root.arguments[0]
    tables: list[Table] = []
    with np.errstate(all="ignore"):
        for start, stop in shared.chunks():
            check()
            evaluation = _Evaluation(shared, shared.steps[start:stop], samples.selections, start)
            table = evaluation.table(root)
            # Once as a table, once as points.
            samples.hold(2 * table.values.size)
            tables.append(table)
    return _matrix(tables, steps, check)


def _matrix(tables: list[Table], steps: range, check: Check) -> Matrix:
    """Return the series of tables that follow each other, sorted by labels."""
    axis = tables[0].axis.distinct()
    columns = tables[0].columns
    times_ms = list(steps)
    places = axis.by_labels
    if columns is not None:
        place_of = np.full(len(axis), -1)
        place_of[columns] = np.arange(len(columns))
        places = place_of[places]
        places = places[places >= 0]
    found: list[MatrixSeries] = []
    labels = axis.labels if columns is None else [axis.labels[i] for i in columns.tolist()]
    for first in range(0, len(places), _SERIES_A_CHECK):
        check()
        some = places[first : first + _SERIES_A_CHECK]
        values = np.concatenate([table.values[:, some] for table in tables]).T.copy()
        present = np.concatenate([table.presence()[:, some] for table in tables]).T.copy()
        whole: list[bool] = np.all(present, axis=1).tolist()
        for place, column in enumerate(some.tolist()):
            if whole[place]:
                points = Points(times_ms, array("d", values[place].tobytes()))
            else:
                kept = np.flatnonzero(present[place])
                if not kept.size:
                    continue
                points = Points(
                    [times_ms[i] for i in kept.tolist()], array("d", values[place, kept].tobytes())
                )
            found.append(MatrixSeries(labels[column], points))
    return Matrix(tuple(found))


_SERIES_A_CHECK = 1_000


class _Shared:
    """What all parts of one evaluation share."""

    def __init__(
        self,
        samples: QuerySamples,
        covered: QueryRange,
        steps: Ints,
        lookback_ms: int,
        left_open: bool,
        check: Check,
    ) -> None:
        self.samples = samples
        self.covered = covered
        self.steps = steps
        self.lookback_ms = lookback_ms
        self.left_open = left_open
        self.check = check
        self.reduced: dict[tree.Aggregate, Table] = {}
        """Of all steps: aggregations over samples that were copied some at a time."""

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield the steps that are evaluated together."""
        width = max(
            (len(each.series) for each in self.samples.selections.values() if not each.is_gradual),
            default=1,
        )
        count = max(1, _CHUNK_CELLS // max(1, width))
        for start in range(0, len(self.steps), count):
            yield start, min(len(self.steps), start + count)


class _Evaluation:
    """A query at some of its steps, over all of its series or a slice of them."""

    def __init__(
        self,
        shared: _Shared,
        steps: Ints,
        selections: Mapping[Selector, Selection],
        first_step: int = 0,
        series: tuple[int, int] | None = None,
    ) -> None:
        self._shared = shared
        self._steps = steps
        self._selections = selections
        self._first_step = first_step
        self._slice = series
        self._is_instant = shared.covered.step_ms == 0
        self._tables: dict[tree.Node, Table] = {}

    def table(self, node: tree.Node) -> Table:
        """Return the vector of an expression at each step; a scalar becomes one without labels."""
        self._shared.check()
        match node:
            case tree.Select():
                return self._select(node)
            case tree.Aggregate():
                return self._aggregate(node)
            case tree.Call() if node.function in _CALLS:
                return _CALLS[node.function](self, node)
            case tree.Call() if value_type(node) is ValueType.VECTOR:
                return self._by_rows(node)
            case tree.Binary() if value_type(node) is ValueType.VECTOR:
                return self._binary(node)
            case tree.Negate() if value_type(node) is ValueType.VECTOR:
                table = self.table(node.expression)
                return table.with_values(-table.values, table.axis.nameless(self._shared.check))
            case _:
                numbers, measured_ms = self.numbers(node)
                return self._plain(ONE, numbers[:, None], None, measured_ms)

    def numbers(self, node: tree.Node) -> tuple[Floats, int | None]:
        """Return the scalar of an expression at each step, and in an instant query when it was measured."""
        if isinstance(node, tree.Number):
            return np.full(len(self._steps), node.value), None
        readings = [step.number(node) for step in self._each_step()]
        measured_ms = readings[0].measured_ms if self._is_instant else None
        return np.array([each.value for each in readings]), measured_ms

    def _each_step(self) -> Iterator["_Step"]:
        for place, at_ms in enumerate(self._steps.tolist()):
            if not place % _STEPS_A_CHECK:
                self._shared.check()
            yield _Step(self, place, at_ms, self._shared.covered)

    def kept(self, node: tree.Node) -> Table:
        """Return the table of a node that is asked for once a step."""
        found = self._tables.get(node)
        if found is None:
            found = self._tables[node] = self.table(node)
        return found

    def rows(self, node: tree.Node, place: int) -> Rows:
        """Return the rows of an expression at one step."""
        table = self.kept(node)
        at_ms = int(self._steps[place])
        labels = table.axis.labels
        there = (
            np.arange(table.width)
            if table.present is None
            else np.flatnonzero(table.present[place])
        )
        columns = there if table.columns is None else table.columns[there]
        values = table.values[place, there].tolist()
        measured = (
            [at_ms] * len(values)
            if table.measured_ms is None
            else table.measured_ms[place, there].tolist()
        )
        return list(zip((labels[i] for i in columns.tolist()), values, measured, strict=True))

    def _plain(
        self, axis: Axis, values: Floats, present: Flags | None, measured_ms: int | None
    ) -> Table:
        """Return a table of one column."""
        measured = None
        if self._is_instant:
            at_ms = int(self._steps[0]) if measured_ms is None else measured_ms
            measured = np.full((1, 1), at_ms, np.int64)
        return Table(axis, None, values, present, measured).compressed_if_instant()

    def _by_rows(self, node: tree.Call | tree.Aggregate | tree.Binary) -> Table:
        """Return what the row-wise evaluation makes, step by step, of the tables below a node."""
        try:
            found = [_row_wise(step, node) for step in self._each_step()]
        except QueryTimeoutError:
            raise
        except QueryError as error:
            raise RowWiseError(str(error)) from None
        positions: dict[LabelKey, int] = {}
        labels: list[LabelSet] = []
        for rows in found:
            for row in rows:
                if row[0].key not in positions:
                    positions[row[0].key] = len(labels)
                    labels.append(row[0])
        shape = len(found), len(labels)
        values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
        measured = np.zeros(shape, np.int64)
        for place, rows in enumerate(found):
            for each_labels, value, measured_ms in rows:
                column = positions[each_labels.key]
                if present[place, column]:
                    raise RowWiseError("label sets are alike")
                values[place, column], present[place, column] = value, True
                measured[place, column] = measured_ms
        if self._is_instant:
            return Table(Axis(labels), None, values, None, measured)
        return Table(Axis(labels), None, values, present, None)

    def _moments(self, moment: Moment) -> Ints:
        """Return the times that a selector looks from: one for each step, or one for all."""
        covered = self._shared.covered
        match moment.at:
            case None:
                return self._steps - moment.offset_ms
            case Anchor.START:
                at_ms = covered.start_ms
            case Anchor.END:
                at_ms = covered.end_ms
            case _:
                at_ms = moment.at
        return np.array([at_ms - moment.offset_ms])

    def _select(self, node: tree.Select, *, with_times: bool = False) -> Table:
        """Return the newest sample of each series that is not too old; its times only where they matter."""
        shared, selection = self._shared, self._selections[node.matchers]
        moments = self._moments(node.moment)
        kept_ms = shared.samples.oldest_kept_ms()
        oldest = np.maximum(moments - shared.lookback_ms + shared.left_open, kept_ms)
        blocks = selection.blocks(keep_stale=True)
        is_cut = selection.cut_ms.max(initial=-NEVER_MS) >= oldest.min()
        with_times = self._is_instant or with_times
        pieces = _Pieces(selection, self._slice, len(moments), with_times=with_times)
        for block in blocks:
            rows = block.reached(moments) - 1
            if is_cut:
                cut = selection.cut_ms[block.positions] >= oldest[:, None]
                if (cut & block.spread(rows < 0)).any():
                    raise RowWiseError("a sample may have been dropped")
            if not len(block.times_ms):
                continue
            times = np.take_along_axis(block.times_ms, np.maximum(rows, 0), axis=0)
            values = block.at(block.values, np.maximum(rows, 0))
            present = block.spread((rows >= 0) & (times >= oldest[:, None])) & ~is_stale(values)
            pieces.add(block, values, present, times)
            shared.check()
        return self._made(pieces)

    def _made(self, pieces: "_Pieces") -> Table:
        table = pieces.table(len(self._steps))
        return table.compressed_if_instant() if self._is_instant else table

    def over_range(self, node: tree.Call) -> Table:
        """Return a function of a range vector."""
        shared = self._shared
        ranged = next(x for x in node.arguments if value_type(x) is ValueType.MATRIX)
        if not isinstance(ranged, tree.SelectRange):
            raise RowWiseError("a subquery")
        numbers = [self.numbers(x)[0] for x in node.arguments if x is not ranged]
        moments = self._moments(ranged.selector.moment)
        if numbers or node.function == "predict_linear":
            moments = np.broadcast_to(moments, self._steps.shape)
        selection = self._selections[ranged.selector.matchers]
        pieces = _Pieces(selection, self._slice, len(moments), with_times=self._is_instant)
        at_ms = self._steps[: len(moments)]
        for windows in self._windows(ranged, moments, at_ms):
            shared.check()
            values, present = over_windows(node.function, windows, numbers)
            pieces.add(windows.block, values, present, windows.time_of_last())
        table = self._made(pieces)
        if node.function in KEEPS_NAME:
            return table
        return table.with_values(table.values, table.axis.nameless(self._shared.check))

    def _windows(self, ranged: tree.SelectRange, moments: Ints, at_ms: Ints) -> Iterator[Windows]:
        shared, selection = self._shared, self._selections[ranged.selector.matchers]
        starts = moments - ranged.range_ms
        kept_ms = shared.samples.oldest_kept_ms()
        blocks = selection.blocks(keep_stale=False)
        is_kept = moments >= kept_ms
        cut_ms = int(selection.cut_ms.max(initial=-NEVER_MS)) - shared.left_open
        if cut_ms >= starts[is_kept].min(initial=NEVER_MS):
            if cut_ms < kept_ms and ranged.selector.moment.at is None:
                reach_ms = ranged.range_ms + ranged.selector.moment.offset_ms
                raise UncoveredStepsError(cut_ms + reach_ms + 1)
            raise RowWiseError("a sample may have been dropped")
        # A sample at the start itself belongs to the range where that is not open.
        before = 0 if shared.left_open else 1
        for block in blocks:
            high = block.reached(moments)
            low = np.where(is_kept[:, None], block.reached(starts - before), high)
            first, last = int(low.min()), int(high.max())
            if last > first:
                narrow = block.rows(first, last)
                yield Windows(
                    narrow, low - first, high - first, starts, moments, at_ms, shared.check
                )

    def absent(self, node: tree.Call) -> Table:
        """Return 1 where a vector, or a range vector, is empty."""
        inside = node.arguments[0]
        there = np.zeros(len(self._steps), np.bool_)
        if node.function == "absent":
            there |= self.table(inside).presence().any(axis=1)
        elif isinstance(inside, tree.SelectRange):
            moments = self._moments(inside.selector.moment)
            for windows in self._windows(inside, moments, moments):
                used = np.unique(windows.block.group)
                there |= (windows.lengths()[:, used] > 0).any(axis=1)
        else:
            raise RowWiseError("a subquery")
        axis = Axis([expected_labels(inside)])
        return self._plain(axis, np.ones((len(there), 1)), ~there[:, None], None)

    def _aggregate(self, node: tree.Aggregate) -> Table:
        selector = reduced_selector(node)
        if selector is not None and self._selections[selector.matchers].is_gradual:
            return self._gradual(node, self._selections[selector.matchers])
        if node.operator not in AGGREGATORS:
            return self._by_rows(node)
        table = self.table(node.expression)
        groups = table.axis.groups(node.labels, self._shared.check, by=node.by)
        numbers = None if node.parameter is None else self.numbers(node.parameter)[0]
        return aggregated(node, table, groups, numbers, self._shared.check)

    def _gradual(self, node: tree.Aggregate, selection: Selection) -> Table:
        """Return an aggregation of series that are copied some at a time, for all steps of the query."""
        shared = self._shared
        found = shared.reduced.get(node)
        if found is None:
            steps = shared.steps
            reduction: Reduction | None = None
            for start, stop, part in shared.samples.slices(selection, len(steps)):
                shared.check()
                selections = {selection.matchers: part}
                inside = _Evaluation(shared, steps, selections, series=(start, stop))
                table = inside.table(node.expression)
                if reduction is None:
                    groups = table.axis.groups(node.labels, self._shared.check, by=node.by)
                    shared.samples.hold(len(steps) * len(groups.axis))
                    reduction = Reduction(node.operator, groups, len(steps))
                reduction.add(table)
            if reduction is None:
                raise RowWiseError("no series")
            found = shared.reduced[node] = reduction.table()
        return found.rows(self._first_step, self._first_step + len(self._steps))

    def _binary(self, node: tree.Binary) -> Table:
        if node.matching.fill_left is not None or node.matching.fill_right is not None:
            return self._by_rows(node)
        if node.operator in tree.SET_OPERATORS:
            return set_operation(
                node, self.table(node.left), self.table(node.right), self._shared.check
            )
        for vector, scalar in ((node.left, node.right), (node.right, node.left)):
            if value_type(scalar) is ValueType.SCALAR:
                table, (numbers, measured_ms) = self.table(vector), self.numbers(scalar)
                return with_scalar(
                    node,
                    table,
                    numbers[:, None],
                    measured_ms,
                    self._shared.check,
                    swapped=scalar is node.left,
                )
        return matched(node, self.table(node.left), self.table(node.right), self._shared.check)

    def mapped(self, node: tree.Call) -> Table:
        """Return a function of one number, of each value."""
        table = self.table(node.arguments[0])
        values = function_of(node.function, table.values, self._shared.check)
        return table.with_values(values, table.axis.nameless(self._shared.check))

    def dated(self, node: tree.Call) -> Table:
        """Return a part of the date of each value."""
        if not node.arguments:
            return self._by_rows(node)
        table = self.table(node.arguments[0])
        values = each(
            lambda value: date_part(node.function, value), self._shared.check, table.values
        )
        return table.with_values(values, table.axis.nameless(self._shared.check))

    def rounded(self, node: tree.Call) -> Table:
        """Return each value as a multiple of a number."""
        table = self.table(node.arguments[0])
        nearest = np.ones((1, 1))
        if len(node.arguments) > 1:
            nearest = self.numbers(node.arguments[1])[0][:, None]
        return table.with_values(
            rounded_to(table.values, nearest), table.axis.nameless(self._shared.check)
        )

    def clamped(self, node: tree.Call) -> Table:
        """Return each value kept between bounds; nothing where they are the wrong way round."""
        table = self.table(node.arguments[0])
        bounds = [self.numbers(each)[0][:, None] for each in node.arguments[1:]]
        endless = np.full((1, 1), np.inf)
        low = -endless if node.function == "clamp_max" else bounds[0]
        high = endless if node.function == "clamp_min" else bounds[-1]
        axis = table.axis.nameless(self._shared.check)
        clipped = table.with_values(clamped(table.values, low, high), axis)
        is_wrong = high < low
        if is_wrong.any():
            return clipped.where(np.broadcast_to(~is_wrong, table.values.shape))
        return clipped

    def timestamp(self, node: tree.Call) -> Table:
        """Return when each value was measured, or the time of evaluation."""
        inside = node.arguments[0]
        if not isinstance(inside, tree.Select):
            table = self.table(inside)
            seconds = np.broadcast_to((self._steps / 1000)[:, None], table.values.shape)
            return table.with_values(seconds, table.axis.nameless(self._shared.check))
        table = self._select(inside, with_times=True)
        if table.measured_ms is None:
            raise RowWiseError("times are not known")
        measured = table.measured_ms if self._is_instant else None
        return Table(
            table.axis.nameless(self._shared.check),
            table.columns,
            table.measured_ms / 1000,
            table.present,
            measured,
        )

    def vector(self, node: tree.Call) -> Table:
        """Return a scalar as a vector."""
        return self.table(node.arguments[0])

    def relabelled(self, node: tree.Call) -> Table:
        """Return a vector with other labels, worked out for all of its series at once."""
        table = self.table(node.arguments[0])

        def made() -> Axis:
            found: list[LabelSet] = []
            for start in range(0, len(table.axis), _LABELS_AT_ONCE):
                self._shared.check()
                labels = table.axis.labels[start : start + _LABELS_AT_ONCE]
                given: Rows = [(each, 0.0, 0) for each in labels]
                step = _Step(self, 0, 0, self._shared.covered, given=given)
                rows = VECTOR_FUNCTIONS[node.function](step, node.arguments)
                found.extend(row[0] for row in rows)
            return Axis(found)

        try:
            axis = table.axis.remembered((node.function, node.arguments[1:]), made)
        except QueryTimeoutError:
            raise
        except QueryError as error:
            raise RowWiseError(str(error)) from None
        return table.with_values(table.values, axis.distinct())

    def sorted_by_value(self, node: tree.Call) -> Table:
        """Return the rows in the order of their values."""
        if not self._is_instant:
            raise RowWiseError("rows are in another order at each step")
        table = self.table(node.arguments[0])
        values = table.values[0]
        key = -values if node.function == "sort_desc" else values
        return table.taken(np.lexsort((key, np.isnan(values))))


class _Pieces:
    """A table in the making, block by block.

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


class _Step:
    """One step of an evaluation, as row-wise functions see it."""

    def __init__(
        self,
        evaluation: _Evaluation,
        place: int,
        at_ms: int,
        covered: QueryRange,
        given: Rows | None = None,
    ) -> None:
        self._evaluation = evaluation
        self._place = place
        self._covered = covered
        self._given = given
        self.at_ms = at_ms

    def query_range(self) -> QueryRange:
        """Return what the whole query covers."""
        return self._covered

    def rows(self, node: tree.Node) -> Rows:
        """Return the instant vector of an expression."""
        return self._evaluation.rows(node, self._place) if self._given is None else self._given

    def number(self, node: tree.Node) -> Reading:
        """Return the scalar of an expression."""
        match node:
            case tree.Number():
                return Reading(node.value)
            case tree.Call():
                return SCALAR_FUNCTIONS[node.function](self, node.arguments)
            case tree.Binary():
                return scalar_binary(self, node)
            case tree.Negate():
                value, measured_ms = self.number(node.expression)
                return Reading(-value, measured_ms)
            case _:
                raise RowWiseError("no scalar")

    def windows(self, node: tree.Node) -> RowWindows:
        """Refuse: range vectors have a way of their own."""
        raise RowWiseError("a range vector")

    def text(self, node: tree.Node) -> str:
        """Return the string of an expression."""
        if isinstance(node, tree.Text):
            return node.value
        raise RowWiseError("no string")


def _row_wise(step: _Step, node: tree.Call | tree.Aggregate | tree.Binary) -> Rows:
    match node:
        case tree.Call():
            return VECTOR_FUNCTIONS[node.function](step, node.arguments)
        case tree.Aggregate():
            return aggregate(step, node)
        case tree.Binary():
            return vector_binary(step, node)


_STEPS_A_CHECK = 16
_LABELS_AT_ONCE = 5_000
_CALLS: dict[str, Callable[[_Evaluation, tree.Call], Table]] = {
    **dict.fromkeys(RANGE_FUNCTIONS, _Evaluation.over_range),
    **dict.fromkeys(ELEMENTWISE, _Evaluation.mapped),
    **dict.fromkeys(DATE_FUNCTIONS, _Evaluation.dated),
    **dict.fromkeys(("absent", "absent_over_time"), _Evaluation.absent),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _Evaluation.clamped),
    **dict.fromkeys(("label_replace", "label_join"), _Evaluation.relabelled),
    **dict.fromkeys(("sort", "sort_desc"), _Evaluation.sorted_by_value),
    "round": _Evaluation.rounded,
    "timestamp": _Evaluation.timestamp,
    "vector": _Evaluation.vector,
}


def _measured(table: Table) -> Ints:
    if table.measured_ms is None:
        raise RowWiseError("times are not known")
    return table.measured_ms

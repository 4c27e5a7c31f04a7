"""The walk over a query's tree, with a table at every node."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gpuscale.core.errors import QueryError
from gpuscale.series.labels import METADATA, LabelKey, LabelSet
from gpuscale.series.promql import tree
from gpuscale.series.promql.binary import scalar_binary, vector_binary
from gpuscale.series.promql.budget import (
    ROW_BYTES,
    QueryTimeoutError,
    TooManyBytesError,
    row_bytes,
)
from gpuscale.series.promql.functions.aggregate import aggregate
from gpuscale.series.promql.functions.functions import (
    SCALAR_FUNCTIONS,
    VECTOR_FUNCTIONS,
    expected_labels,
)
from gpuscale.series.promql.functions.ranges import KEEPS_NAME, RANGE_FUNCTIONS
from gpuscale.series.promql.functions.sampling import offset
from gpuscale.series.promql.rows import NAN, Evaluator, PlannedQuery, QueryRange, Reading, Rows
from gpuscale.series.promql.rows import Windows as RowWindows
from gpuscale.series.promql.tree import Anchor, Moment, ValueType, value_type
from gpuscale.series.promql.vectorised.aggregation import (
    Reduction,
    aggregated,
    counted_values,
    sampled,
)
from gpuscale.series.promql.vectorised.axis import ONE, Axis
from gpuscale.series.promql.vectorised.blocks import Flags, Floats, Ints, is_stale
from gpuscale.series.promql.vectorised.calls import CALLS
from gpuscale.series.promql.vectorised.matching import matched, set_operation, with_scalar
from gpuscale.series.promql.vectorised.over_time import over_windows
from gpuscale.series.promql.vectorised.pieces import Pieces
from gpuscale.series.promql.vectorised.samples import (
    CELL_BYTES,
    QuerySamples,
    Selection,
    reduced_selector,
)
from gpuscale.series.promql.vectorised.support import RowWiseError, UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table
from gpuscale.series.promql.vectorised.windows import Windows
from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.index import Selector


class QueryState:
    """What all parts of one evaluation share."""

    def __init__(self, samples: QuerySamples, query: PlannedQuery) -> None:
        self.samples = samples
        self.making = samples.making
        self.budget = samples.budget
        self.covered = query.covered
        self.steps: Ints = np.array(query.steps)
        self.lookback_ms = query.lookback_ms
        self.left_open = query.left_open
        self.check = query.check
        self.reduced: dict[tree.Aggregate, Table] = {}
        """Of all steps: aggregations over samples that were copied some at a time."""


class Evaluation:
    """A query at some of its steps, over all of its series or a slice of them."""

    def __init__(
        self,
        shared: QueryState,
        steps: Ints,
        selections: Mapping[Selector, Selection],
        first_step: int = 0,
        series: tuple[int, int] | None = None,
    ) -> None:
        self._shared = shared
        self.check = shared.check
        self.making = shared.making
        self.steps = steps
        self._selections = selections
        self._first_step = first_step
        self._slice = series
        self.is_instant = shared.covered.step_ms == 0
        self._tables: dict[tree.Node, Table] = {}
        self._labels: dict[tree.Node, list[LabelSet]] = {}
        self._kept = 0
        """Bytes of these tables."""

    def table(self, node: tree.Node) -> Table:
        """Return the vector of an expression at each step; a scalar becomes one without labels."""
        self.check()
        budget = self._shared.budget
        held, kept = budget.held, self._kept
        table = self._table(node)
        # What the node was made of is let go only once it is there, less what is asked for once a step.
        budget.hold(table.size)
        budget.held = held + table.size + self._kept - kept
        return table

    def _table(self, node: tree.Node) -> Table:
        match node:
            case tree.Select():
                return self.select(node)
            case tree.Aggregate():
                return self._aggregate(node)
            case tree.Call() if node.function in _CALLS:
                return _CALLS[node.function](self, node)
            case tree.Call() if value_type(node) is ValueType.VECTOR:
                return self.by_rows(node)
            case tree.Binary() if value_type(node) is ValueType.VECTOR:
                return self._binary(node)
            case tree.Negate() if value_type(node) is ValueType.VECTOR:
                table = self.table(node.expression)
                return table.with_values(-table.values, table.axis.nameless(self.making))
            case _:
                numbers, measured_ms = self.numbers(node)
                return self._plain(ONE, numbers[:, None], None, measured_ms)

    def numbers(self, node: tree.Node) -> tuple[Floats, int | None]:
        """Return the scalar of an expression at each step, and in an instant query when it was measured."""
        if isinstance(node, tree.Number):
            return np.full(len(self.steps), node.value), None
        readings = [step.number(node) for step in self._each_step()]
        measured_ms = readings[0].measured_ms if self.is_instant else None
        return np.array([each.value for each in readings]), measured_ms

    def _each_step(self) -> Iterator["_Step"]:
        for place, at_ms in enumerate(self.steps.tolist()):
            if not place % _STEPS_A_CHECK:
                self.check()
            yield _Step(self, place, at_ms, self._shared.covered)

    def step_of(self, rows: Rows) -> Evaluator:
        """Return a step in which every vector has the given rows."""
        return _Step(self, 0, 0, self._shared.covered, given=rows)

    def kept(self, node: tree.Node) -> Table:
        """Return the table of a node that is asked for once a step."""
        found = self._tables.get(node)
        if found is None:
            found = self._tables[node] = self.table(node)
            self._kept += found.size
        return found

    def rows(self, node: tree.Node, place: int) -> Rows:
        """Return the rows of an expression at one step."""
        table = self.kept(node)
        at_ms = int(self.steps[place])
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
        label_sets = self._labels.get(node)
        if label_sets is None:
            # Each step has the same ones, and may look at all of them.
            label_sets = self._labels[node] = table.axis.some(None, self._shared.budget)
        self._shared.budget.hold(ROW_BYTES * len(values))
        return list(zip((label_sets[i] for i in columns.tolist()), values, measured, strict=True))

    def _plain(
        self, axis: Axis, values: Floats, present: Flags | None, measured_ms: int | None
    ) -> Table:
        """Return a table of one column."""
        measured = None
        if self.is_instant:
            at_ms = int(self.steps[0]) if measured_ms is None else measured_ms
            measured = np.full((1, 1), at_ms, np.int64)
        return Table(axis, None, values, present, measured).compressed_if_instant()

    def by_rows(self, node: tree.Call | tree.Aggregate | tree.Binary) -> Table:
        """Return what the row-wise evaluation makes, step by step, of the tables below a node."""
        budget = self._shared.budget
        found: list[Rows] = []
        try:
            for step in self._each_step():
                held, kept = budget.held, self._kept
                found.append(_row_wise(step, node))
                # What the step has looked at is let go.
                budget.held = held + self._kept - kept
                budget.hold(row_bytes(found[-1], new_labels=True))
        except (QueryTimeoutError, TooManyBytesError):
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
        axis = self.making.listed(labels, 0)
        if self.is_instant:
            return Table(axis, None, values, None, measured)
        return Table(axis, None, values, present, None)

    def _moments(self, moment: Moment) -> Ints:
        """Return the times that a selector looks from: one for each step, or one for all."""
        covered = self._shared.covered
        match moment.at:
            case None:
                return self.steps - moment.offset_ms
            case Anchor.START:
                at_ms = covered.start_ms
            case Anchor.END:
                at_ms = covered.end_ms
            case _:
                at_ms = moment.at
        return np.array([at_ms - moment.offset_ms])

    def select(self, node: tree.Select, *, with_times: bool = False) -> Table:
        """Return the newest sample of each series that is not too old; its times only where they matter."""
        shared, selection = self._shared, self._selections[node.matchers]
        moments = self._moments(node.moment)
        kept_ms = shared.samples.oldest_kept_ms()
        oldest = np.maximum(moments - shared.lookback_ms + shared.left_open, kept_ms)
        blocks = selection.blocks(keep_stale=True)
        is_cut = selection.cut_ms.max(initial=-NEVER_MS) >= oldest.min()
        with_times = self.is_instant or with_times
        pieces = Pieces(selection, self._slice, len(moments), with_times=with_times)
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

    def _made(self, pieces: Pieces) -> Table:
        table = pieces.table(len(self.steps))
        return table.compressed_if_instant() if self.is_instant else table

    def over_range(self, node: tree.Call) -> Table:
        """Return a function of a range vector."""
        shared = self._shared
        ranged = next(x for x in node.arguments if value_type(x) is ValueType.MATRIX)
        if not isinstance(ranged, tree.SelectRange):
            raise RowWiseError("a subquery")
        numbers = [self.numbers(x)[0] for x in node.arguments if x is not ranged]
        moments = self._moments(ranged.selector.moment)
        if numbers or node.function == "predict_linear":
            moments = np.broadcast_to(moments, self.steps.shape)
        selection = self._selections[ranged.selector.matchers]
        pieces = Pieces(selection, self._slice, len(moments), with_times=self.is_instant)
        at_ms = self.steps[: len(moments)]
        for windows in self._windows(ranged, moments, at_ms):
            shared.check()
            values, present = over_windows(node.function, windows, numbers)
            pieces.add(windows.block, values, present, windows.time_of_last())
        table = self._made(pieces)
        if node.function in KEEPS_NAME:
            return table
        return table.with_values(table.values, table.axis.nameless(self.making))

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
        there = np.zeros(len(self.steps), np.bool_)
        if node.function == "absent":
            there |= self.table(inside).presence().any(axis=1)
        elif isinstance(inside, tree.SelectRange):
            moments = self._moments(inside.selector.moment)
            for windows in self._windows(inside, moments, moments):
                used = np.unique(windows.block.group)
                there |= (windows.lengths()[:, used] > 0).any(axis=1)
        else:
            raise RowWiseError("a subquery")
        axis = Axis.listed([expected_labels(inside)])
        return self._plain(axis, np.ones((len(there), 1)), ~there[:, None], None)

    def _aggregate(self, node: tree.Aggregate) -> Table:
        selector = reduced_selector(node)
        if selector is not None and self._selections[selector.matchers].is_gradual:
            return self._gradual(node, self._selections[selector.matchers])
        if node.operator == "count_values" and isinstance(node.parameter, tree.Text):
            label = node.parameter.value
            if label in METADATA or (label in node.labels and not node.by):
                return self.by_rows(node)
            return counted_values(node, label, self.table(node.expression), self.making)
        table = self.table(node.expression)
        numbers = None if node.parameter is None else self.numbers(node.parameter)[0]
        if node.operator == "limit_ratio" and numbers is not None:
            axis = table.axis
            offsets = self.making.once(
                (axis,), "offsets", lambda: np.fromiter(map(offset, axis), np.float64, len(axis))
            )
            return sampled(table, offsets, numbers)
        groups = table.axis.groups(node.labels, self.making, by=node.by)
        return aggregated(node, table, groups, numbers, self.check)

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
                inside = Evaluation(shared, steps, selections, series=(start, stop))
                table = inside.table(node.expression)
                if reduction is None:
                    groups = table.axis.groups(node.labels, self.making, by=node.by)
                    shared.budget.hold(7 * CELL_BYTES * len(steps) * len(groups.axis))
                    reduction = Reduction(node.operator, groups, len(steps))
                reduction.add(table)
            if reduction is None:
                raise RowWiseError("no series")
            found = shared.reduced[node] = reduction.table()
        return found.rows(self._first_step, self._first_step + len(self.steps))

    def _binary(self, node: tree.Binary) -> Table:
        if node.matching.fill_left is not None or node.matching.fill_right is not None:
            return self.by_rows(node)
        if node.operator in tree.SET_OPERATORS:
            return set_operation(node, self.table(node.left), self.table(node.right), self.making)
        for vector, scalar in ((node.left, node.right), (node.right, node.left)):
            if value_type(scalar) is ValueType.SCALAR:
                table, (numbers, measured_ms) = self.table(vector), self.numbers(scalar)
                return with_scalar(
                    node,
                    table,
                    numbers[:, None],
                    measured_ms,
                    self.making,
                    swapped=scalar is node.left,
                )
        return matched(node, self.table(node.left), self.table(node.right), self.making)


class _Step:
    """One step of an evaluation, as row-wise functions see it."""

    def __init__(
        self,
        evaluation: Evaluation,
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

    def hold_labels(self, size: int) -> None:
        """Count bytes of texts that are made for label sets."""
        self._evaluation.making.budget.hold_labels(size)

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
_CALLS: Mapping[str, Callable[[Evaluation, tree.Call], Table]] = {
    **CALLS,
    **dict.fromkeys(RANGE_FUNCTIONS, Evaluation.over_range),
    **dict.fromkeys(("absent", "absent_over_time"), Evaluation.absent),
}

"""The evaluation of a syntax tree, with a table at each node."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy

import numpy as np

from gpuscale.base.errors import QueryError
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
from gpuscale.series.promql.rows import RangeWindows as RowWindows
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
    SLICE_CELLS,
    QuerySamples,
    Selection,
    reduced_selector,
)
from gpuscale.series.promql.vectorised.subqueries import (
    blocks_of_table,
    inner_steps,
    uncovered,
    windows_of,
)
from gpuscale.series.promql.vectorised.support import RowWiseError, UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table, stacked
from gpuscale.series.promql.vectorised.windows import Windows
from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.index import Selector


class QueryState:
    """What all parts of an evaluation share."""

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
        self.is_inner = False
        """Whether it is a subquery, which needs all that it looks at, however old."""

    def within(self, steps: Ints) -> "QueryState":
        """Return the state for a subquery, with its own steps."""
        inner = copy(self)
        inner.steps, inner.reduced, inner.is_inner = steps, {}, True
        return inner

    def oldest_kept_ms(self) -> int:
        """Return the earliest time for which queries are answered."""
        return -NEVER_MS if self.is_inner else self.samples.oldest_kept_ms()


class Evaluation:
    """The evaluation of a query at some of its steps, for all series or a slice of them."""

    def __init__(
        self,
        shared: QueryState,
        steps: Ints,
        selections: Mapping[Selector, Selection],
        first_step: int = 0,
        series: tuple[int, int] | None = None,
        *,
        is_instant: bool | None = None,
    ) -> None:
        self._shared = shared
        self.check = shared.check
        self.making = shared.making
        self.steps = steps
        self._selections = selections
        self._first_step = first_step
        self._slice = series
        self.is_instant = shared.covered.step_ms == 0 if is_instant is None else is_instant
        """Whether tables are rows, in order and with times."""
        self._tables: dict[tree.Node, Table] = {}
        self._labels: dict[tree.Node, list[LabelSet]] = {}
        self._kept = 0
        """Bytes of these tables."""

    def table(self, node: tree.Node) -> Table:
        """Return an expression's vector at each step; a scalar becomes one without labels."""
        self.check()
        budget = self._shared.budget
        held, kept = budget.held, self._kept
        table = self._table(node)
        # A node's inputs are freed once its result exists, except tables that every step reads.
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
        """Return an expression's scalar at each step, and for an instant query its sample time."""
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
        """Return a step at which each vector has the given rows."""
        return _Step(self, 0, 0, self._shared.covered, given=rows)

    def kept(self, node: tree.Node) -> Table:
        """Return a node's table, kept while row-wise steps ask for it."""
        found = self._tables.get(node)
        if found is None:
            found = self._tables[node] = self.table(node)
            self._kept += found.size
        return found

    def rows(self, node: tree.Node, place: int) -> Rows:
        """Return an expression's rows at one step."""
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
            # All steps share them, and each may read all of them.
            label_sets = self._labels[node] = table.axis.some(None, self._shared.budget)
        self._shared.budget.hold(ROW_BYTES * len(values))
        return list(zip((label_sets[i] for i in columns.tolist()), values, measured, strict=True))

    def _plain(
        self, axis: Axis, values: Floats, present: Flags | None, measured_ms: int | None
    ) -> Table:
        """Return a table of one column without labels."""
        measured = None
        if self.is_instant:
            at_ms = int(self.steps[0]) if measured_ms is None else measured_ms
            measured = np.full((1, 1), at_ms, np.int64)
        return Table(axis, None, values, present, measured).compressed_if_instant()

    def by_rows(self, node: tree.Call | tree.Aggregate | tree.Binary) -> Table:
        """Return the results of row-wise evaluation of a node, step by step, from its children's tables."""
        budget = self._shared.budget
        found: list[Rows] = []
        try:
            for step in self._each_step():
                held, kept = budget.held, self._kept
                found.append(_row_wise(step, node))
                # The samples that a step has read are freed.
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
        """Return the times at which a selector is evaluated: one for each step, or one for all."""
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
        """Return each series' newest sample within the lookback; sample times only if needed."""
        shared, selection = self._shared, self._selections[node.matchers]
        moments = self._moments(node.moment)
        kept_ms = shared.oldest_kept_ms()
        oldest = np.maximum(moments - shared.lookback_ms + shared.left_open, kept_ms)
        blocks = selection.blocks(keep_stale=True)
        is_cut = selection.cut_ms.max(initial=-NEVER_MS) >= oldest.min()
        with_times = self.is_instant or with_times
        pieces = Pieces(selection, self._slice, len(moments), with_times=with_times)
        for block in blocks:
            rows = block.reached(moments) - 1
            if is_cut:
                cut = selection.cut_ms[block.positions] >= oldest[:, None]
                lacking = cut & block.spread(rows < 0)
                if lacking.any():
                    cut_ms = selection.cut_ms[block.positions][lacking.any(axis=0)]
                    if node.moment.at is None and cut_ms.max() < shared.samples.oldest_kept_ms():
                        last = np.flatnonzero(lacking.any(axis=1))[-1]
                        raise UncoveredStepsError(int(self.steps[last]) + 1)
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
        """Return the result of a function of a range vector."""
        ranged = next(x for x in node.arguments if value_type(x) is ValueType.MATRIX)
        numbers = [self.numbers(x)[0] for x in node.arguments if x is not ranged]
        if not isinstance(ranged, tree.Subquery | tree.SelectRange):
            raise RowWiseError("no range vector")
        moment = ranged.moment if isinstance(ranged, tree.Subquery) else ranged.selector.moment
        moments = self._moments(moment)
        if numbers or node.function == "predict_linear":
            moments = np.broadcast_to(moments, self.steps.shape)
        if isinstance(ranged, tree.Subquery):
            table = self._over_subquery(node.function, ranged, moments, numbers)
        else:
            selection = self._selections[ranged.selector.matchers]
            pieces = Pieces(selection, self._slice, len(moments), with_times=self.is_instant)
            for windows in self._windows(ranged, moments, self.steps[: len(moments)]):
                self.check()
                values, present = over_windows(node.function, windows, numbers)
                pieces.add(windows.block, values, present, windows.time_of_last())
            table = self._made(pieces)
        if node.function in KEEPS_NAME:
            return table
        return table.with_values(table.values, table.axis.nameless(self.making))

    def _windows(self, ranged: tree.SelectRange, moments: Ints, at_ms: Ints) -> Iterator[Windows]:
        shared, selection = self._shared, self._selections[ranged.selector.matchers]
        starts = moments - ranged.range_ms
        blocks = selection.blocks(keep_stale=False)
        is_kept = moments >= shared.oldest_kept_ms()
        cut_ms = int(selection.cut_ms.max(initial=-NEVER_MS)) - shared.left_open
        if cut_ms >= starts[is_kept].min(initial=NEVER_MS):
            if cut_ms < shared.samples.oldest_kept_ms() and ranged.selector.moment.at is None:
                reach_ms = ranged.range_ms + ranged.selector.moment.offset_ms
                raise UncoveredStepsError(cut_ms + reach_ms + 1)
            raise RowWiseError("a sample may have been dropped")
        yield from windows_of(
            iter(blocks), starts, moments, at_ms, is_kept, self.check, left_open=shared.left_open
        )

    def _over_subquery(
        self, function: str, node: tree.Subquery, moments: Ints, numbers: list[Floats]
    ) -> Table:
        """Return the result of a function of a subquery."""
        inside, steps = self._subquery(node, moments)
        shape = len(moments), inside.width
        self._shared.budget.hold((25 if self.is_instant else 9) * math.prod(shape))
        values, present = np.full(shape, NAN), np.zeros(shape, np.bool_)
        first_ms, last_ms = np.zeros((2, inside.width if self.is_instant else 0), np.int64)
        for windows in windows_of(
            blocks_of_table(inside, steps),
            moments - node.range_ms,
            moments,
            self.steps[: len(moments)],
            np.ones(len(moments), np.bool_),
            self.check,
            left_open=self._shared.left_open,
        ):
            places = windows.block.positions
            values[:, places], present[:, places] = over_windows(function, windows, numbers)
            if self.is_instant:
                first_ms[places] = windows.block.spread(windows.time_of_first())[0]
                last_ms[places] = windows.block.spread(windows.time_of_last())[0]
        axis = inside.axis.distinct(self.making)
        if self.is_instant:
            found = Table(axis, inside.columns, values, None, np.zeros(shape, np.int64))
            return self._in_order(node, found, present[0], first_ms, last_ms)
        if len(moments) == 1:
            shape = len(self.steps), inside.width
            values, present = np.broadcast_to(values, shape), np.broadcast_to(present, shape)
        return Table(axis, inside.columns, values, None if present.all() else present, None)

    def _subquery(self, node: tree.Subquery, moments: Ints) -> tuple[Table, Ints]:
        """Return a subquery's values at its own steps, with these steps."""
        shared, budget = self._shared, self._shared.budget
        steps = inner_steps(node, moments, budget, left_open=shared.left_open)
        if not steps.size:
            return Table(Axis.listed([]), None, np.zeros((0, 0)), None, None), steps
        inner, held = shared.within(steps), budget.held
        rows = max(1, SLICE_CELLS // self._width())
        try:
            parts = [
                Evaluation(
                    *(inner, steps[first : first + rows], self._selections, first, self._slice),
                    is_instant=False,
                ).table(node.expression)
                for first in range(0, len(steps), rows)
            ]
        except UncoveredStepsError as error:
            if node.moment.at is not None:
                raise RowWiseError("a sample may have been dropped") from None
            raise uncovered(node, error, left_open=shared.left_open) from None
        table = stacked(parts, self.making)
        budget.held = held + table.size
        return table, steps

    def _width(self) -> int:
        """Return the number of series of the widest selector that is held as a whole."""
        if self._slice is not None:
            return self._slice[1] - self._slice[0]
        whole = (each for each in self._selections.values() if not each.is_gradual)
        return max((len(each.series) for each in whole), default=1) or 1

    def _in_order(
        self, node: tree.Subquery, table: Table, present: Flags, first_ms: Ints, last_ms: Ints
    ) -> Table:
        """Return an instant query's columns as rows: in order, with sample times.

        They come in the order of the first step that has them, and are as old as the last one.

        Args:
            node: a subquery.
            table: what became of its windows.
            present: whether there is such a value; of each column, as are the next two.
            first_ms: the first step with a sample.
            last_ms: the last one.
        """
        budget, order = self._shared.budget, [np.zeros(0, np.int64)]
        measured = np.zeros(table.width, np.int64)
        for at_ms in np.unique(np.concatenate([first_ms[present], last_ms[present]])):
            held, step = budget.held, np.array([at_ms])
            rows = Evaluation(
                *(self._shared.within(step), step, self._selections, 0, self._slice),
                is_instant=True,
            ).table(node.expression)
            columns = rows.columns_in(table, budget)
            order.append(columns[(first_ms[columns] == at_ms) & present[columns]])
            if rows.measured_ms is None:
                raise RowWiseError("times are not known")
            is_last = last_ms[columns] == at_ms
            measured[columns[is_last]] = rows.measured_ms[0, is_last]
            budget.held = held
        shown = Table(table.axis, table.columns, table.values, None, measured[None, :])
        return shown.taken(np.concatenate(order))

    def absent(self, node: tree.Call) -> Table:
        """Return 1 where a vector or range vector is empty."""
        inside = node.arguments[0]
        there = np.zeros(len(self.steps), np.bool_)
        if node.function == "absent":
            there |= self.table(inside).presence().any(axis=1)
        elif isinstance(inside, tree.SelectRange):
            moments = self._moments(inside.selector.moment)
            for windows in self._windows(inside, moments, moments):
                used = np.unique(windows.block.group)
                there |= (windows.lengths()[:, used] > 0).any(axis=1)
        elif isinstance(inside, tree.Subquery):
            moments = self._moments(inside.moment)
            table, steps = self._subquery(inside, moments)
            found_ms = steps[table.presence().any(axis=1)]
            starts = moments - inside.range_ms - (0 if self._shared.left_open else 1)
            low, high = (np.searchsorted(found_ms, each, "right") for each in (starts, moments))
            there |= high > low
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
        if node.operator in _OF_FIRST and not self.is_instant and _has_or(node.expression):
            # A series may precede others at one step and follow them at another.
            return self.by_rows(node)
        groups = table.axis.groups(node.labels, self.making, by=node.by)
        return aggregated(node, table, groups, numbers, self.check)

    def _gradual(self, node: tree.Aggregate, selection: Selection) -> Table:
        """Return an aggregation over series that are copied in batches, for all steps."""
        shared = self._shared
        found = shared.reduced.get(node)
        if found is None:
            steps = shared.steps
            reduction: Reduction | None = None
            for start, stop, part in shared.samples.slices(selection, len(steps)):
                shared.check()
                selections = {selection.matchers: part}
                inside = Evaluation(
                    shared, steps, selections, series=(start, stop), is_instant=self.is_instant
                )
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
    """One step of an evaluation, in the form of row-wise functions."""

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
        """Return the time range of the whole query."""
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
        """Count the bytes of new label texts."""
        self._evaluation.making.budget.hold_labels(size)

    def windows(self, node: tree.Node) -> RowWindows:
        """Refuse: range vectors are evaluated as tables only."""
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


def _has_or(node: tree.Node) -> bool:
    is_or = isinstance(node, tree.Binary) and node.operator == "or"
    return is_or or any(map(_has_or, tree.children(node)))


_OF_FIRST = frozenset({"topk", "bottomk", "limitk"})
"""What takes the first of several that are alike."""
_STEPS_A_CHECK = 16
_CALLS: Mapping[str, Callable[[Evaluation, tree.Call], Table]] = {
    **CALLS,
    **dict.fromkeys(RANGE_FUNCTIONS, Evaluation.over_range),
    **dict.fromkeys(("absent", "absent_over_time"), Evaluation.absent),
}

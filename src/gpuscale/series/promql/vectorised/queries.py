"""Instant and range queries, evaluated as tables.

A long range query takes its steps some at a time: that bounds what is held beside the samples and the
results, and how long it takes until a deadline is looked at.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import SERIES_BYTES, Check
from gpuscale.series.promql.rows import PlannedQuery
from gpuscale.series.promql.tree import ValueType, value_type
from gpuscale.series.promql.vectorised.axis import Making
from gpuscale.series.promql.vectorised.blocks import Ints
from gpuscale.series.promql.vectorised.evaluation import Evaluation, QueryState
from gpuscale.series.promql.vectorised.samples import CELL_BYTES, SLICE_CELLS, QuerySamples
from gpuscale.series.promql.vectorised.support import RowWiseError, UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table, aligned
from gpuscale.series.values import Matrix, MatrixSeries, Points, Scalar, Value, Vector, VectorSample

_CHUNK_CELLS = SLICE_CELLS
"""Cells of the widest table that are computed at a time."""
_SORTS = frozenset({"sort", "sort_desc", "sort_by_label", "sort_by_label_desc"})
_SERIES_A_CHECK = 1_000
_SAMPLE_BYTES = 140
"""A sample of a vector, label set aside: its object, a float, an integer, and its place in a tuple."""


def instant(samples: QuerySamples, query: PlannedQuery) -> Value:
    """Return a query's value at one time.

    Raises:
        QueryError: it would hold too many bytes.
        QueryTimeoutError: the time is up.
        RowWiseError: the row-wise evaluation has to answer.
    """
    root = query.root
    shared = QueryState(samples, query)
    with np.errstate(all="ignore"):
        evaluation = Evaluation(shared, shared.steps, samples.selections)
        if value_type(root) is ValueType.SCALAR:
            return Scalar(evaluation.numbers(root)[0].item(0))
        table = evaluation.table(root)
    measured_ms = _measured(table)
    samples.let_go()
    del evaluation, shared
    budget = samples.budget
    budget.hold(_SAMPLE_BYTES * table.width)
    places = np.arange(table.width) if table.columns is None else table.columns
    found: list[VectorSample] = []
    for first in range(0, table.width, _SERIES_A_CHECK):
        query.check()
        part = slice(first, first + _SERIES_A_CHECK)
        labels = table.axis.some(places[part], budget)
        found += map(
            VectorSample, labels, table.values[0, part].tolist(), measured_ms[0, part].tolist()
        )
    return Vector(tuple(found))


def range_query(samples: QuerySamples, query: PlannedQuery) -> Matrix:
    """Return a query's values at many times; errors as `instant`."""
    while query.steps:
        held = samples.budget.held
        try:
            return _matrix_of(samples, query)
        except UncoveredStepsError as error:
            uncovered = bisect_left(query.steps, error.from_ms)
            if not uncovered:
                raise
            query = replace(query, steps=query.steps[uncovered:])
            samples.budget.held = held
    return Matrix(())


def _matrix_of(samples: QuerySamples, query: PlannedQuery) -> Matrix:
    shared, root, check = QueryState(samples, query), query.root, query.check
    budget = samples.budget
    while isinstance(root, tree.Call) and root.function in _SORTS:
        # A matrix is sorted by labels.
        root = root.arguments[0]
    tables: list[Table] = []
    with np.errstate(all="ignore"):
        for start, stop in _chunks(samples, len(shared.steps)):
            check()
            steps = shared.steps[start:stop]
            tables.append(Evaluation(shared, steps, samples.selections, start).table(root))
    del shared
    samples.let_go()
    budget.hold(sum(table.size for table in tables))
    return _matrix(tables, query.steps, samples.making, check)


def _matrix(tables: Sequence[Table], steps: range, making: Making, check: Check) -> Matrix:
    """Return the series of consecutive tables, sorted by labels."""
    tables = aligned(tables, making)
    axis = tables[0].axis.distinct(making)
    columns = tables[0].columns
    times_ms = list(steps)
    places = making.once((axis,), "order", lambda: axis.by_labels(making))
    if columns is not None:
        place_of = np.full(len(axis), -1)
        place_of[columns] = np.arange(len(columns))
        places = place_of[places]
        places = places[places >= 0]
    found: list[MatrixSeries] = []
    for first in range(0, len(places), _SERIES_A_CHECK):
        check()
        some = places[first : first + _SERIES_A_CHECK]
        labels = axis.some(some if columns is None else columns[some], making.budget)
        making.budget.hold((SERIES_BYTES + CELL_BYTES * len(steps)) * len(some))
        values = np.concatenate([table.values[:, some] for table in tables]).T.copy()
        present = np.concatenate([table.presence()[:, some] for table in tables]).T.copy()
        whole: list[bool] = np.all(present, axis=1).tolist()
        for place in range(len(some)):
            if whole[place]:
                points = Points(times_ms, array("d", values[place].tobytes()))
            else:
                kept = np.flatnonzero(present[place])
                if not kept.size:
                    continue
                points = Points(
                    [times_ms[i] for i in kept.tolist()], array("d", values[place, kept].tobytes())
                )
            found.append(MatrixSeries(labels[place], points))
    return Matrix(tuple(found))


def _chunks(samples: QuerySamples, steps: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of steps that are evaluated together."""
    width = max(
        (len(each.series) for each in samples.selections.values() if not each.is_gradual),
        default=1,
    )
    count = max(1, _CHUNK_CELLS // max(1, width))
    for start in range(0, steps, count):
        yield start, min(steps, start + count)


def _measured(table: Table) -> Ints:
    if table.measured_ms is None:
        raise RowWiseError("times are not known")
    return table.measured_ms

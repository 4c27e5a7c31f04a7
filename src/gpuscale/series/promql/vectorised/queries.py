"""Instant and range queries, evaluated as tables.

A long range query takes its steps some at a time: that bounds what is held beside the samples and the
results, and how long it takes until a deadline is looked at.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import Check
from gpuscale.series.promql.rows import PlannedQuery
from gpuscale.series.promql.tree import ValueType, value_type
from gpuscale.series.promql.vectorised.blocks import Ints
from gpuscale.series.promql.vectorised.evaluation import Evaluation, QueryState
from gpuscale.series.promql.vectorised.samples import (
    SLICE_CELLS,
    QuerySamples,
)
from gpuscale.series.promql.vectorised.support import RowWiseError, UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table
from gpuscale.series.values import Matrix, MatrixSeries, Points, Scalar, Value, Vector, VectorSample

_CHUNK_CELLS = 2 * SLICE_CELLS
"""Cells of the widest table that are computed at a time."""
_SERIES_A_CHECK = 1_000


def instant(samples: QuerySamples, query: PlannedQuery) -> Value:
    """Return the value of a query at one time.

    Raises:
        QueryError: it would hold too many samples.
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
    samples.hold(2 * table.width)
    labels = table.axis.labels
    columns = range(table.width) if table.columns is None else table.columns.tolist()
    measured_ms = _measured(table).tolist()[0]
    return Vector(
        tuple(
            map(VectorSample, (labels[i] for i in columns), table.values[0].tolist(), measured_ms)
        )
    )


def range_query(samples: QuerySamples, query: PlannedQuery) -> Matrix:
    """Return the values of a query at many times; errors as `instant`."""
    while query.steps:
        held = samples.held
        try:
            return _matrix_of(samples, query)
        except UncoveredStepsError as error:
            uncovered = bisect_left(query.steps, error.from_ms)
            if not uncovered:
                raise
            query = replace(query, steps=query.steps[uncovered:])
            samples.held = held
    return Matrix(())


def _matrix_of(samples: QuerySamples, query: PlannedQuery) -> Matrix:
    shared, root, check = QueryState(samples, query), query.root, query.check
    while isinstance(root, tree.Call) and root.function in {"sort", "sort_desc"}:
        # A matrix has an order of its own.
        root = root.arguments[0]
    tables: list[Table] = []
    with np.errstate(all="ignore"):
        for start, stop in _chunks(samples, len(shared.steps)):
            check()
            evaluation = Evaluation(shared, shared.steps[start:stop], samples.selections, start)
            table = evaluation.table(root)
            # Once as a table, once as points.
            samples.hold(2 * table.values.size)
            tables.append(table)
    return _matrix(tables, query.steps, check)


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


def _chunks(samples: QuerySamples, steps: int) -> Iterator[tuple[int, int]]:
    """Yield the steps that are evaluated together, as first and last."""
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

"""Subqueries: values at steps of their own become samples for functions of range vectors.

Source: prometheus promql/engine.go, release 3 (runSubquery and the steps of a SubqueryExpr).
"""

import math
from collections.abc import Iterator

import numpy as np

from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import SUBQUERY_STEP_MS, Budget
from gpuscale.series.promql.vectorised.blocks import Block, Flags, Ints, without
from gpuscale.series.promql.vectorised.samples import CELL_BYTES, SLICE_CELLS
from gpuscale.series.promql.vectorised.support import UncoveredStepsError
from gpuscale.series.promql.vectorised.table import Table
from gpuscale.series.promql.vectorised.windows import Check, Windows


def step_ms(node: tree.Subquery) -> int:
    """Return a subquery's step in milliseconds."""
    return node.step_ms or SUBQUERY_STEP_MS


def inner_steps(node: tree.Subquery, moments: Ints, budget: Budget, *, left_open: bool) -> Ints:
    """Return the multiples of the subquery's step inside a window, ascending.

    Args:
        node: the subquery.
        moments: where its windows end, ascending.
        budget: of the query.
        left_open: whether a step at the start of a window is outside.
    """
    step, starts = step_ms(node), moments - node.range_ms
    first = starts // step + 1 if left_open else -(-starts // step)
    last = moments // step
    first[1:] = np.maximum(first[1:], last[:-1] + 1)
    counts = np.maximum(last - first + 1, 0)
    total = int(counts.sum())
    budget.hold(3 * CELL_BYTES * total)
    places = np.repeat(first - (counts.cumsum() - counts), counts) + np.arange(total)
    steps: Ints = places * step
    return steps


def uncovered(
    node: tree.Subquery, error: UncoveredStepsError, *, left_open: bool
) -> UncoveredStepsError:
    """Return from when on a subquery is fully covered by kept samples."""
    step = step_ms(node)
    first_ms = math.ceil(error.from_ms / step) * step
    start_ms = first_ms - step + (0 if left_open else 1)
    return UncoveredStepsError(start_ms + node.range_ms + node.moment.offset_ms)


def blocks_of_table(table: Table, steps_ms: Ints) -> Iterator[Block]:
    """Yield a table's cells as samples, in batches of columns; indexes are columns."""
    rows = len(steps_ms)
    width = max(1, SLICE_CELLS // max(1, rows))
    for first in range(0, table.width, width):
        columns = slice(first, first + width)
        values = np.ascontiguousarray(table.values[:, columns])
        series = values.shape[1]
        block = Block(
            steps_ms[:, None],
            np.array([rows]),
            values,
            np.zeros(series, np.int64),
            np.arange(first, first + series),
        )
        yield block if table.present is None else without(block, ~table.present[:, columns])


def windows_of(
    blocks: Iterator[Block],
    starts: Ints,
    moments: Ints,
    at_ms: Ints,
    is_kept: Flags,
    check: Check,
    *,
    left_open: bool,
) -> Iterator[Windows]:
    """Yield blocks' windows, where any of them has a sample.

    Args:
        blocks: one after the other.
        starts: K times at which windows begin.
        moments: K times at which they end.
        at_ms: the times of evaluation.
        is_kept: whether there may be anything in them.
        check: raises once the query has to stop.
        left_open: whether a sample at the start itself is outside.
    """
    before = 0 if left_open else 1
    for block in blocks:
        high = block.reached(moments)
        low = np.where(is_kept[:, None], block.reached(starts - before), high)
        first, last = int(low.min()), int(high.max())
        if last > first:
            narrow = block.rows(first, last)
            yield Windows(narrow, low - first, high - first, starts, moments, at_ms, check)

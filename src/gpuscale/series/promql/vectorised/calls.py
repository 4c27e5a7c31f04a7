"""Functions of vectors on all steps and series at once."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from gpuscale.base.errors import QueryError
from gpuscale.series.labels import LabelSet
from gpuscale.series.promql import tree
from gpuscale.series.promql.budget import (
    Check,
    QueryTimeoutError,
    TooManyBytesError,
    label_set_bytes,
)
from gpuscale.series.promql.elementwise import ELEMENTWISE
from gpuscale.series.promql.functions.functions import DATE_FUNCTIONS, VECTOR_FUNCTIONS
from gpuscale.series.promql.functions.histogram import share_text
from gpuscale.series.promql.rows import Evaluator, Rows
from gpuscale.series.promql.vectorised.axis import Axis, Making
from gpuscale.series.promql.vectorised.blocks import Floats, Ints
from gpuscale.series.promql.vectorised.elementwise import (
    clamped,
    date_parts,
    function_of,
    rounded_to,
)
from gpuscale.series.promql.vectorised.histograms import fractions, quantiles, side_by_side
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.promql.vectorised.table import Table


class Evaluated(Protocol):
    """What functions need of the running evaluation."""

    @property
    def steps(self) -> Ints: ...

    @property
    def is_instant(self) -> bool: ...

    @property
    def check(self) -> Check: ...

    @property
    def making(self) -> Making: ...

    def table(self, node: tree.Node) -> Table: ...

    def numbers(self, node: tree.Node) -> tuple[Floats, int | None]: ...

    def select(self, node: tree.Select, *, with_times: bool = False) -> Table: ...

    def by_rows(self, node: tree.Call) -> Table: ...

    def step_of(self, rows: Rows) -> Evaluator:
        """Return a step at which each vector has the given rows."""
        ...


def _mapped(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return a function that is applied to each value."""
    table = evaluation.table(node.arguments[0])
    values = function_of(node.function, table.values, evaluation.check)
    return table.with_values(values, table.axis.nameless(evaluation.making))


def _dated(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return a part of each value's date."""
    if not node.arguments:
        return evaluation.by_rows(node)
    table = evaluation.table(node.arguments[0])
    values = date_parts(node.function, table.values)
    return table.with_values(values, table.axis.nameless(evaluation.making))


def _rounded(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return each value rounded to a multiple."""
    table = evaluation.table(node.arguments[0])
    nearest = np.ones((1, 1))
    if len(node.arguments) > 1:
        nearest = evaluation.numbers(node.arguments[1])[0][:, None]
    return table.with_values(
        rounded_to(table.values, nearest), table.axis.nameless(evaluation.making)
    )


def _clamped(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return each value limited to bounds; nothing if the bounds are reversed."""
    table = evaluation.table(node.arguments[0])
    bounds = [evaluation.numbers(each)[0][:, None] for each in node.arguments[1:]]
    endless = np.full((1, 1), np.inf)
    low = -endless if node.function == "clamp_max" else bounds[0]
    high = endless if node.function == "clamp_min" else bounds[-1]
    axis = table.axis.nameless(evaluation.making)
    clipped = table.with_values(clamped(table.values, low, high), axis)
    is_wrong = high < low
    if is_wrong.any():
        return clipped.where(np.broadcast_to(~is_wrong, table.values.shape))
    return clipped


def _histogram_quantile(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return the quantile of each histogram."""
    shares = evaluation.numbers(node.arguments[0])[0][:, None]
    return quantiles(evaluation.table(node.arguments[1]), shares, evaluation.making)


def _histogram_quantiles(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return several quantiles of each histogram."""
    vector, label, *shares = node.arguments
    numbers = [evaluation.numbers(each)[0][:, None] for each in shares]
    if not isinstance(label, tree.Text) or any((each != each[0]).any() for each in numbers):
        # A label value for each step.
        return evaluation.by_rows(node)
    table = evaluation.table(vector)
    found = [quantiles(table, each, evaluation.making) for each in numbers]
    texts = [share_text(float(each[0, 0])) for each in numbers]
    return side_by_side(label.value, texts, found, evaluation.making)


def _histogram_fraction(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return the fraction of each histogram's observations between two values."""
    low, high = (evaluation.numbers(each)[0][:, None] for each in node.arguments[:2])
    return fractions(evaluation.table(node.arguments[2]), low, high, evaluation.making)


def _timestamp(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return each value's sample time, or the evaluation time."""
    inside = node.arguments[0]
    if not isinstance(inside, tree.Select):
        table = evaluation.table(inside)
        seconds = np.broadcast_to((evaluation.steps / 1000)[:, None], table.values.shape)
        return table.with_values(seconds, table.axis.nameless(evaluation.making))
    table = evaluation.select(inside, with_times=True)
    if table.measured_ms is None:
        raise RowWiseError("times are not known")
    measured = table.measured_ms if evaluation.is_instant else None
    return Table(
        table.axis.nameless(evaluation.making),
        table.columns,
        table.measured_ms / 1000,
        table.present,
        measured,
    )


def _vector(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return a scalar as a vector."""
    return evaluation.table(node.arguments[0])


def _relabelled(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return a vector with changed labels, computed for all series at once."""
    table = evaluation.table(node.arguments[0])

    budget = evaluation.making.budget

    def made() -> Axis:
        before = budget.labels
        found: list[LabelSet] = []
        for part in evaluation.making.parts(range(len(table.axis))):
            given: Rows = [(table.axis.label(position), 0.0, 0) for position in part]
            step = evaluation.step_of(given)
            rows = VECTOR_FUNCTIONS[node.function](step, node.arguments)
            label_sets = [row[0] for row in rows]
            budget.hold_labels(label_set_bytes(label_sets))
            found += label_sets
        # The label sets keep texts of the vector they were made from.
        return Axis.listed(found, budget.labels - before + table.axis.size)

    try:
        axis = evaluation.making.once((table.axis,), (node.function, node.arguments[1:]), made)
    except (QueryTimeoutError, TooManyBytesError):
        raise
    except QueryError as error:
        raise RowWiseError(str(error)) from None
    return table.with_values(table.values, axis.distinct(evaluation.making))


def _sorted_by_value(evaluation: Evaluated, node: tree.Call) -> Table:
    """Return the rows sorted by value."""
    if not evaluation.is_instant:
        raise RowWiseError("rows are in another order at each step")
    table = evaluation.table(node.arguments[0])
    values = table.values[0]
    key = -values if node.function == "sort_desc" else values
    return table.taken(np.lexsort((key, np.isnan(values))))


CALLS: Mapping[str, Callable[[Evaluated, tree.Call], Table]] = {
    **dict.fromkeys(ELEMENTWISE, _mapped),
    **dict.fromkeys(DATE_FUNCTIONS, _dated),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
    **dict.fromkeys(("label_replace", "label_join"), _relabelled),
    **dict.fromkeys(("sort", "sort_desc"), _sorted_by_value),
    "histogram_quantile": _histogram_quantile,
    "histogram_quantiles": _histogram_quantiles,
    "histogram_fraction": _histogram_fraction,
    "round": _rounded,
    "timestamp": _timestamp,
    "vector": _vector,
}

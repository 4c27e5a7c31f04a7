"""Aggregations over labels: `sum by (pod) (...)` and its kin."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from gpuscale.core.errors import QueryError
from gpuscale.exposition.write import positional
from gpuscale.series.labels import METADATA, LabelKey, LabelSet
from gpuscale.series.promql.functions.sampling import is_sampled
from gpuscale.series.promql.functions.sorting import ascending, descending
from gpuscale.series.promql.functions.statistics import (
    largest,
    mean,
    quantile,
    smallest,
    total,
    variance,
)
from gpuscale.series.promql.rows import Evaluator, Rows
from gpuscale.series.promql.tree import Aggregate, Node

_SPARE = 1_000
"""Label sets that are remembered beyond twice those that a query needs."""

_REDUCERS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": total,
    "avg": mean,
    "min": smallest,
    "max": largest,
    "count": lambda values: float(len(values)),
    "group": lambda values: 1.0,
    "stddev": lambda values: math.sqrt(variance(values)),
    "stdvar": variance,
}

_LIMITERS = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})

AGGREGATORS = frozenset({*_REDUCERS, *_LIMITERS, "quantile", "count_values"})


class Grouping:
    """Label sets to the label set of their group, remembered from query to query.

    Args:
        by: whether `labels` are kept, rather than dropped along with the metric's name, type and unit.
        labels: label names.
    """

    def __init__(self, labels: tuple[str, ...], *, by: bool) -> None:
        self._names = labels if by else (*labels, *METADATA)
        self._by = by
        self._remembered: dict[LabelKey, LabelSet] = {}
        self._most = 0
        """Rows of the largest query since it last forgot."""

    def make_room(self, rows: int) -> None:
        """Forget all, where most of it must be of series that are gone; the others soon come back."""
        self._most = max(self._most, rows)
        if len(self._remembered) > 2 * self._most + _SPARE:
            self._remembered.clear()
            self._most = rows

    def of(self, labels: LabelSet) -> LabelSet:
        group = self._remembered.get(labels.key)
        if group is None:
            group = labels.keep(self._names) if self._by else labels.drop(self._names)
            self._remembered[labels.key] = group
        return group


def grouping(labels: tuple[str, ...], *, by: bool, rows: int) -> Grouping:
    """Return the grouping by, or without, these labels, for a query that has so many rows."""
    found = _grouping(labels, by)
    found.make_room(rows)
    return found


@lru_cache(maxsize=256)
def _grouping(labels: tuple[str, ...], by: bool) -> Grouping:
    return Grouping(labels, by=by)


def aggregate(evaluator: Evaluator, node: Aggregate) -> Rows:
    """Return the vector of an aggregation.

    Raises:
        QueryError: the parameter is out of bounds.
    """
    rows = evaluator.rows(node.expression)
    groups = grouping(node.labels, by=node.by, rows=len(rows))
    if node.operator in _REDUCERS:
        return _reduced(rows, groups.of, _REDUCERS[node.operator])
    parameter = _parameter(node)
    if node.operator == "count_values":
        return _counted_values(rows, node, evaluator.text(parameter))
    number = evaluator.number(parameter).value
    if node.operator == "quantile":
        return _reduced(rows, groups.of, lambda values: quantile(number, values))
    return _limited(node.operator, rows, groups, number)


def _parameter(node: Aggregate) -> Node:
    if node.parameter is None:
        raise QueryError(f"aggregation {node.operator} needs a parameter")
    return node.parameter


def _reduced(
    rows: Rows,
    group_of: Callable[[LabelSet], LabelSet],
    reduce: Callable[[Sequence[float]], float],
) -> Rows:
    members: dict[LabelKey, tuple[LabelSet, list[float], list[int]]] = {}
    for labels, value, measured_ms in rows:
        group = group_of(labels)
        found = members.get(group.key)
        if found is None:
            members[group.key] = (group, [value], [measured_ms])
        else:
            found[1].append(value)
            found[2].append(measured_ms)
    return [(group, reduce(values), min(times)) for group, values, times in members.values()]


def _partition(rows: Rows, groups: Grouping) -> Iterable[Rows]:
    members: dict[LabelKey, Rows] = {}
    for row in rows:
        members.setdefault(groups.of(row[0]).key, []).append(row)
    return members.values()


def _limited(operator: str, rows: Rows, groups: Grouping, number: float) -> Rows:
    """Return some of the rows as they are."""
    if operator == "limit_ratio":
        return _sampled(rows, number)
    order = {"topk": descending, "bottomk": ascending}.get(operator)
    count = _whole(number)
    if count < 1:
        return []
    kept: Rows = []
    for members in _partition(rows, groups):
        kept.extend((sorted(members, key=order) if order else members)[:count])
    return kept


def _sampled(rows: Rows, ratio: float) -> Rows:
    if math.isnan(ratio):
        raise QueryError("Ratio value is NaN")
    bounded = max(-1.0, min(1.0, ratio))
    return [row for row in rows if ratio and is_sampled(row[0], bounded)]


def _whole(count: float) -> int:
    if math.isnan(count):
        raise QueryError("Parameter value is NaN")
    if abs(count) >= 1 << 63:
        way = "overflows" if count > 0 else "underflows"
        raise QueryError(f"Scalar value {positional(count)} {way} int64")
    return int(count)


def _counted_values(rows: Rows, node: Aggregate, label: str) -> Rows:
    texts: Rows = [
        (labels.override({label: positional(value)}), value, measured_ms)
        for labels, value, measured_ms in rows
    ]
    # Without a label means without the one of that name that is set here, too.
    names = (*node.labels, label) if node.by else node.labels
    return _reduced(texts, grouping(names, by=node.by, rows=len(texts)).of, _REDUCERS["count"])

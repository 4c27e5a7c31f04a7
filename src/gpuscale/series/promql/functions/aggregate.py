"""Aggregations over labels, such as `sum by (pod) (...)`."""

import math
import sys
from collections.abc import Callable, Iterable, Sequence

from gpuscale.base.errors import QueryError
from gpuscale.base.exposition.write import positional
from gpuscale.series.labels import METADATA, LabelKey, LabelSet
from gpuscale.series.promql.functions.sampling import is_sampled
from gpuscale.series.promql.functions.sorting import ascending, descending, kept_of_equals
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

_REMEMBERED_BYTES = 16 * 1024 * 1024
"""Of all groupings together: label sets with their texts, and their groups."""
_GROUPING_BYTES = 2 * 1024
"""Of one grouping that remembers nothing yet, less the names of its labels."""
_ENTRY_BYTES = 400
"""Of one label set and its group, less what grows with their labels."""

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
    """A cache from label sets to their group's label set.

    Args:
        by: whether `labels` are kept, rather than dropped along with the metric's name, type and unit.
        labels: label names.
    """

    def __init__(self, labels: tuple[str, ...], *, by: bool) -> None:
        self._names = labels if by else (*labels, *METADATA)
        self._by = by
        self._remembered: dict[LabelKey, LabelSet] = {}

    def made(self, labels: LabelSet) -> LabelSet:
        """Return a label set's group, without caching it."""
        return labels.keep(self._names) if self._by else labels.drop(self._names)

    def of(self, labels: LabelSet) -> LabelSet:
        """Return a label set's group."""
        group = self._remembered.get(labels.key)
        if group is None:
            group = self.made(labels)
            # Texts are counted, although the store may share them.
            size = _ENTRY_BYTES + 16 * len(labels.key) + sum(map(len, labels.key[1:]))
            if _groupings.has_room(size):
                self._remembered[labels.key] = group
        return group


class _Groupings:
    """All groupings, in a cache with a limit on bytes.

    A full memory is forgotten before the next query: most of it may be of series that are gone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], bool], Grouping] = {}
        self.bytes = 0

    def get(self, labels: tuple[str, ...], *, by: bool) -> Grouping:
        if self.bytes >= _REMEMBERED_BYTES:
            self._known = {}
            self.bytes = 0
        found = self._known.get((labels, by))
        if found is None:
            found = self._known[labels, by] = Grouping(labels, by=by)
            self.bytes += _GROUPING_BYTES + sum(map(len, labels))
        return found

    def has_room(self, size: int) -> bool:
        """Count bytes for the cache, and return whether they fit."""
        self.bytes += size
        return self.bytes < _REMEMBERED_BYTES


_groupings = _Groupings()


def grouping(labels: tuple[str, ...], *, by: bool) -> Grouping:
    """Return the grouping by, or without, these labels."""
    return _groupings.get(labels, by=by)


def aggregate(evaluator: Evaluator, node: Aggregate) -> Rows:
    """Return the vector of an aggregation.

    Raises:
        QueryError: the parameter is out of bounds.
    """
    rows = evaluator.rows(node.expression)
    groups = grouping(node.labels, by=node.by)
    if node.operator in _REDUCERS:
        return _reduced(rows, groups.of, _REDUCERS[node.operator])
    parameter = _parameter(node)
    if node.operator == "count_values":
        return _counted_values(rows, node, evaluator.text(parameter), evaluator.hold_labels)
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
    """Return some of the rows unchanged, for `limitk` and `limit_ratio`."""
    if operator == "limit_ratio":
        return _sampled(rows, number)
    order = {"topk": descending, "bottomk": ascending}.get(operator)
    count = _whole(number)
    if count < 1:
        return []
    kept: Rows = []
    for members in _partition(rows, groups):
        if order is None:
            kept.extend(members[:count])
            continue
        if len(members) > count:
            positions = kept_of_equals([order(row)[1] for row in members], count)
            members = [members[each] for each in positions]
        kept.extend(sorted(members, key=order))
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


def _counted_values(rows: Rows, node: Aggregate, label: str, hold: Callable[[int], None]) -> Rows:
    texts: Rows = []
    for labels, value, measured_ms in rows:
        text = positional(value)
        # Its label set is freed with it, until all are counted.
        hold(sys.getsizeof(text) + 2 * sys.getsizeof(labels.key))
        texts.append((labels.override({label: text}), value, measured_ms))
    # `without` a label also drops one of that name that is set here.
    names = (*node.labels, label) if node.by else node.labels
    return _reduced(texts, grouping(names, by=node.by).of, _REDUCERS["count"])

"""Sort orders of rows: by value, and by labels in natural order.

Source: prometheus 3.16 promql/functions.go (funcSort, funcSortByLabel, vectorByValueHeap), promql/engine.go
(aggregationK), facette/natsort; Go container/heap.
"""

import math
import re
from collections.abc import Sequence
from functools import cmp_to_key

from gpuscale.series.promql.rows import Row, Rows

_CHUNK = re.compile(r"[0-9]+|[^0-9]+")
_MAX_DIGITS = 18
"""A longer number is compared as text, as one that overflows an int64 is."""


def ascending(row: Row) -> tuple[bool, float]:
    """Return a sort key by value, NaN last."""
    return math.isnan(row[1]), row[1]


def descending(row: Row) -> tuple[bool, float]:
    """Return a sort key by descending value, NaN last."""
    return math.isnan(row[1]), -row[1]


def by_labels(rows: Rows, names: Sequence[str], *, largest_first: bool) -> Rows:
    """Return the rows sorted by labels `names`, and by all labels among equals."""

    def compare(left: Row, right: Row) -> int:
        for name in names:
            order = natural_order(left[0].value(name), right[0].value(name))
            if order:
                return order
        pairs = tuple(left[0].items()), tuple(right[0].items())
        return (pairs[0] > pairs[1]) - (pairs[0] < pairs[1])

    return sorted(rows, key=cmp_to_key(compare), reverse=largest_first)


def kept_of_equals(keys: Sequence[float], count: int) -> list[int]:
    """Return which of several equal values at the limit `topk` keeps.

    Prometheus keeps `count` values in a heap with the worst on top, and a value takes the place of the top
    where it is better. So which of equal values go depends on how the heap lies, not on which came first.

    Args:
        keys: the value of each series in the order of the series, negative for `topk`; NaN is the worst.
        count: how many are kept; fewer than there are keys.

    Returns:
        Positions, ascending.
    """
    heap: list[int] = []

    def is_worse(one: int, other: int) -> bool:
        return math.isnan(keys[one]) or keys[one] > keys[other]

    def sink() -> None:
        place = 0
        while (child := 2 * place + 1) < count:
            if child + 1 < count and is_worse(heap[child + 1], heap[child]):
                child += 1
            if not is_worse(heap[child], heap[place]):
                return
            heap[place], heap[child] = heap[child], heap[place]
            place = child

    for position in range(count):
        heap.append(position)
        place = position
        while place and is_worse(heap[place], heap[above := (place - 1) // 2]):
            heap[place], heap[above] = heap[above], heap[place]
            place = above
    for position in range(count, len(keys)):
        worst = keys[heap[0]]
        if keys[position] < worst or (math.isnan(worst) and not math.isnan(keys[position])):
            heap[0] = position
            sink()
    return sorted(heap)


def natural_order(left: str, right: str) -> int:
    """Compare in natural order (`a9` before `a10`): negative, 0 or positive."""
    for one, other in zip(_CHUNK.findall(left), _CHUNK.findall(right), strict=False):
        if _is_number(one) and _is_number(other):
            order = int(one) - int(other)
        else:
            order = (one > other) - (one < other)
        if order:
            return order
    return len(left) - len(right)


def _is_number(chunk: str) -> bool:
    return chunk.isdigit() and len(chunk) <= _MAX_DIGITS

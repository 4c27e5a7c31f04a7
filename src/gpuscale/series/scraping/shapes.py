"""Shapes of lines: equal metric and label names in the same order, whatever the values.

An exporter prints all lines of a metric alike. So a line comes apart at its quotes, and what its label names
mean at this target, after joining the target's own labels, is worked out once a shape.
"""

import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from sys import intern

from gpuscale.series.labels import METRIC_NAME, LabelSet, label_sets

_FIRST = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-zA-Z_][a-zA-Z0-9_]*)=")
_NEXT = re.compile(r",([a-zA-Z_][a-zA-Z0-9_]*)=")
_LAST = frozenset({"}", ",}"})
_MAX_SHAPES = 10_000
_MAX_CHARS = 4 * 1024 * 1024
"""Of all shapes that one target makes known."""

Shape = Callable[[list[str]], LabelSet]
"""Makes the labels of a series from the values of a line."""
Merge = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes the labels of a series from those that a line carries, by names alone; an empty value is none."""


class LineShapes:
    """The line shapes of one target.

    Args:
        merge: joins the target's labels to those of a line.
    """

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self._shapes: dict[tuple[str, ...], Shape | None] = {}
        self._chars = 0

    def labels(self, head: str) -> LabelSet | None:
        """Return a line's labels, from the text before its value; None if it needs the full parser."""
        if "\\" in head:
            return None
        parts = head.split('"')
        if not len(parts) % 2:
            # An unterminated quote.
            return None
        between = tuple(parts[::2])
        if between not in self._shapes:
            self._learn(between)
        shape, values = self._shapes[between], parts[1::2]
        return None if shape is None or "" in values else shape(values)

    def _learn(self, between: tuple[str, ...]) -> None:
        self._chars += sum(map(len, between))
        if len(self._shapes) >= _MAX_SHAPES or self._chars > _MAX_CHARS:
            self._shapes.clear()
            self._chars = sum(map(len, between))
        names = _names(between)
        self._shapes[between] = None if names is None else _shape(names, self._merge)


def _shape(names: tuple[str, ...], merge: Merge) -> Shape | None:
    """Return where a line's values go in the series' labels; None if it needs the full parser."""
    metric, *labels = names
    marks = [f"\0{position}" for position in range(len(labels))]
    merged = merge({METRIC_NAME: metric, **dict(zip(labels, marks, strict=True))})
    constants = [intern(value) for value in merged.values() if value not in marks]
    ordered, sources = sorted(merged), [*marks, *constants]
    pick = itemgetter(*(sources.index(merged[name]) for name in ordered))
    made = label_sets(tuple(map(intern, ordered)))
    # Interned, equal values are stored once and found faster.
    return lambda values: made(pick([*map(intern, values), *constants]))


def _names(between: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of the metric and its labels; None if the texts hold anything else."""
    first, *others = between
    start = _FIRST.fullmatch(first)
    if start is None or not others or others.pop() not in _LAST:
        return None
    found = [_NEXT.fullmatch(each) for each in others]
    names = (start[2], *(match[1] for match in found if match is not None))
    if len(names) != len(others) + 1 or len({METRIC_NAME, *names}) != len(names) + 1:
        return None
    return (start[1], *names)

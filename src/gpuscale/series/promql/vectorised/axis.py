"""The label sets that the columns of a table have, with all that is worked out of them once.

Groupings, labels without the metric's name and matches between two vectors depend on label sets alone. So
they are made for all series of a selector, remembered with it, and looked up by position.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpuscale.series.labels import EMPTY, LabelKey, LabelSet
from gpuscale.series.promql.budget import Check
from gpuscale.series.promql.functions.aggregate import grouping
from gpuscale.series.promql.vectorised.support import RowWiseError

Item = TypeVar("Item")
Made = TypeVar("Made")

Ints = npt.NDArray[np.int64]

_LABELS_PER_CHECK = 5_000
_BYTES_A_POSITION = 50
"""What is remembered of a label set, other label sets aside."""
_MOST_REMEMBERED = 32
"""Groupings, matches and the like, of one axis."""


class Axis:
    """Label sets by position.

    Args:
        labels: need not differ from each other.
    """

    bytes_each = 200
    """What a label set takes."""

    def __init__(self, labels: Sequence[LabelSet]) -> None:
        self._labels = labels
        self._remembered: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> Sequence[LabelSet]:
        return self._labels

    def mapped(self, make: Callable[[LabelSet], LabelSet], check: Check) -> "Axis":
        """Return the axis of what is made of each label set; `check` raises once a query has to stop."""
        return Axis(in_parts(self.labels, make, check))

    def remembered(self, key: object, make: Callable[[], Made]) -> Made:
        """Return what `make` gives, from an earlier call with the same key if there was one."""
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[key] = make()
        made: Made = found
        return made

    def forget(self) -> None:
        """Drop what is remembered: matches of an axis with itself would keep it alive as a cycle."""
        remembered = list(self._remembered.values())
        self._remembered.clear()
        for made in remembered:
            for each in made if isinstance(made, tuple) else (made,):
                axis = each.axis if isinstance(each, Groups) else each
                if isinstance(axis, Axis):
                    axis.forget()

    def bytes_held(self) -> int:
        """Return about how much memory the label sets take, and what is remembered with them."""
        held = len(self) * self.bytes_each
        for made in list(self._remembered.values()):
            held += len(self) * _BYTES_A_POSITION
            # What was made with another axis comes after that one, which is remembered elsewhere.
            each = made[1] if isinstance(made, tuple) else made
            axis = each.axis if isinstance(each, Groups) else each
            held += axis.bytes_held() if isinstance(axis, Axis) else 0
        return held

    @cached_property
    def is_unique(self) -> bool:
        return len({labels.key for labels in self.labels}) == len(self.labels)

    def distinct(self) -> "Axis":
        """Return this axis.

        Raises:
            RowWiseError: two label sets are alike, which fails if both have a value at one time.
        """
        if not self.is_unique:
            raise RowWiseError("label sets are alike")
        return self

    def nameless(self, check: Check) -> "Axis":
        """Return the label sets without the metric's name, type and unit.

        Raises:
            RowWiseError: two of them are alike then.
        """
        return self.remembered(
            "nameless", lambda: self.mapped(LabelSet.without_name, check)
        ).distinct()

    @cached_property
    def by_labels(self) -> Ints:
        """Return the positions in the order in which a matrix has its series."""
        pairs = [tuple(labels.items()) for labels in self.labels]
        return np.array(sorted(range(len(pairs)), key=pairs.__getitem__), np.int64)

    def groups(self, names: tuple[str, ...], check: Check, *, by: bool) -> "Groups":
        """Return the groups by, or without, some labels."""
        return self.remembered((names, by), lambda: _groups(self.labels, names, check, by=by))


def in_parts(
    items: Sequence[Item], make: Callable[[Item], LabelSet], check: Check
) -> list[LabelSet]:
    """Return what is made of each item, with a look at the deadline now and then."""
    made: list[LabelSet] = []
    for start in range(0, len(items), _LABELS_PER_CHECK):
        check()
        made.extend(map(make, items[start : start + _LABELS_PER_CHECK]))
    return made


ONE = Axis([EMPTY])
"""The axis of a vector without labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which group each position of an axis is in."""

    axis: Axis
    """One label set for each group, in the order of their first members."""
    ids: Ints
    """The group of each position."""
    by_key: dict[LabelKey, int]
    """The group of each label set's key."""


def _groups(
    labels: Sequence[LabelSet], names: tuple[str, ...], check: Check, *, by: bool
) -> Groups:
    group_of = grouping(names, by=by, rows=len(labels)).of
    found: dict[LabelKey, int] = {}
    axis: list[LabelSet] = []
    ids = np.empty(len(labels), np.int64)
    for position, each in enumerate(labels):
        if not position % _LABELS_PER_CHECK:
            check()
        group = group_of(each)
        number = found.get(group.key)
        if number is None:
            number = found[group.key] = len(axis)
            axis.append(group)
        ids[position] = number
    return Groups(Axis(axis), ids, found)

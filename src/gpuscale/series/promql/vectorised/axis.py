"""The label sets of a table's columns, with cached derivations of them.

Groupings, labels without the metric's name and matches between two vectors depend on label sets alone. So
they are made for all series of a selector, remembered with it, and looked up by position. Label sets that
follow from others are made where they are looked at: a hundred thousand that nobody sees take nothing.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpuscale.base.byte_cache import Accountant, ByteCache, deep_bytes
from gpuscale.series.labels import EMPTY, METADATA, LabelKey, LabelSet, of_key
from gpuscale.series.promql.budget import Budget, label_set_bytes
from gpuscale.series.promql.functions.aggregate import Grouping
from gpuscale.series.promql.vectorised.support import RowWiseError
from gpuscale.series.storage.index import Selector
from gpuscale.series.storage.samples import Series

Item = TypeVar("Item")
Made = TypeVar("Made")

Ints = npt.NDArray[np.int64]

MEMORY_BYTES = 32 * 1024 * 1024
"""What is remembered of the label sets of one store."""
_LABELS_PER_CHECK = 5_000
_GROUP_BYTES = 180
"""A group, less eight bytes for each label: its key, number and place in a dict."""
_numbers = count()


class Axis:
    """Label sets by index.

    Args:
        length: how many there are; they need not differ from each other.
        label: gives the label set of a position.
        size: bytes that are kept with it and are not the store's.
        is_unique: whether they are known to differ; None where that has to be looked at.
        is_there: whether the label sets exist, here or in the store, rather than being made when looked at.
    """

    __slots__ = ("_is_there", "_is_unique", "_length", "is_lasting", "label", "number", "size")

    def __init__(
        self,
        length: int,
        label: Callable[[int], LabelSet],
        size: int = 0,
        *,
        is_unique: bool | None = None,
        is_there: bool = False,
    ) -> None:
        self._is_there = is_there
        self._length = length
        self.label = label
        self.size = size
        self._is_unique = is_unique
        self.number = next(_numbers)
        """No other axis has it, now or later."""
        self.is_lasting = False
        """Whether later queries have the same one."""

    @classmethod
    def listed(cls, labels: Sequence[LabelSet], size: int = 0) -> "Axis":
        """Return an axis of existing label sets."""
        return cls(len(labels), labels.__getitem__, size + 8 * len(labels), is_there=True)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[LabelSet]:
        return map(self.label, range(self._length))

    def some(self, positions: Ints | None, budget: Budget) -> list[LabelSet]:
        """Return the label sets at some indexes, or all for None; new ones are counted."""
        found = list(self if positions is None else map(self.label, positions.tolist()))
        if not self._is_there:
            budget.hold_labels(label_set_bytes(found))
        return found

    @property
    def is_known_unique(self) -> bool:
        """Return whether the label sets are known to be distinct, without comparing them."""
        return bool(self._is_unique)

    def distinct(self, making: "Making") -> "Axis":
        """Return this axis.

        Raises:
            RowWiseError: two label sets are alike, which fails if both have a value at one time.
        """
        if self._is_unique is None:
            keys: set[LabelKey] = set()
            with making.holding(200 * self._length):
                for part in making.parts(range(self._length)):
                    keys.update(self.label(position).key for position in part)
            self._is_unique = len(keys) == self._length
        if not self._is_unique:
            raise RowWiseError("label sets are alike")
        return self

    def nameless(self, making: "Making") -> "Axis":
        """Return the axis without the metric's name, type and unit.

        Raises:
            RowWiseError: two of them are alike then.
        """

        def made() -> Axis:
            metadata = {
                tuple(labels.value(name) for name in METADATA)
                for part in making.parts(range(self._length))
                for labels in map(self.label, part)
            }
            if metadata == {("",) * len(METADATA)}:
                return self
            label = self.label
            return Axis(
                self._length,
                lambda position: label(position).without_name(),
                self.size,
                is_unique=self._is_unique if len(metadata) <= 1 else None,
            )

        return making.once((self,), "nameless", made).distinct(making)

    def by_labels(self, making: "Making") -> Ints:
        """Return the indexes sorted by labels, as in a matrix."""
        order: list[tuple[tuple[str, ...], int]] = []
        width = len(self.label(0)) if self._length else 0
        with making.holding((180 + 16 * width) * self._length):
            for part in making.parts(range(self._length)):
                order += [(tuple(chain(*self.label(place).items())), place) for place in part]
            order.sort()
            return np.array([place for _, place in order], np.int64)

    def groups(self, names: tuple[str, ...], making: "Making", *, by: bool) -> "Groups":
        """Return the groups by, or without, some labels."""
        return making.once((self,), ("groups", names, by), lambda: _groups(self, names, making, by))


ONE = Axis.listed([EMPTY])
"""The axis of a vector without labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The group of each index of an axis."""

    axis: Axis
    """One label set for each group, in the order of their first members."""
    ids: Ints
    """The group of each position."""
    by_key: dict[LabelKey, int]
    """The group of each label set's key."""

    @property
    def size(self) -> int:
        return self.ids.nbytes + self.axis.size


def _groups(axis: Axis, names: tuple[str, ...], making: "Making", by: bool) -> Groups:
    group_of = Grouping(names, by=by).made
    found: dict[LabelKey, int] = {}
    keys: list[LabelKey] = []
    ids = np.empty(len(axis), np.int64)
    making.budget.hold_labels(ids.nbytes)
    size = 0
    for part in making.parts(range(len(axis))):
        before = len(keys)
        for position in part:
            key = group_of(axis.label(position)).key
            number = found.get(key)
            if number is None:
                number = found[key] = len(keys)
                keys.append(key)
            ids[position] = number
        made = sum(_GROUP_BYTES + 8 * len(key) for key in keys[before:])
        making.budget.hold_labels(made)
        size += made
    # The inputs of the groups are dropped, but only they may refer to some texts.
    groups = Axis(
        len(keys), lambda position: of_key(keys[position]), size + axis.size, is_unique=True
    )
    return Groups(groups, ids, found)


class Memory:
    """A cache of derived label sets, cleared when a series appears or ends; limited in bytes.

    Args:
        generation: the store's.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        # A separate accountant: caches of queries take no room from those of HPAs.
        self.made: ByteCache[Any, Any] = ByteCache(
            "label sets of queries", MEMORY_BYTES, Accountant(MEMORY_BYTES), MEMORY_BYTES // 2
        )

    def axis(self, matchers: Selector, series: tuple[Series, ...]) -> Axis:
        """Return the axis of a selector's series."""
        found: Axis | None = self.made.get(matchers)
        if found is None:
            # The label sets are the store's, all distinct.
            size = 8 * len(series)
            found = Axis(
                len(series),
                lambda position: series[position].labels,
                size,
                is_unique=True,
                is_there=True,
            )
            found.is_lasting = self.made.put(matchers, found, size + deep_bytes(matchers))
        return found


class Making:
    """One query's derivations of label sets, cached across queries and counted.

    Args:
        memory: of the store.
        budget: of the query.
    """

    def __init__(self, memory: Memory, budget: Budget) -> None:
        self.memory = memory
        self.budget = budget
        self._own: dict[Any, Any] = {}

    def once(self, axes: tuple[Axis, ...], key: object, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, cached by axes and key.

        Args:
            axes: that it is made of.
            key: of what is made; some bytes.
            make: gives an axis, an array, or what else has a `size` in bytes.
        """
        whole = (key, *(axis.number for axis in axes))
        found: Made | None = self._own.get(whole)
        if found is not None:
            return found
        found = self.memory.made.get(whole)
        if found is None:
            found = make()
            is_new = all(found is not axis for axis in axes)
            if is_new and all(axis.is_lasting for axis in axes):
                size = found.nbytes if isinstance(found, np.ndarray) else found.size  # type: ignore[attr-defined]
                is_kept = self.memory.made.put(whole, found, size + _key_bytes(key))
                for axis in (found, getattr(found, "axis", None)):
                    if isinstance(axis, Axis):
                        axis.is_lasting = is_kept
        self._own[whole] = found
        return found

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count bytes that are held inside the block only."""
        self.budget.hold(size)
        yield
        self.budget.held -= size

    def parts(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield the items in batches, checking the deadline before each."""
        for start in range(0, len(items), _LABELS_PER_CHECK):
            self.budget()
            yield items[start : start + _LABELS_PER_CHECK]

    def listed(self, made: Iterable[LabelSet], size: int) -> Axis:
        """Return the axis of new label sets, and count their bytes.

        Args:
            made: the label sets.
            size: bytes of texts that they keep.
        """
        label_sets: list[LabelSet] = []
        total = size
        for labels in made:
            label_sets.append(labels)
            if not len(label_sets) % _LABELS_PER_CHECK:
                self.budget()
                total += self._hold(label_sets[-_LABELS_PER_CHECK:])
        total += self._hold(label_sets[len(label_sets) // _LABELS_PER_CHECK * _LABELS_PER_CHECK :])
        return Axis.listed(label_sets, total)

    def _hold(self, label_sets: Sequence[LabelSet]) -> int:
        size = label_set_bytes(label_sets)
        self.budget.hold_labels(size)
        return size


def _key_bytes(key: object) -> int:
    return sum(map(_key_bytes, key)) if isinstance(key, tuple) else sys.getsizeof(key)

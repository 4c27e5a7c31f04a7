"""An inverted index: from a label's name and value to series.

A list for each name and value: most values belong to few series, and a list of few is the smallest there is.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar

from gpuscale.series.labels import LabelSet


class Labelled(Protocol):
    """Anything with labels."""

    labels: LabelSet


Item = TypeVar("Item", bound=Labelled)


class Postings(Generic[Item]):
    """Items by label name and value, in order of arrival."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, list[Item]]] = defaultdict(_by_value)

    def add(self, item: Item) -> None:
        """Add a new item."""
        lists = self._lists
        for name, value in item.labels.items():
            lists[name][value].append(item)

    def remove(self, gone: AbstractSet[Item]) -> None:
        """Remove items together: each list with one of them is scanned once."""
        for name, value in {pair for item in gone for pair in item.labels.items()}:
            values = self._lists[name]
            kept = [item for item in values[value] if item not in gone]
            if kept:
                values[value] = kept
            else:
                del values[value]
            if not values:
                del self._lists[name]

    def of(self, name: str, value: str) -> Sequence[Item]:
        """Return the items with a label of this value."""
        return self.values(name).get(value, ())

    def names(self) -> Collection[str]:
        return self._lists.keys()

    def values(self, name: str) -> dict[str, list[Item]]:
        """Return the values of a label, and the items that have each."""
        return self._lists.get(name, {})


def _by_value() -> dict[str, list[Item]]:
    return defaultdict(list)

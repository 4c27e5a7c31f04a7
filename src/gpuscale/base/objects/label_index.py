"""Indexes that match selectors and labels without comparing each pair."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Generic, TypeVar

from gpuscale.base.objects.selectors import Operator, Requirement, Selector

T = TypeVar("T")
Label = tuple[str, str | None]
"""Key and value; None for any value."""


class LabelIndex(Generic[T]):
    """Items by their labels.

    Args:
        items: things with their labels, in the order in which they are found.
    """

    def __init__(self, items: Iterable[tuple[T, Mapping[str, str]]]) -> None:
        self._items = [*items]
        self._places = _places(_of_any_value(labels) for _, labels in self._items)

    def selected(self, selector: Selector) -> Iterator[T]:
        """Yield the items that a selector matches."""
        for place in self._rarest(selector.requirements):
            item, labels = self._items[place]
            if selector.matches(labels):
                yield item

    def candidates(self, alternatives: Iterable[Sequence[Requirement]]) -> Iterator[T]:
        """Yield all that may fulfil one of several lists of requirements, and some that fulfil none."""
        places = {place for each in alternatives for place in self._rarest(each)}
        return (self._items[place][0] for place in sorted(places))

    def _rarest(self, requirements: Sequence[Requirement]) -> Iterable[int]:
        """Return the indexes of items with one of the required labels, for the rarest requirement."""
        asked = (
            [self._places.get(label, ()) for label in _labels(each)]
            for each in requirements
            if _labels(each)
        )
        found = min(asked, key=lambda each: sum(map(len, each)), default=None)
        return range(len(self._items)) if found is None else merge(*found)


class SelectorIndex(Generic[T]):
    """Items by their selectors.

    Args:
        items: things with their selectors, in the order in which they are found.
    """

    def __init__(self, items: Iterable[tuple[T, Selector]]) -> None:
        self._items = [*items]
        asked = [[*map(_labels, each.requirements)] for _, each in self._items]
        counts = Counter(label for each in asked for labels in each for label in labels)
        rarest = [
            min(
                filter(None, each),
                key=lambda labels: sum(counts[one] for one in labels),
                default=(),
            )
            for each in asked
        ]
        self._places = _places(rarest)
        self._open = [place for place, labels in enumerate(rarest) if not labels]

    def taking(self, labels: Mapping[str, str]) -> Iterator[T]:
        """Yield the items whose selector matches these labels."""
        listed = (self._places.get(label, ()) for label in _of_any_value(labels))
        for place in merge(self._open, *listed):
            item, selector = self._items[place]
            if selector.matches(labels):
                yield item


def _labels(requirement: Requirement) -> Sequence[Label]:
    """Return the labels that fulfil a requirement; none if others may too."""
    match requirement.operator:
        case Operator.EQUALS | Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
        case Operator.NOT_EQUALS | Operator.NOT_IN | Operator.DOES_NOT_EXIST:
            return ()
        case _:
            return [(requirement.key, None)]


def _of_any_value(labels: Mapping[str, str]) -> Iterator[Label]:
    for key, value in labels.items():
        yield key, value
        yield key, None


def _places(listed: Iterable[Iterable[Label]]) -> Mapping[Label, Sequence[int]]:
    found: dict[Label, list[int]] = {}
    for place, labels in enumerate(listed):
        for label in labels:
            found.setdefault(label, []).append(place)
    return found

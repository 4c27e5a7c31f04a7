"""The label set that names a series."""

import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any
from weakref import WeakValueDictionary

METRIC_NAME = "__name__"
_BARE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_BARE_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
METADATA = (METRIC_NAME, "__type__", "__unit__")
"""What says which metric a value is of; Prometheus 3 drops all of it where a value's meaning changes."""
_MAX_PICKS = 64

LabelKey = tuple[Any, ...]
"""Equal for label sets that are equal, and for no others; quick to hash and to compare."""


class _Names:
    """The sorted label names that many label sets share; one object for each such tuple."""

    __slots__ = ("__weakref__", "_nameless", "_picks", "has_metadata", "names", "positions")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.positions = {name: position for position, name in enumerate(names, start=1)}
        """Of each name's value in a key."""
        self.has_metadata = any(name in self.positions for name in METADATA)
        self._nameless: Callable[[LabelKey], LabelKey] | None = None
        self._picks: dict[tuple[str, tuple[str, ...]], Callable[[LabelKey], LabelKey]] = {}

    @property
    def nameless(self) -> Callable[[LabelKey], LabelKey]:
        """Return a function that removes the metric's name, type and unit from a key."""
        if self._nameless is None:
            self._nameless = self.pick("drop", METADATA)
        return self._nameless

    def pick(self, how: str, names: tuple[str, ...]) -> Callable[[LabelKey], LabelKey]:
        """Return a function that keeps only, or drops, the labels `names` of a key."""
        found = self._picks.get((how, names))
        if found is None:
            if len(self._picks) >= _MAX_PICKS:
                self._picks.clear()
            chosen = frozenset(names)
            kept = tuple(name for name in self.names if (name in chosen) == (how == "keep"))
            positions = [self.positions[name] for name in kept]
            found = self._picks[how, names] = _pick(_names(kept), positions)
        return found


_known: WeakValueDictionary[tuple[str, ...], _Names] = WeakValueDictionary()


def _names(names: tuple[str, ...]) -> _Names:
    found = _known.get(names)
    if found is None:
        found = _known[names] = _Names(names)
    return found


def _pick(names: _Names, positions: Sequence[int]) -> Callable[[LabelKey], LabelKey]:
    match positions:
        case []:
            return lambda key: (names,)
        case [position]:
            return lambda key: (names, key[position])
        case _:
            values = itemgetter(*positions)
            return lambda key: (names, *values(key))


class LabelSet(Mapping[str, str]):
    """An immutable set of labels, sorted by name, none of them empty.

    Label sets with the same names share these, so that one of them is little more than its values.
    """

    __slots__ = ("key",)

    key: LabelKey
    """The names, then the values."""

    def __init__(self, labels: Iterable[tuple[str, str]]) -> None:
        ordered = dict(sorted(pair for pair in labels if pair[1]))
        self.key = (_names(tuple(ordered)), *ordered.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the labels, sorted."""
        names: tuple[str, ...] = self.key[0].names
        return names

    def __getitem__(self, name: str) -> str:
        value: str = self.key[self.key[0].positions[name]]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.key) - 1

    def __contains__(self, name: object) -> bool:
        return name in self.key[0].positions

    def items(self) -> ItemsView[str, str]:
        """Return the pairs; a dict's own items are much quicker than a generic mapping's."""
        key = self.key
        return dict(zip(key[0].names, key[1:], strict=True)).items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LabelSet):
            return self.key == other.key
        return isinstance(other, Mapping) and dict(self.items()) == other

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """Return the text Prometheus prints: `name{a="1", b="2"}`, or `{"na.me", a="1"}`."""
        pairs = ", ".join(
            f"{name if _BARE.fullmatch(name) else _quoted(name)}={_quoted(value)}"
            for name, value in self.items()
            if name != METRIC_NAME
        )
        name = self.value(METRIC_NAME)
        if name and not _BARE_METRIC.fullmatch(name):
            return f"{{{_quoted(name)}{', ' if pairs else ''}{pairs}}}"
        return f"{name}{{{pairs}}}" if pairs or not name else name

    def __repr__(self) -> str:
        return f"LabelSet({self})"

    def value(self, name: str) -> str:
        """Return a label's value; empty if the label is absent."""
        position = self.key[0].positions.get(name)
        value: str = "" if position is None else self.key[position]
        return value

    def without_name(self) -> "LabelSet":
        """Return these labels less the metric's name, type and unit."""
        names: _Names = self.key[0]
        if not names.has_metadata:
            return self
        return of_key(names.nameless(self.key))

    def keep(self, names: Iterable[str]) -> "LabelSet":
        """Return only the labels called `names`."""
        return self._picked("keep", tuple(names))

    def drop(self, names: Iterable[str]) -> "LabelSet":
        """Return the labels other than `names`."""
        return self._picked("drop", tuple(names))

    def _picked(self, how: str, names: tuple[str, ...]) -> "LabelSet":
        return of_key(self.key[0].pick(how, names)(self.key))

    def override(self, labels: Mapping[str, str]) -> "LabelSet":
        """Return these labels updated with others; an empty value removes a label."""
        return LabelSet({**dict(self.items()), **labels}.items())


EMPTY = LabelSet(())


def of_key(key: LabelKey) -> LabelSet:
    """Return the label set for a key."""
    labels = LabelSet.__new__(LabelSet)
    labels.key = key
    return labels


def label_sets(names: Sequence[str]) -> Callable[[tuple[str, ...]], LabelSet]:
    """Return a constructor of label sets that all have these names.

    Args:
        names: in order, each once.

    Returns:
        From one value for each name, none empty, a label set.
    """
    shared = _names(tuple(names))
    return lambda values: of_key((shared, *values))


def label_set(labels: Mapping[str, str]) -> LabelSet:
    """Return the label set of a mapping."""
    return labels if isinstance(labels, LabelSet) else LabelSet(labels.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

"""The label set that names a series."""

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence

METRIC_NAME = "__name__"
_METADATA = (METRIC_NAME, "__type__", "__unit__")
"""What says which metric a value is of; Prometheus 3 drops all of it where a value's meaning changes."""
SEPARATOR = "\x1f"
"""Between the parts of a label set's key; ASCII's own unit separator."""


def _key(labels: dict[str, str]) -> str:
    """Return a text that no other labels have."""
    joined = SEPARATOR.join([*labels, *labels.values()])
    if joined.count(SEPARATOR) == 2 * len(labels) - 1 or not labels:
        return joined
    # A label value may hold any character, the separator too.
    return f"{SEPARATOR}{tuple(labels.items())!r}"


class LabelSet(Mapping[str, str]):
    """An immutable set of labels, sorted by name, none of them empty.

    `key` is one text per label set, so that grouping and matching hash and compare at C speed, once.
    """

    __slots__ = ("_labels", "_nameless", "key")

    def __init__(self, labels: Iterable[tuple[str, str]]) -> None:
        self._labels = dict(sorted(pair for pair in labels if pair[1]))
        self._nameless: LabelSet | None = None
        self.key = _key(self._labels)

    def __getitem__(self, name: str) -> str:
        return self._labels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, name: object) -> bool:
        return name in self._labels

    def items(self) -> ItemsView[str, str]:
        """Return the pairs; a dict's own are much quicker than those of a generic mapping."""
        return self._labels.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LabelSet):
            return self.key == other.key
        return self._labels == other

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """Return the text Prometheus prints: `name{a="1", b="2"}`."""
        pairs = ", ".join(
            f"{name}={_quoted(value)}"
            for name, value in self._labels.items()
            if name != METRIC_NAME
        )
        name = self._labels.get(METRIC_NAME, "")
        return f"{name}{{{pairs}}}" if pairs or not name else name

    def __repr__(self) -> str:
        return f"LabelSet({self})"

    def value(self, name: str) -> str:
        """Return a label's value, the empty text where it has none."""
        return self._labels.get(name, "")

    def without_name(self) -> "LabelSet":
        """Return these labels less the metric's name, type and unit."""
        if self._nameless is None:
            is_named = any(name in self._labels for name in _METADATA)
            self._nameless = self.drop(_METADATA) if is_named else self
        return self._nameless

    def keep(self, names: Iterable[str]) -> "LabelSet":
        """Return only the labels called `names`."""
        return LabelSet((name, self._labels[name]) for name in names if name in self._labels)

    def drop(self, names: Iterable[str]) -> "LabelSet":
        """Return the labels other than `names`."""
        gone = frozenset(names)
        return LabelSet(pair for pair in self._labels.items() if pair[0] not in gone)

    def override(self, labels: Mapping[str, str]) -> "LabelSet":
        """Return these labels with others set over them; an empty value takes a label away."""
        return LabelSet({**self._labels, **labels}.items())


EMPTY = LabelSet(())


def label_sets(names: Sequence[str]) -> Callable[[tuple[str, ...]], LabelSet]:
    """Return what makes label sets that all have these names.

    Args:
        names: in order, each once.

    Returns:
        From one value for each name, none empty and none with an ASCII unit separator, a label set.
    """
    start = "".join(f"{name}{SEPARATOR}" for name in names)
    empty = LabelSet.__new__

    def made(values: tuple[str, ...]) -> LabelSet:
        labels = empty(LabelSet)
        labels._labels = dict(zip(names, values, strict=True))  # noqa: SLF001 - its own module
        labels._nameless = None  # noqa: SLF001
        labels.key = start + SEPARATOR.join(values)
        return labels

    return made


def label_set(labels: Mapping[str, str]) -> LabelSet:
    """Return the label set of a mapping."""
    return labels if isinstance(labels, LabelSet) else LabelSet(labels.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

"""A cache from a target's lines to series, so that a known line costs one look-up.

An exporter prints the same labels with each of its metrics. So the text of labels is kept once, whatever the
number of metrics, and looked up under each metric's name.
"""

from collections.abc import Collection, Mapping
from sys import intern

from gpuscale.series.storage.samples import Series

_SPARE = 10_000
"""Texts beyond two for each series; a series may be written in more than one way."""

NOTHING: Mapping[str, Series] = {}


class KnownLines:
    """Series by the text before the value."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Series]] = {}
        """By the text before the first brace, then by that behind it."""
        self._texts = 0

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def get(self, text: str) -> Series | None:
        """Return the series of a text; None if unknown."""
        name, brace, labels = text.partition("{")
        found = self.by_name.get(name, NOTHING).get(labels)
        return found if labels or not brace else None

    def add(self, new: Mapping[str, Series], most: int) -> None:
        """Add texts to the cache.

        Args:
            new: the series of each.
            most: how many series there are; of many more texts all are forgotten.
        """
        for text, series in new.items():
            name, _, labels = text.partition("{")
            self.by_name.setdefault(name, {})[intern(labels)] = series
        self._texts += len(new)
        if self._texts > 2 * most + _SPARE:
            self._texts = len(self)
            if self._texts > 2 * most + _SPARE:
                self.clear()

    def forget(self, gone: Collection[Series]) -> None:
        self.by_name = {
            name: kept
            for name, known in self.by_name.items()
            if (kept := {text: ref for text, ref in known.items() if ref not in gone})
        }

    def clear(self) -> None:
        self.by_name.clear()
        self._texts = 0

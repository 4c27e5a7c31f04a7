"""Metrics' type, help and unit, as targets expose them, kept while the target exists.

Many targets of one kind say the same, word for word, so each list is kept once.

Source: prometheus scrape/scrape.go (scrapeCache), web/api/v1/api.go (metricMetadata, targetMetadata).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpuscale.base.exposition.reading.entries import MetaLine

MAX_BYTES = 32 * 1024 * 1024
"""Of all lists; what is beyond is left out, and the metrics themselves are kept all the same."""
MAX_TARGET_BYTES = 1024 * 1024
"""Of the list of one target."""

_ENTRY_BYTES = 300
"""What an entry takes besides its characters."""
_WIDEST = 4
"""Bytes of a character, at most."""
_TYPES = {"untyped": "unknown"}


@dataclass(frozen=True, slots=True)
class MetricMetadata:
    """The metadata of one metric of a target."""

    name: str
    type: str = "unknown"
    """In the words of OpenMetrics, such as `gauge`; `unknown` where nothing is said."""
    help: str = ""
    unit: str = ""


@dataclass(slots=True)
class _Kept:
    size: int
    targets: int = 0


_List = tuple[MetricMetadata, ...]


class MetadataBook:
    """The metadata of all targets of a store.

    Args:
        max_bytes: of all lists together.
        max_target_bytes: of one.
    """

    def __init__(
        self, max_bytes: int = MAX_BYTES, max_target_bytes: int = MAX_TARGET_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._max_target_bytes = max_target_bytes
        self._targets: dict[object, tuple[Mapping[str, str], _List]] = {}
        self._lists: dict[_List, _Kept] = {}
        self.size_bytes = 0
        """At most what all lists take."""

    def put(
        self, target: object, labels: Mapping[str, str], metadata: Iterable[MetricMetadata]
    ) -> bool:
        """Replace a target's metadata; return whether all of it is stored.

        Args:
            target: by identity.
            labels: its own.
            metadata: each name at most once.
        """
        self.drop(target)
        wanted = tuple(metadata)
        kept = wanted if wanted in self._lists else self._fitting(wanted)
        if not kept:
            return not wanted
        entry = self._lists.get(kept)
        if entry is None:
            entry = self._lists[kept] = _Kept(sum(map(_size, kept)))
            self.size_bytes += entry.size
        entry.targets += 1
        self._targets[target] = labels, kept
        return len(kept) == len(wanted)

    def drop(self, target: object) -> None:
        _, kept = self._targets.pop(target, (None, ()))
        entry = self._lists.get(kept)
        if entry is None:
            return
        entry.targets -= 1
        if not entry.targets:
            del self._lists[kept]
            self.size_bytes -= entry.size

    def targets(self) -> Iterator[tuple[Mapping[str, str], _List]]:
        """Return each target's labels with its metadata."""
        return iter(tuple(self._targets.values()))

    def by_metric(self, metric: str = "") -> dict[str, list[MetricMetadata]]:
        """Return the metadata of each metric, distinct versions only, sorted by name.

        Args:
            metric: the one that is asked for; empty for all.
        """
        found: dict[str, dict[MetricMetadata, None]] = {}
        for kept in self._lists:
            for each in kept:
                if not metric or each.name == metric:
                    found.setdefault(each.name, {})[each] = None
        return {name: list(found[name]) for name in sorted(found)}

    def _fitting(self, wanted: _List) -> _List:
        """Return the first entries, as many as fit."""
        room = min(self._max_target_bytes, self._max_bytes - self.size_bytes)
        for position, each in enumerate(wanted):
            room -= _size(each)
            if room < 0:
                return wanted[:position]
        return wanted


def metadata_of(lines: Iterable[MetaLine]) -> Iterable[MetricMetadata]:
    """Return the metadata in a text; the last line of a kind and metric wins."""
    found: dict[str, MetricMetadata] = {}
    for line in lines:
        before = found.get(line.name) or MetricMetadata(line.name)
        match line.keyword:
            case "TYPE":
                found[line.name] = replace(before, type=_TYPES.get(line.text, line.text))
            case "HELP":
                found[line.name] = replace(before, help=line.text)
            case _:
                found[line.name] = replace(before, unit=line.text)
    return found.values()


def _size(each: MetricMetadata) -> int:
    texts = each.name, each.type, each.help, each.unit
    return _ENTRY_BYTES + sum(len(text) * (1 if text.isascii() else _WIDEST) for text in texts)

"""The store's series: their handles, an inverted index, and each target's share.

An inverted index from label name and value to series makes selecting quick, and what a selector selects is
remembered until a series comes or goes.
"""

from collections.abc import Callable, Iterable, Iterator, ValuesView
from collections.abc import Set as AbstractSet
from itertools import chain
from weakref import ref as weak

from gpuscale.base.ranges import RangeOf, any_value
from gpuscale.series.labels import METRIC_NAME, LabelKey, LabelSet
from gpuscale.series.matchers import Matcher
from gpuscale.series.storage.limits import TargetShare
from gpuscale.series.storage.postings import Postings
from gpuscale.series.storage.samples import Series

Selector = tuple[Matcher, ...]

_MAX_REMEMBERED = 2_000_000
"""Of selections that are remembered: their series, eight bytes each, and what selectors are counted as."""
_SELECTOR_SERIES = 256
"""What a selector counts as, less its text: there are some thousand of them at most."""
_MAX_FRESH = 20_000
"""Handles without samples that are kept though no other code may hold them."""


class SeriesIndex:
    """All series of a store, apart from their samples.

    Args:
        max_series: a new series above this is refused.
        range_of: says by its name what a series can have.
    """

    def __init__(self, max_series: int, range_of: RangeOf = any_value) -> None:
        self._range_of = range_of
        self.max_series = max_series
        self.generation = 0
        """Changes whenever a series comes or goes."""
        self.postings: Postings[Series] = Postings()
        self._listed: dict[LabelKey, Series] = {}
        self._shares = 0
        """Targets that have series."""
        self._fresh: dict[LabelKey, Series] = {}
        """Handles that were never listed, until the next sweep or until they are too many."""
        self._idle: dict[LabelKey, weak[Series]] = {}
        """Handles that are not listed and may have no holder any more."""
        self._selected: dict[Selector, tuple[Series, ...]] = {}
        self._remembered = 0
        """In series, see `_MAX_REMEMBERED`."""

    @property
    def listed(self) -> ValuesView[Series]:
        """The series that have samples."""
        return self._listed.values()

    def handle(self, labels: LabelSet, share: TargetShare | None = None) -> Series:
        """Return a label set's handle; it is listed once it has a sample."""
        key = labels.key
        series = self._listed.get(key) or self._fresh.get(key)
        if series is None and key in self._idle:
            series = self._idle[key]()
        if series is None:
            series = Series(labels, share, self._range_of(labels.value(METRIC_NAME)))
            if len(self._fresh) >= _MAX_FRESH:
                self.let_go()
            self._fresh[key] = series
        return series

    def give(self, series: Series, share: TargetShare) -> None:
        """Count a series without an owner as a target's."""
        series.share = share
        self._shares += not share.series
        share.series += 1

    def room(self, share: TargetShare) -> int:
        """Return how many more series a target may begin."""
        return share.room(self.max_series - len(self._listed), self._equal_part(share))

    def refusal(self, series: Series) -> str | None:
        """Return why a series may not begin; None if it may."""
        free = self.max_series - len(self._listed)
        if free <= 0:
            return "too_many_series"
        share = series.share
        if share is not None and free - 1 <= share.series >= self._equal_part(share):
            return "too_many_of_target"
        return None

    def add(self, series: Series) -> None:
        """Add a series to the index, at its first sample."""
        key = series.labels.key
        series.is_listed = True
        self._listed[key] = series
        if self._fresh.pop(key, None) is None:
            self._idle.pop(key, None)
        if series.share is not None:
            self._shares += not series.share.series
            series.share.series += 1
        self.postings.add(series)
        self._forget_selected()

    def remove(self, gone: AbstractSet[Series]) -> None:
        """Remove series without samples; handles stay valid for their holders."""
        for series in gone:
            del self._listed[series.labels.key]
            self._idle[series.labels.key] = weak(series)
            if series.share is not None:
                series.share.series -= 1
                self._shares -= not series.share.series
            series.is_listed = False
            series.moves = 0
        self.postings.remove(gone)
        self._forget_selected()

    def _forget_selected(self) -> None:
        self.generation += 1
        if self._selected:
            self._selected.clear()
            self._remembered = 0

    def let_go(self) -> None:
        """Keep unlisted handles only while somebody else refers to them."""
        self._idle = {key: held for key, held in self._idle.items() if held() is not None}
        self._idle.update((key, weak(series)) for key, series in self._fresh.items())
        self._fresh.clear()

    def select(self, matchers: Selector) -> tuple[Series, ...]:
        """Return the series that match all matchers, whatever their samples' times.

        Raises:
            ValueError: a matcher is not a regular expression of RE2.
        """
        found = self._selected.get(matchers)
        if found is None:
            found = tuple(self._find(matchers))
            text = sum(len(matcher.name) + len(matcher.value) for matcher in matchers)
            self._remembered += len(found) + _SELECTOR_SERIES + text // 8
            if self._remembered > _MAX_REMEMBERED:
                self._selected.clear()
                self._remembered = len(found) + _SELECTOR_SERIES + text // 8
            self._selected[matchers] = found
        return found

    def _equal_part(self, share: TargetShare) -> int:
        """Return each target's equal share, if one more target comes."""
        targets = self._shares + (not share.series)
        return self.max_series // (targets + 1)

    def _find(self, matchers: Selector) -> Iterable[Series]:
        tests = [(matcher, matcher.predicate()) for matcher in matchers]
        found, used = self._smallest_pool(tests)
        for matcher, test in tests:
            if matcher is not used:
                found = _passing(found, matcher.name, test)
        return found

    def _smallest_pool(
        self, tests: list[tuple[Matcher, Callable[[str], bool]]]
    ) -> tuple[Iterable[Series], Matcher | None]:
        """Return the candidate series, and the matcher that they are known to match.

        A matcher that an absent label fulfils says nothing about where to look.
        """
        needed = [(matcher, test) for matcher, test in tests if not test("")]
        pools = [
            ([self.postings.of(matcher.name, value) for value in values], matcher)
            for matcher, _ in needed
            if (values := matcher.values()) is not None
        ]
        if pools:
            lists, used = min(pools, key=lambda pool: sum(map(len, pool[0])))
            return chain.from_iterable(lists), used
        if needed:
            matcher, test = needed[0]
            postings = self.postings.values(matcher.name)
            return [
                each for value, posting in postings.items() if test(value) for each in posting
            ], matcher
        return self._listed.values(), None


def _passing(series: Iterable[Series], name: str, test: Callable[[str], bool]) -> Iterator[Series]:
    """Return the series whose label passes; each distinct value is tested once."""
    verdicts: dict[str, bool] = {}
    for each in series:
        value = each.labels.value(name)
        verdict = verdicts.get(value)
        if verdict is None:
            verdict = verdicts[value] = test(value)
        if verdict:
            yield each

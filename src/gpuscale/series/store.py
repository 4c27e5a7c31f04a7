"""Time series in memory: append, select, staleness, retention.

Samples of a series lie in two packed arrays, 16 bytes a sample. An inverted index from label name and value
to series makes selecting quick, and what a selector selects is remembered until a series comes or goes.

Nothing is lost silently: what the bounds keep out is counted by reason. A store with no room for another
sample drops its oldest ones, just as many as it needs; what a query can't be answered without, it refuses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from weakref import ref as weak

from gpuscale.series.ages import SampleAges
from gpuscale.series.labels import label_set
from gpuscale.series.limits import Share
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.postings import Postings
from gpuscale.series.samples import NEVER_MS, Series
from gpuscale.series.staleness import STALE

REFUSALS = (
    "out_of_order",
    "duplicate_timestamp",
    "too_old",
    "too_far_ahead",
    "too_many_series",
    "too_many_of_target",
    "too_many_samples",
)
"""Why a sample is not taken."""

MAX_AHEAD_MS = 10_000
"""How far a sample's own timestamp may lie ahead of the server's clock.

Prometheus takes ten minutes. Such a sample has no value until its time comes, and clocks of one
cluster differ by much less.
"""
_SWEEPS_PER_RETENTION = 16
_CUT_STEPS = 256
"""How finely the time of a cut is chosen: parts of the retention."""
_CUT_SHARE = 32
"""One part in so many of all samples goes with a cut, so that not every sample needs one."""
_MAX_REMEMBERED_SELECTORS = 1024
_MAX_FRESH = 20_000
"""Handles without samples that are kept though nobody else may hold them."""

Selector = tuple[Matcher, ...]


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How full a store is, and what it did not take."""

    series: int
    samples: int
    now_ms: int | None
    """The store's clock; None where nothing was ever appended."""
    refused: Mapping[str, int]
    """Samples by reason, one entry for each of `REFUSALS`."""
    cut: int
    """Samples that were dropped to make room, before they were too old."""
    covered_ms: int
    """How far back all that was taken is still there; at most the retention."""


class SeriesStore:
    """Series of the last `retention_ms`, up to bounds on their number and size.

    Time is the server's: whoever appends says when a sample arrived, and a sample's own timestamp
    moves nothing. The store reads no clock itself, so that it works in virtual time too.

    Args:
        retention_ms: how far back from the newest arrival anything is kept.
        max_series: a new series above this is refused.
        max_samples: where this is reached, the oldest samples make room; 16 bytes each.
    """

    def __init__(
        self,
        retention_ms: int = 3_600_000,
        max_series: int = 200_000,
        max_samples: int = 20_000_000,
    ) -> None:
        self.retention_ms = retention_ms
        self.max_series = max_series
        self.max_samples = max_samples
        self.generation = 0
        """Changes whenever a series comes or goes."""
        self._samples = 0
        self._ages = SampleAges(max(1, retention_ms // _CUT_STEPS))
        self._cut = 0
        self._cut_before_ms = -NEVER_MS
        self._now_ms: int | None = None
        self._sweep_at_ms = -NEVER_MS
        self._refused = dict.fromkeys(REFUSALS, 0)
        self._listed: dict[str, Series] = {}
        self._shares = 0
        """Targets that have series."""
        self._fresh: dict[str, Series] = {}
        """Handles that were never listed, until the next sweep or until they are too many."""
        self._idle: dict[str, weak[Series]] = {}
        """Handles that are not listed and may have no holder any more."""
        self._postings: Postings[Series] = Postings()
        self._selected: dict[Selector, tuple[Series, ...]] = {}

    def append(
        self, labels: Mapping[str, str], t_ms: int, value: float, now_ms: int | None = None
    ) -> bool:
        """Add a sample; return whether it was taken.

        Args:
            labels: with the metric's name under `__name__`.
            t_ms: milliseconds since the epoch.
            value: any number, NaN included.
            now_ms: the server's time; None where `t_ms` is that. Give it wherever `t_ms` is somebody else's.
        """
        return self.append_ref(self.ref(labels), t_ms, value, now_ms)

    def ref(self, labels: Mapping[str, str], share: Share | None = None) -> Series:
        """Return the handle of a label set; the series itself begins with its first sample.

        Args:
            labels: with the metric's name under `__name__`.
            share: of the target whose series it is, if nobody had it before.
        """
        labels = label_set(labels)
        key = labels.key
        series = self._listed.get(key) or self._fresh.get(key)
        if series is None and key in self._idle:
            series = self._idle[key]()
        if series is None:
            series = Series(labels, share)
            if len(self._fresh) >= _MAX_FRESH:
                self._let_go()
            self._fresh[key] = series
        return series

    def room(self, share: Share) -> int:
        """Return how many series more a target may begin."""
        return share.room(self.max_series - len(self._listed), self._equal_part(share))

    def _equal_part(self, share: Share) -> int:
        """Return what each target has if all have the same, and one more comes."""
        targets = self._shares + (not share.series)
        return self.max_series // (targets + 1)

    def append_ref(self, ref: Series, t_ms: int, value: float, now_ms: int | None = None) -> bool:
        """Add a sample through a handle; return whether it was taken. Arguments as for `append`."""
        if not self._takes(t_ms, 1, now_ms) or not (t_ms > ref.last_ms or self._begin(ref, t_ms)):
            return False
        ref.times_ms.append(t_ms)
        ref.values.append(value)
        ref.last_ms = t_ms
        self._count(t_ms, 1)
        return True

    def append_many(
        self,
        refs: Sequence[Series],
        values: Sequence[float],
        t_ms: int,
        now_ms: int | None = None,
    ) -> int:
        """Add one sample to each of many series at one time; return how many were taken.

        Arguments as for `append`.
        """
        if not self._takes(t_ms, len(refs), now_ms):
            return 0
        taken = 0
        for ref, value in zip(refs, values, strict=True):
            if t_ms > ref.last_ms or self._begin(ref, t_ms):
                ref.times_ms.append(t_ms)
                ref.values.append(value)
                ref.last_ms = t_ms
                taken += 1
        self._count(t_ms, taken)
        return taken

    def append_newest(
        self,
        refs: Sequence[Series],
        values: Sequence[float],
        t_ms: int,
        now_ms: int,
        resolution_ms: int,
    ) -> int:
        """Add samples as `append_many` does, but keep only the newest of each step of time.

        The newest sample of a series is always there, at the time it was measured; it takes the place of
        the one before it if both are of one step.

        Args:
            refs: the series.
            values: one for each.
            t_ms: milliseconds since the epoch.
            now_ms: the server's time.
            resolution_ms: the length of a step.
        """
        if not self._takes(t_ms, len(refs), now_ms):
            return 0
        step_ms = t_ms - t_ms % resolution_ms
        taken = added = 0
        for ref, value in zip(refs, values, strict=True):
            if step_ms <= ref.last_ms < t_ms and not (ref.has_stale and ref.is_stale()):
                ref.times_ms[-1] = t_ms
                ref.values[-1] = value
            elif t_ms > ref.last_ms or self._begin(ref, t_ms):
                ref.times_ms.append(t_ms)
                ref.values.append(value)
                added += 1
            else:
                continue
            ref.last_ms = t_ms
            taken += 1
        self._count(t_ms, added)
        return taken

    def mark_stale(self, ref: Series, t_ms: int) -> bool:
        """Write that a series ends; return whether there was something to end.

        Where its newest sample is of this very time or later, the end is put right behind it. A full store
        takes it all the same: what has ended must not pass for current. One more sample a series is all
        that this can bring.
        """
        if not ref.values or ref.is_stale():
            return False
        t_ms = max(t_ms, ref.last_ms + 1)
        ref.times_ms.append(t_ms)
        ref.values.append(STALE)
        ref.last_ms = t_ms
        ref.has_stale = True
        self._count(t_ms, 1)
        return True

    def select(self, matchers: Selector) -> tuple[Series, ...]:
        """Return the series that fulfil all matchers, whenever their samples are.

        Raises:
            ValueError: a matcher is not a regular expression of RE2.
        """
        found = self._selected.get(matchers)
        if found is None:
            if len(self._selected) >= _MAX_REMEMBERED_SELECTORS:
                self._selected.clear()
            found = self._selected[matchers] = tuple(self._find(matchers))
        return found

    def series(
        self, matchers: Selector, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[Mapping[str, str]]:
        """Return the label sets of series with a sample between the times, both ends included."""
        return [series.labels for series in self._between(matchers, start_ms, end_ms)]

    def label_names(
        self, matchers: Selector = (), start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Return the label names of the selected series, sorted."""
        if not matchers and start_ms is None and end_ms is None:
            return sorted(self._postings.names())
        found = self._between(matchers, start_ms, end_ms)
        return sorted({name for series in found for name in series.labels})

    def label_values(
        self,
        name: str,
        matchers: Selector = (),
        start_ms: int | None = None,
        end_ms: int | None = None,
    ) -> list[str]:
        """Return the values that one label has among the selected series, sorted."""
        if not matchers and start_ms is None and end_ms is None:
            return sorted(self._postings.values(name))
        found = self._between(matchers, start_ms, end_ms)
        return sorted({series.labels[name] for series in found if name in series.labels})

    def advance(self, now_ms: int) -> int:
        """Move the store's clock to the server's time, never back; return what it shows."""
        if self._now_ms is None or now_ms > self._now_ms:
            self._now_ms = now_ms
            if now_ms >= self._sweep_at_ms:
                self._sweep()
        return self._now_ms

    def oldest_kept_ms(self) -> int:
        """Return the time before which nothing is answered any more."""
        return -NEVER_MS if self._now_ms is None else self._now_ms - self.retention_ms

    def stats(self) -> StoreStats:
        """Return how full the store is."""
        since_cut_ms = 0 if self._now_ms is None else self._now_ms - self._cut_before_ms
        return StoreStats(
            len(self._listed),
            self._samples,
            self._now_ms,
            dict(self._refused),
            self._cut,
            min(self.retention_ms, since_cut_ms) if self._cut else self.retention_ms,
        )

    def _takes(self, t_ms: int, count: int, now_ms: int | None) -> bool:
        """Move time forward, and check what concerns all samples of one time."""
        if now_ms is None:
            now_ms = t_ms
        newest_ms = self.advance(now_ms)
        if t_ms < newest_ms - self.retention_ms:
            self._refused["too_old"] += count
            return False
        if t_ms > newest_ms + MAX_AHEAD_MS:
            self._refused["too_far_ahead"] += count
            return False
        if self._samples + count > self.max_samples and not self._make_room(count):
            self._refused["too_many_samples"] += count
            return False
        return True

    def _count(self, t_ms: int, count: int) -> None:
        self._samples += count
        self._ages.add(t_ms, count)

    def _make_room(self, count: int) -> bool:
        """Drop the oldest samples, as many as it takes; return whether there is room now.

        Each series keeps its newest sample, so that none that is current seems to have ended.
        """
        now_ms = self._now_ms or 0
        while (excess := self._samples + count - self.max_samples) > 0:
            cutoff_ms = self._ages.cutoff_ms(excess + self.max_samples // _CUT_SHARE, now_ms)
            if cutoff_ms is None:
                return False
            cut = sum(series.cut(cutoff_ms) for series in self._listed.values())
            self._ages.forget(cutoff_ms)
            self._samples -= cut
            self._cut += cut
            self._cut_before_ms = max(self._cut_before_ms, cutoff_ms)
        return True

    def _begin(self, ref: Series, t_ms: int) -> bool:
        """Return whether a series takes a sample that is not simply its next one."""
        if ref.last_ms != NEVER_MS:
            reason = "duplicate_timestamp" if t_ms == ref.last_ms else "out_of_order"
            self._refused[reason] += 1
            return False
        free = self.max_series - len(self._listed)
        if free <= 0:
            self._refused["too_many_series"] += 1
            return False
        share = ref.share
        if share is not None and free - 1 <= share.series >= self._equal_part(share):
            self._refused["too_many_of_target"] += 1
            return False
        self._list(ref)
        return True

    def _list(self, series: Series) -> None:
        key = series.labels.key
        self._listed[key] = series
        if self._fresh.pop(key, None) is None:
            self._idle.pop(key, None)
        if series.share is not None:
            self._shares += not series.share.series
            series.share.series += 1
        self._postings.add(series)
        self._forget_selected()

    def _unlist(self, gone: AbstractSet[Series]) -> None:
        for series in gone:
            del self._listed[series.labels.key]
            self._idle[series.labels.key] = weak(series)
            if series.share is not None:
                series.share.series -= 1
                self._shares -= not series.share.series
            series.last_ms = NEVER_MS
            series.has_stale = False
        self._postings.remove(gone)
        self._forget_selected()

    def _forget_selected(self) -> None:
        self.generation += 1
        if self._selected:
            self._selected.clear()

    def _sweep(self) -> None:
        """Drop what is older than the retention."""
        cutoff_ms = self.oldest_kept_ms()
        for series in self._listed.values():
            if series.times_ms[0] < cutoff_ms:
                self._samples -= series.expire(cutoff_ms)
        self._ages.forget(cutoff_ms)
        gone = {series for series in self._listed.values() if not series.times_ms}
        if gone:
            self._unlist(gone)
        if self._sweep_at_ms != -NEVER_MS:
            # The very first samples find handles that were made for them.
            self._let_go()
        now_ms = cutoff_ms + self.retention_ms
        self._sweep_at_ms = now_ms + max(1, self.retention_ms // _SWEEPS_PER_RETENTION)

    def _let_go(self) -> None:
        """Keep handles that are not listed only where someone else holds them."""
        self._idle = {key: held for key, held in self._idle.items() if held() is not None}
        self._idle.update((key, weak(series)) for key, series in self._fresh.items())
        self._fresh.clear()

    def _between(
        self, matchers: Selector, start_ms: int | None, end_ms: int | None
    ) -> Iterator[Series]:
        oldest_ms = self.oldest_kept_ms()
        start = oldest_ms if start_ms is None else max(start_ms, oldest_ms)
        end = NEVER_MS if end_ms is None else end_ms
        return (each for each in self.select(matchers) if each.has_sample_between(start, end))

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
        """Return the series to look through, and the matcher that they are known to fulfil.

        A matcher that an absent label fulfils says nothing about where to look.
        """
        needed = [(matcher, test) for matcher, test in tests if not test("")]
        equal = [matcher for matcher, _ in needed if matcher.op is MatchOp.EQUAL]
        if equal:
            pools = [(self._postings.of(each.name, each.value), each) for each in equal]
            return min(pools, key=lambda pool: len(pool[0]))
        if needed:
            matcher, test = needed[0]
            values = self._postings.values(matcher.name)
            return [
                each for value, posting in values.items() if test(value) for each in posting
            ], matcher
        return self._listed.values(), None


def _passing(series: Iterable[Series], name: str, test: Callable[[str], bool]) -> Iterator[Series]:
    """Return the series whose label passes; each value is tested once."""
    verdicts: dict[str, bool] = {}
    for each in series:
        value = each.labels.value(name)
        verdict = verdicts.get(value)
        if verdict is None:
            verdict = verdicts[value] = test(value)
        if verdict:
            yield each

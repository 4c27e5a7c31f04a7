"""Stores what a target exposes: Prometheus' scrape loop without the network.

Source: prometheus scrape/scrape.go (append, mutateSampleLabels, report).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import Problem
from gpuscale.base.exposition.parse import check_size
from gpuscale.base.exposition.reading.entries import ExpositionError, MetaLine, NativeHistogramError
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, ExpositionFormat
from gpuscale.series.possible import RangeCheck
from gpuscale.series.scraping.scraped_text import ScrapedText, TextReader
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.limits import (
    DEFAULT_LIMITS,
    ScrapeLimitError,
    ScrapeLimits,
    check_limit,
)
from gpuscale.series.storage.metadata import metadata_of
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import KEEP_ALL, WantedSeries


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """The result of a scrape."""

    samples: int
    """Lines with a value."""
    added: int
    """Samples that the store took."""
    refused: int
    """Samples that it did not; the store counts the reasons."""
    problem: Problem | None = None
    """Why the whole scrape failed; None where it did not."""
    limit: str | None = None
    """Which limit it failed by, if it did by one; `native_histograms` where it carried some."""


class ScrapeTarget:
    """A scraped address: its labels, its last series, and whether it is up.

    Args:
        store: where samples go.
        labels: the target's own, such as job, instance, namespace and pod; empty ones are left out.
        honor_labels: whether an exposed label wins over the target's of the same name; otherwise the exposed
            one is kept as `exported_<name>`.
        own_labels: names of labels that are the target's even so.
        limits: what a scrape may bring.
        source: the target's name in messages.
        wanted: decides which series are kept.
    """

    def __init__(
        self,
        store: SeriesStore,
        labels: Mapping[str, str],
        *,
        honor_labels: bool = False,
        own_labels: Collection[str] = (),
        limits: ScrapeLimits = DEFAULT_LIMITS,
        source: str = "<scrape>",
        wanted: WantedSeries = KEEP_ALL,
    ) -> None:
        self.unwanted = 0
        """Samples of the last scrape whose series are not kept."""
        self._store = store
        self._limits = limits
        self._target = TargetSeries(store, labels, honor_labels=honor_labels, own_labels=own_labels)
        self._source = source
        self._reader = TextReader(store, self._target, limits, source, wanted)
        self._last: list[Series] = []
        self._metas: list[MetaLine] | None = []
        """What it said of its metrics last; None where that was too much to keep."""
        self._group: SeriesGroup | None = None
        self._check = RangeCheck()

    def ingest(
        self,
        text: str,
        t_ms: int,
        duration_seconds: float | None = None,
        format_: ExpositionFormat = PROMETHEUS_TEXT,
    ) -> ScrapeResult:
        """Store a scrape's text, all of it or nothing.

        A series that was there last time and is not now, or has a value that it can't have, gets a staleness
        marker. A malformed text, or one beyond a limit, is a failed scrape and comes back as `problem`.

        Args:
            text: what the target answered, bytes that are not UTF-8 decoded with `surrogateescape`.
            t_ms: the server's time when the scrape began; that of all samples without one of their own.
            duration_seconds: how long it took; written as `scrape_duration_seconds` where known.
            format_: of the text.
        """
        self._store.advance(t_ms)
        try:
            check_size(text, self._source)
            check_limit("body_size", len(text), self._limits.body_bytes, "bytes", self._source)
            scraped = self._reader.read(text, format_)
        except ExpositionError as error:
            self.failed(t_ms, duration_seconds)
            return ScrapeResult(0, 0, 0, error.problems[0], _limit(error))
        samples = scraped.samples
        self._leave_out_impossible(scraped, t_ms)
        if self._group is None:
            self._group = self._store.group_of(scraped.refs)
            # Restored series missing in this scrape have ended meanwhile.
            self._last = self._group.members
        added = self._store.append_many(scraped.refs, scraped.values, t_ms, group=self._group)
        added += self._append_timed(scraped.timed, t_ms)
        self._reader.remember(scraped)
        if scraped.metas != self._metas:
            is_whole = self._target.describe(metadata_of(scraped.metas))
            self._metas = scraped.metas if is_whole else None
        self._end_missing(scraped.refs, t_ms)
        self._report(t_ms, up=1, samples=samples, duration_seconds=duration_seconds)
        self.unwanted = scraped.unwanted
        return ScrapeResult(samples, added, samples - added - scraped.unwanted)

    def repeat(self, values: Sequence[float], t_ms: int) -> None:
        """Store new values for the series of the last scrape, in the order of its lines.

        The result is that of `ingest` for a text with the same series, if it stored all of them.
        """
        self._store.advance(t_ms)
        self._store.append_many(self._last, values, t_ms, group=self._group)
        self._report(t_ms, up=1, samples=len(values), duration_seconds=None)

    def failed(self, t_ms: int, duration_seconds: float | None = None) -> None:
        """Record a failed scrape: the series end, and `up` is 0."""
        self._end_missing([], t_ms)
        self._report(t_ms, up=0, samples=0, duration_seconds=duration_seconds)

    def gone(self, t_ms: int) -> None:
        """Record that the target is gone: all of its series end, `up` included."""
        self._end_missing([], t_ms)
        self._target.end_reports(t_ms)
        self._metas = []

    def _leave_out_impossible(self, scraped: ScrapedText, t_ms: int) -> None:
        refs, values = scraped.refs, scraped.values
        if self._check.refs != refs:
            self._check = RangeCheck(refs)
        outside = set(self._check.outside(values))
        if outside:
            for position in outside:
                self._store.leave_out(refs[position], values[position], t_ms)
            kept = [position for position in range(len(refs)) if position not in outside]
            scraped.refs = [refs[position] for position in kept]
            scraped.values = [values[position] for position in kept]
        timed, scraped.timed = scraped.timed, []
        for ref, value, time_ms in timed:
            if ref.range is None or ref.range.has(value):
                scraped.timed.append((ref, value, time_ms))
            else:
                self._store.leave_out(ref, value, t_ms)
                self._store.mark_stale(ref, t_ms)

    def _append_timed(self, timed: Iterable[tuple[Series, float, int]], t_ms: int) -> int:
        append = self._store.append_ref
        return sum(append(ref, time_ms, value, t_ms) for ref, value, time_ms in timed)

    def _end_missing(self, current: list[Series], t_ms: int) -> None:
        """Add end markers to the series of the last scrape that are missing in this one."""
        if current != self._last:
            missing = set(self._last).difference(current)
            for series in self._last:
                if series in missing:
                    self._store.mark_stale(series, t_ms)
            if missing:
                self._reader.forget(missing)
        self._last = current

    def _report(self, t_ms: int, *, up: int, samples: int, duration_seconds: float | None) -> None:
        values: dict[str, float] = {"up": up, "scrape_samples_scraped": samples}
        if duration_seconds is not None:
            values["scrape_duration_seconds"] = duration_seconds
        self._target.report(values, t_ms)


def _limit(error: ExpositionError) -> str | None:
    """Return the limit that a text exceeded."""
    if isinstance(error, NativeHistogramError):
        return "native_histograms"
    return error.limit if isinstance(error, ScrapeLimitError) else None

"""What a target exposes, into the store: Prometheus' scrape loop less the network.

A target remembers for each text before a value (`name{labels}`) the series it stands for, so that a repeated
scrape costs a look-up and a `float()` a line. Only a line that is new is taken apart.

Source: prometheus scrape/scrape.go (append, mutateSampleLabels, report).
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from gpuscale.core.errors import Problem
from gpuscale.exposition.lines import LineError, SampleLine, is_plain, parse_line, parse_value
from gpuscale.exposition.parse import ExpositionError, check_size, line_error
from gpuscale.series.bounds import BoundLabels
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.limits import (
    ScrapeLimitError,
    ScrapeLimits,
    check_labels,
    check_limit,
)
from gpuscale.series.samples import NEVER_MS, Series
from gpuscale.series.shapes import LineShapes
from gpuscale.series.store import SeriesStore
from gpuscale.series.target import TargetSeries

DEFAULT_LIMITS = ScrapeLimits()


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """What one scrape brought."""

    samples: int
    """Lines with a value."""
    added: int
    """Samples that the store took."""
    refused: int
    """Samples that it did not; the store counts the reasons."""
    problem: Problem | None = None
    """Why the whole scrape failed; None where it did not."""
    limit: str | None = None
    """Which limit it failed by, if it did by one."""


@dataclass(slots=True)
class _Scrape:
    """One text, read but not yet stored."""

    refs: list[Series]
    values: list[float]
    heads: dict[str, Series]
    """Texts before the value that were not known before."""
    timed: list[tuple[Series, float, int]]
    """Samples that bring their own time."""
    room: int
    """How many series more may begin; below zero once they are too many."""


class ScrapeTarget:
    """One scraped address: its labels, what it exposed last, and whether it is up.

    Args:
        store: where samples go.
        labels: the target's own, such as job, instance, namespace and pod; empty ones are left out.
        honor_labels: whether an exposed label wins over the target's of the same name; otherwise the exposed
            one is kept as `exported_<name>`.
        own_labels: names of labels that are the target's even so.
        limits: what a scrape may bring.
        source: the target's name in messages.
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
    ) -> None:
        self._store = store
        self._limits = limits
        self._unchecked_chars = limits.shortest_chars()
        self._target = TargetSeries(store, labels, honor_labels=honor_labels, own_labels=own_labels)
        self._source = source
        self._shapes = LineShapes(self._target.merged)
        self._refs: dict[str, Series] = {}
        self._heads: dict[Series, str] = {}
        self._last: list[Series] = []

    def ingest(self, text: str, t_ms: int, duration_seconds: float | None = None) -> ScrapeResult:
        """Store what the target answered, all of it or nothing.

        A series that was there last time and is not now gets a staleness marker. A malformed text, or one
        beyond a limit, counts as a failed scrape and comes back as `problem`.

        Args:
            text: in the Prometheus text format 0.0.4.
            t_ms: the server's time when the scrape began; that of all samples without one of their own.
            duration_seconds: how long it took; written as `scrape_duration_seconds` where known.
        """
        self._store.advance(t_ms)
        try:
            check_size(text, self._source)
            check_limit("body_size", len(text), self._limits.body_bytes, "bytes", self._source)
            scrape = self._read(text)
        except ExpositionError as error:
            self.failed(t_ms, duration_seconds)
            limit = error.limit if isinstance(error, ScrapeLimitError) else None
            return ScrapeResult(0, 0, 0, error.problems[0], limit)
        samples = len(scrape.refs) + len(scrape.timed)
        added = self._store.append_many(scrape.refs, scrape.values, t_ms)
        added += self._append_timed(scrape.timed, t_ms)
        self._remember(scrape.heads)
        self._end_missing(scrape.refs, t_ms)
        self._report(t_ms, up=1, samples=samples, duration_seconds=duration_seconds)
        return ScrapeResult(samples, added, samples - added)

    def failed(self, t_ms: int, duration_seconds: float | None = None) -> None:
        """Note that the target did not answer: its series end, and `up` is 0."""
        self._end_missing([], t_ms)
        self._report(t_ms, up=0, samples=0, duration_seconds=duration_seconds)

    def gone(self, t_ms: int) -> None:
        """Note that the target is no more: all that was written for it ends, `up` included."""
        self._end_missing([], t_ms)
        self._target.end_reports(t_ms)

    def _read(self, text: str) -> _Scrape:
        lines = text.split("\n")
        scrape = _Scrape([], [], {}, [], self._room())
        refs, heads = scrape.refs, scrape.heads
        texts: list[str] = []
        others: list[int] = []
        bounds = BoundLabels(lines)
        known = self._refs.get
        unchecked, most = self._unchecked_chars, self._limits.labels
        for number, line in enumerate(lines):
            head, _, value = line.rpartition(" ")
            ref = known(head)
            if ref is not None:
                refs.append(ref)
                texts.append(value)
            elif line and line[0] != "#":
                labels = self._shapes.labels(head)
                if labels is None:
                    others.append(number)
                    continue
                if changes := bounds.changes(labels, number):
                    labels = labels.override(changes)
                heads[head] = ref = self._store.ref(labels, self._target.share)
                if ref.last_ms == NEVER_MS:
                    scrape.room -= 1
                    if scrape.room < 0 or len(head) > unchecked or len(labels) > most:
                        self._admit(scrape, ref, number + 1)
                refs.append(ref)
                texts.append(value)
        scrape.values = self._floats(texts, lines, heads)
        bounds = BoundLabels(lines)
        for number in others:
            self._read_new(scrape, lines[number], number + 1, bounds)
        samples = len(refs) + len(scrape.timed)
        check_limit("samples", samples, self._limits.samples, "samples", self._source)
        return scrape

    def _room(self) -> int:
        """Return how many series the target may begin."""
        share = self._target.share
        room = self._store.room(share)
        return min(room, self._limits.series - share.series) if self._limits.series else room

    def _admit(self, scrape: _Scrape, ref: Series, number: int) -> None:
        """Pass a series that is to begin, once it is counted.

        Raises:
            ScrapeLimitError: it is one too many, or its labels are.
        """
        if scrape.room < 0:
            share = self._target.share
            room = self._room()
            expected = f"at most that beside the {share.series} that the store keeps of this target"
            problem = Problem(self._source, number, None, f"over {room} new series", expected)
            raise ScrapeLimitError("series", problem)
        check_labels(ref.labels, self._limits, self._source, number)

    def _floats(
        self, texts: list[str], lines: list[str], heads: Mapping[str, Series]
    ) -> list[float]:
        """Return the numbers, checked all at once; the line at fault is looked for only then."""
        try:
            values = [float(text) for text in texts]
        except ValueError:
            values = []
        if texts and (not values or not is_plain("".join(texts)) or math.inf in map(abs, values)):
            return self._floats_one_by_one(lines, heads)
        return values

    def _floats_one_by_one(self, lines: list[str], heads: Mapping[str, Series]) -> list[float]:
        values = []
        for number, line in enumerate(lines, start=1):
            head, _, text = line.rpartition(" ")
            if head in self._refs or head in heads:
                try:
                    values.append(float(parse_value(text)))
                except LineError as error:
                    raise line_error(error, self._source, number) from None
        return values

    def _read_new(self, scrape: _Scrape, line: str, number: int, bounds: BoundLabels) -> None:
        try:
            parsed = parse_line(line)
        except LineError as error:
            raise line_error(error, self._source, number) from None
        if not isinstance(parsed, SampleLine):
            return
        exposed = {METRIC_NAME: parsed.name, **dict(parsed.labels)}
        ref = self._target.ref({**exposed, **bounds.changes(exposed, number - 1)})
        if ref.last_ms == NEVER_MS:
            scrape.room -= 1
            self._admit(scrape, ref, number)
        if parsed.timestamp_ms is not None:
            scrape.timed.append((ref, float(parsed.value), parsed.timestamp_ms))
            return
        scrape.refs.append(ref)
        scrape.values.append(float(parsed.value))
        head = line.rpartition(" ")[0]
        if head.rstrip(" \t") == parsed.head:
            scrape.heads[head] = ref

    def _append_timed(self, timed: Iterable[tuple[Series, float, int]], t_ms: int) -> int:
        append = self._store.append_ref
        return sum(append(ref, time_ms, value, t_ms) for ref, value, time_ms in timed)

    def _remember(self, heads: Mapping[str, Series]) -> None:
        for head, ref in heads.items():
            # A second spelling of the same series stays new each time, so that forgetting is simple.
            if self._heads.setdefault(ref, head) == head:
                self._refs[head] = ref

    def _end_missing(self, current: list[Series], t_ms: int) -> None:
        """Mark the series of the last scrape that are not in this one."""
        if current != self._last:
            still_there = set(current)
            for series in self._last:
                if series not in still_there:
                    self._store.mark_stale(series, t_ms)
                    self._refs.pop(self._heads.pop(series, ""), None)
        self._last = current

    def _report(self, t_ms: int, *, up: int, samples: int, duration_seconds: float | None) -> None:
        report = self._target.report
        report("up", up, t_ms)
        report("scrape_samples_scraped", samples, t_ms)
        if duration_seconds is not None:
            report("scrape_duration_seconds", duration_seconds, t_ms)

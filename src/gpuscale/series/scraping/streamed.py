"""Stores a node agent's stream line by line.

Every line says that all series were measured at its time, whether their values changed or not, and so it is
stored: one row for all of them, in which only what changed is written. Of the lines of one second the newest
is kept: what is current is as fresh as the stream, and a range has a sample a second.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from gpuscale.base.exposition.reading.entries import MetaLine
from gpuscale.base.exposition.stream import StreamLine, StreamReader
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.bounds import BOUND_LABELS, with_stored_bound
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.limits import (
    DEFAULT_LIMITS,
    RESOLUTION_MS,
    ScrapeLimitError,
    ScrapeLimits,
    check_labels,
    check_limit,
    too_many_series,
)
from gpuscale.series.storage.metadata import metadata_of
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import KEEP_ALL, WantedSeries

UP_MS = 1_000
"""How often it is stored that the agent is there."""
_MAX_LATE_MS = 10_000
"""How old a relayed line may be to wait for the next; with one that is older, a clock was set back."""


class StreamedTarget:
    """One agent's series, over any number of connections.

    Args:
        store: where samples go.
        target: the agent's labels.
        resolution_ms: the step of time of which the newest sample is kept.
        limits: what the agent may bring.
        source: the agent's name in messages.
        wanted: decides which series are kept.
    """

    def __init__(
        self,
        store: SeriesStore,
        target: TargetSeries,
        resolution_ms: int = RESOLUTION_MS,
        *,
        limits: ScrapeLimits = DEFAULT_LIMITS,
        source: str = "<stream>",
        wanted: WantedSeries = KEEP_ALL,
    ) -> None:
        self.series = self.unwanted = 0
        """Series that the agent has now and that are kept, and those that are not."""
        self.observer: Callable[[StreamLine[Series], int], None] | None = None
        """Gets what each line brought once it is stored, and the time that it was stored at. Impossible
        values are in it: another store leaves them out itself, and then knows why."""
        self._is_relayed = False
        self._late: StreamLine[Series] | None = None
        """What relayed lines brought that were older than what is stored."""
        self._wanted = wanted
        self._version = wanted.version
        self._limits = limits
        self._source = source
        self._resolution_ms = resolution_ms
        self._store = store
        self._target = target
        self._reader = StreamReader(self._ref)
        self._group: SeriesGroup | None = None
        self._impossible: dict[Series, float] = {}
        """What the agent has in place of a possible value."""
        self._stored_ms = 0
        """The time of the last samples."""
        self._up_ms = -UP_MS
        """When it was stored last that the agent is there."""

    @property
    def measured_ms(self) -> int | None:
        """Return the agent's last measurement time; None before this connection's snapshot."""
        return self._reader.measured_ms

    @property
    def error(self) -> str | None:
        return self._reader.error

    @property
    def ended(self) -> str | None:
        """Return why the agent ended the stream; None while it is open."""
        return self._reader.ended

    @property
    def is_outdated(self) -> bool:
        """Return whether other series are wanted than at the snapshot; only a new snapshot brings them."""
        return self._version != self._wanted.version

    @property
    def families(self) -> Mapping[str, tuple[str, str]]:
        """Return type and help of the agent's metrics."""
        return self._reader.families

    def connected(self, *, is_relayed: bool = False) -> None:
        """Start a new connection, whose first line is a snapshot; series go on until then.

        Args:
            is_relayed: whether the lines come from another store: with the labels and times they have there.
        """
        self._is_relayed, self._late = is_relayed, None
        self._reader.restart()

    def feed(self, line: bytes, now_ms: int) -> int:
        """Store a line's changes, and return the number of samples.

        A time in the future is that of arrival: the agent's clock is ahead.

        Raises:
            StreamError: the line is not of the format.
            ScrapeLimitError: it brings more than it may; nothing of it is stored.
        """
        reader = self._reader
        check_limit("body_size", len(line), self._limits.body_bytes, "bytes", self._source)
        if reader.measured_ms is None:
            self._version = self._wanted.version
        found = reader.feed(line)
        if reader.measured_ms is None or reader.ended is not None:
            return 0
        t_ms = min(reader.measured_ms, now_ms)
        if self._is_relayed and self._stored_ms - _MAX_LATE_MS <= t_ms <= self._stored_ms:
            # Another origin has delivered this time already.
            if t_ms < self._stored_ms:
                self._late = found if self._late is None else _joined(self._late, found)
                return 0
        elif t_ms <= self._stored_ms:
            # Two lines in one millisecond, or a clock that was set back: time must advance here.
            t_ms = min(self._stored_ms + 1, now_ms)
        if self._late is not None:
            found, self._late = _joined(self._late, found), None
        brought, found = found, self._possible(found, t_ms)
        if found.is_described:
            self._describe()
        if found.has_new or found.gone:
            self._reshape(found, t_ms)
        taken = self._append(t_ms, now_ms, found)
        if self.observer is not None:
            self.observer(brought, t_ms)
        return taken

    def lost(self, t_ms: int) -> None:
        """Record that the agent can't be reached: its series end, and `up` is 0."""
        self._end(t_ms)
        self._target.report({"up": 0}, t_ms)

    def gone(self, t_ms: int) -> None:
        """Record that the agent is gone: all of its series end."""
        self._end(t_ms)
        self._target.end_reports(t_ms)

    def _reshape(self, found: StreamLine[Series], t_ms: int) -> None:
        """Add and end series as a line says.

        Raises:
            ScrapeLimitError: those that came are beyond a limit; those that went have ended all the same.
        """
        kept = set(self._reader.series)
        self.series, self.unwanted = len(kept), self._reader.unwanted
        self._up_ms = -UP_MS
        try:
            check_limit("samples", len(kept), self._limits.samples, "series", self._source)
            new = [ref for ref in found.touched if not ref.is_listed]
            for ref in new:
                check_labels(ref.labels, self._limits, self._source)
            if len(new) > (room := self._target.room(self._limits)):
                raise too_many_series(room, self._target.share, self._source)
        except ScrapeLimitError:
            for ref in found.gone:
                self._store.mark_stale(ref, t_ms)
            raise

    def _ref(self, name: str, exposed: Mapping[str, str]) -> Series | None:
        if not self._wanted.keeps(name):
            return None
        families = self._reader.families
        type_, _ = families.get(name) or families.get(name.removesuffix("_bucket"), ("untyped", ""))
        labels = {**exposed, METRIC_NAME: name}
        if self._is_relayed:
            return self._target.merged_ref(labels)
        return self._target.ref(with_stored_bound(labels, BOUND_LABELS.get(type_)))

    def _possible(self, found: StreamLine[Series], t_ms: int) -> StreamLine[Series]:
        """Return a line without the series that have impossible values."""
        outside = {
            ref: value
            for ref, value in zip(found.touched, found.values, strict=True)
            if ref.range is not None and not ref.range.has(value)
        }
        if self._impossible:
            for ref in (*found.touched, *found.gone):
                self._impossible.pop(ref, None)
        if not outside:
            return found
        self._impossible |= outside
        for ref, value in outside.items():
            self._store.leave_out(ref, value, t_ms)
        kept = {
            ref: value
            for ref, value in zip(found.touched, found.values, strict=True)
            if ref not in outside
        }
        gone = [*found.gone, *outside]
        return replace(found, touched=list(kept), values=list(kept.values()), gone=gone)

    def _describe(self) -> None:
        families = self._reader.families.items()
        lines = (
            MetaLine(keyword, name, text)
            for name, meaning in families
            for keyword, text in zip(("TYPE", "HELP"), meaning, strict=True)
        )
        self._target.describe(metadata_of(lines))

    def _end(self, t_ms: int) -> None:
        for series in self._reader.clear():
            self._store.mark_stale(series, t_ms)
        self._impossible.clear()
        self.series = self.unwanted = 0

    def _append(self, t_ms: int, now_ms: int, found: StreamLine[Series]) -> int:
        if t_ms - self._up_ms >= UP_MS:
            self._up_ms = t_ms
            self._target.report({"up": 1}, t_ms)
            for ref, value in self._impossible.items():
                # No line confirms the value any more.
                self._store.leave_out(ref, value, t_ms)
        self._stored_ms = t_ms
        gone = found.gone
        if self._group is None:
            kept = set(self._reader.series)
            self._group = self._store.group_of(self._reader.series)
            # Restored series missing in the snapshot have ended meanwhile.
            gone = gone + [series for series in self._group.members if series not in kept]
        return self._store.append_newest(
            self._group,
            found.touched,
            found.values,
            t_ms,
            now_ms,
            self._resolution_ms,
            gone,
        )


def _joined(before: StreamLine[Series], after: StreamLine[Series]) -> StreamLine[Series]:
    """Merge two lines into one."""
    values = dict(zip(before.touched, before.values, strict=True))
    for series in after.gone:
        values.pop(series, None)
    values |= zip(after.touched, after.values, strict=True)
    gone = dict.fromkeys(each for each in (*before.gone, *after.gone) if each not in values)
    return StreamLine(
        list(values),
        list(values.values()),
        list(gone),
        has_new=before.has_new or after.has_new,
        is_described=before.is_described or after.is_described,
    )

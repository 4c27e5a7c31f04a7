"""The in-memory store of time series: append, select, staleness, retention.

Series that are appended together share the rows of a group, 8 bytes a sample; those that come alone have
arrays of their own, 16 bytes a sample. `index` finds them.

Nothing is lost silently: what the bounds keep out is counted by reason. A store with no room for another
sample drops its oldest ones, just as many as it needs; what a query can't be answered without, it refuses.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from gpuscale.base.ranges import RangeOf, any_value
from gpuscale.series.ages import SampleAges
from gpuscale.series.labels import METRIC_NAME, label_set
from gpuscale.series.possible import IMPOSSIBLE_SERIES, MAX_AHEAD_MS, OF_SERIES
from gpuscale.series.storage.columns import NEVER_MS, absents
from gpuscale.series.storage.groups import Follower, Order, SeriesGroup
from gpuscale.series.storage.index import Selector, SeriesIndex
from gpuscale.series.storage.limits import TargetShare
from gpuscale.series.storage.metadata import MetadataBook
from gpuscale.series.storage.samples import OPEN, Series
from gpuscale.series.values import ABSENT, STALE

REFUSALS = (
    "out_of_order",
    "duplicate_timestamp",
    "too_old",
    "too_far_ahead",
    "too_many_series",
    "too_many_of_target",
    "too_many_samples",
    "impossible_value",
)
"""Why a sample is not taken."""

_LOOKED_AT = 16
"""Series by which a restored group is found again."""
_SWEEPS_PER_RETENTION = 16
_CUT_STEPS = 256
"""How finely the time of a cut is chosen: parts of the retention."""
_CUT_SHARE = 32
"""One part in so many of all samples goes with a cut, so that not every sample needs one."""
_MOST_MOVES = 3
"""A series that several groups claim so often is kept apart from all of them."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How full a store is, and how much it refused."""

    series: int
    samples: int
    """Of a group every place in its rows counts, also where a series has no sample of that time."""
    now_ms: int | None
    """The store's clock; None where nothing was ever appended."""
    refused: Mapping[str, int]
    """Samples by reason, one entry for each of `REFUSALS`."""
    cut: int
    """Samples that were dropped to make room, before they were too old."""
    covered_ms: int
    """How far back all that was taken is still there; at most the retention."""


class SeriesStore:
    """The series of the last `retention_ms`, limited in number and size.

    Time is the server's: the caller says when a sample arrived, and a sample's own timestamp
    moves nothing. The store reads no clock itself, so that it works in virtual time too.

    Args:
        retention_ms: how far back from the newest arrival anything is kept.
        max_series: a new series above this is refused.
        max_samples: where this is reached, the oldest samples make room; 8 bytes each, 16 where a series is
            appended alone.
        range_of: says by its name what a series can have; what brings samples asks `Series.range` and leaves
            out what is outside by `leave_out`.
    """

    def __init__(
        self,
        retention_ms: int = 3_600_000,
        max_series: int = 200_000,
        max_samples: int = 20_000_000,
        range_of: RangeOf = any_value,
    ) -> None:
        self.retention_ms = retention_ms
        self.max_samples = max_samples
        self.metadata = MetadataBook()
        """What targets say of their metrics."""
        self._ages = SampleAges(max(1, retention_ms // _CUT_STEPS))
        self._cut = 0
        self._cut_before_ms = -NEVER_MS
        self._now_ms: int | None = None
        self._sweep_at_ms = -NEVER_MS
        self._refused = dict.fromkeys(REFUSALS, 0)
        self._groups: set[SeriesGroup] = set()
        """Those that have rows."""
        self._unclaimed: set[SeriesGroup] = set()
        """Restored ones that no target has taken over yet."""
        self._followers: list[Follower] = []
        self._index = SeriesIndex(max_series, range_of)

    @property
    def max_series(self) -> int:
        return self._index.max_series

    @property
    def generation(self) -> int:
        """A number that changes when a series appears or is removed."""
        return self._index.generation

    def append(
        self, labels: Mapping[str, str], t_ms: int, value: float, now_ms: int | None = None
    ) -> bool:
        """Append a sample; return whether it was accepted.

        Args:
            labels: with the metric's name under `__name__`.
            t_ms: milliseconds since the epoch.
            value: any number, NaN included.
            now_ms: the server's time; None where `t_ms` is that. Give it wherever `t_ms` is somebody else's.
        """
        return self.append_ref(self.ref(labels), t_ms, value, now_ms)

    def ref(self, labels: Mapping[str, str], share: TargetShare | None = None) -> Series:
        """Return a label set's handle; the series begins with its first sample.

        Args:
            labels: with the metric's name under `__name__`.
            share: of the target whose series it is, if no target had it before.
        """
        series = self._index.handle(label_set(labels), share)
        if share is not None and series.share is None and series.group in self._unclaimed:
            # A restored series has no owner until its target returns.
            self._index.give(series, share)
        return series

    def room(self, share: TargetShare) -> int:
        """Return how many more series a target may begin."""
        return self._index.room(share)

    def group(self) -> SeriesGroup:
        """Return a new group for series that will be appended together, such as a target's."""
        return SeriesGroup(self._ages, self._followers)

    def group_of(self, refs: Iterable[Series]) -> SeriesGroup:
        """Return the group in which such series were restored, or a new one.

        So a target goes on in the rows of the process before, and no samples have to move.
        """
        for ref in islice(refs, _LOOKED_AT):
            if ref.group in self._unclaimed:
                self._unclaimed.remove(ref.group)
                return ref.group
        return self.group()

    def leave_unclaimed(self, groups: Iterable[SeriesGroup]) -> None:
        """Let appenders of the same series take over restored groups; see `group_of`."""
        self._unclaimed.update(group for group in groups if group in self._groups)

    def groups(self) -> tuple[SeriesGroup, ...]:
        """Return the groups that have rows."""
        return tuple(self._groups)

    def follow(self, follower: Follower) -> None:
        """Call a follower from now on, whenever a series' samples leave the rows of its group."""
        self._followers.append(follower)

    def append_ref(self, ref: Series, t_ms: int, value: float, now_ms: int | None = None) -> bool:
        """Append a sample through a handle; return whether it was accepted. Arguments as `append`."""
        return self._takes(t_ms, 1, now_ms) and self._append_alone(ref, t_ms, value)

    def append_many(
        self,
        refs: Sequence[Series],
        values: Sequence[float],
        t_ms: int,
        now_ms: int | None = None,
        group: SeriesGroup | None = None,
    ) -> int:
        """Append a sample to each of many series at one time; return how many were accepted.

        Arguments as for `append`.

        Args:
            refs: the series.
            values: one for each.
            t_ms: milliseconds since the epoch.
            now_ms: the server's time; None where `t_ms` is that.
            group: the one of all series that are appended by this caller.
        """
        if len(refs) != len(values):
            raise ValueError(f"found {len(values)} values for {len(refs)} series")
        places = len(refs) if group is None else max(len(refs), group.width)
        if not refs or not self._takes(t_ms, len(refs), now_ms, places):
            return 0
        if group is None or t_ms <= group.last_ms:
            return self._fill(group, refs, values, t_ms)
        group.prepare(t_ms)
        order = group.order
        if order is None or not (order.refs is refs or order.refs == refs):
            order = self._order(group, refs, t_ms)
        if order.taken:
            self._append_row(group, t_ms, order.row(values))
        taken = len(order.taken)
        for position in order.alone:
            taken += self._append_alone(refs[position], t_ms, values[position])
        return taken

    def append_newest(
        self,
        group: SeriesGroup,
        refs: Sequence[Series],
        values: Sequence[float],
        t_ms: int,
        now_ms: int,
        resolution_ms: int,
        ended: Sequence[Series] = (),
    ) -> int:
        """Record that all of a group's series were measured, and which changed; return the samples added.

        Of each step of time only the newest row is kept, at the time it was measured. A row in which a series
        ends, and the one before it, are kept too.

        Args:
            group: of the series.
            refs: those that are new or have changed; the others have the value they had.
            values: one for each.
            t_ms: milliseconds since the epoch; no earlier than the time before.
            now_ms: the server's time.
            resolution_ms: the length of a step.
            ended: those that are no more.
        """
        is_next = t_ms - t_ms % resolution_ms > group.last_ms
        places = max(len(refs), group.width) if is_next else 0
        if not self._takes(t_ms, len(refs), now_ms, places):
            for ref in ended:
                self.mark_stale(ref, t_ms)
            return 0
        before = group.going_on
        joining = self._joining(group, refs, t_ms)
        has_come = bool(joining) or group.going_on > before
        if not (is_next or group.has_marker or has_come or ended):
            # A reader that has read this row would not look there again.
            group.move_newest(max(t_ms, group.last_ms, group.read_ms + 1))
            taken = 0
            for ref, value in zip(refs, values, strict=True):
                if ref.group is group:
                    group.write(ref, value)
                    taken += 1
                elif ref.moves >= _MOST_MOVES:
                    taken += self._append_alone(ref, t_ms, value)
            return taken
        row_ms = max(t_ms, group.last_ms + 1)
        group.prepare(row_ms)
        if joining:
            group.admit(joining, row_ms)
        if not group.width:
            return 0
        row = group.carried_row()
        for ref, value in zip(refs, values, strict=True):
            if ref.group is group:
                row[ref.slot] = value
            elif ref.moves >= _MOST_MOVES:
                self._append_alone(ref, t_ms, value)
        leaving = [ref for ref in ended if group.is_member(ref) and ref.last == OPEN]
        for ref in leaving:
            row[ref.slot] = ABSENT
        self._append_row(group, row_ms, row)
        for ref in leaving:
            group.end(ref)
        return group.going_on

    def mark_stale(self, ref: Series, t_ms: int) -> bool:
        """End a series with a staleness marker; return whether it had not ended yet.

        Where its newest sample is of this very time or later, the end is put right behind it; so it is where
        the group's row of this time has been read. A full store takes it all the same: what has ended must
        not look current.
        """
        if not ref.is_listed or ref.is_stale():
            return False
        t_ms = max(t_ms, ref.last_ms + 1)
        group = ref.group
        if group is not None:
            if t_ms == group.read_ms:
                t_ms += 1
            if t_ms > group.last_ms:
                self._make_room(group.width)
                group = ref.group
        if group is not None and t_ms < group.last_ms:
            group.leave(ref)
            group = None
        if group is None:
            self._append_own(ref, t_ms, STALE)
            return True
        if t_ms > group.last_ms:
            group.prepare(t_ms)
            self._append_row(group, t_ms, absents(group.width))
        group.end(ref)
        return True

    def leave_out(self, ref: Series, value: float, t_ms: int) -> None:
        """Record an impossible value instead of storing it; the caller ends the series.

        The value is kept under `IMPOSSIBLE_SERIES`, so that who misses the series can ask for it.

        Args:
            ref: the series.
            value: outside its range.
            t_ms: when it came.
        """
        self._refused["impossible_value"] += 1
        labels = {**ref.labels, OF_SERIES: ref.labels[METRIC_NAME], METRIC_NAME: IMPOSSIBLE_SERIES}
        self.append_ref(self.ref(labels, ref.share), t_ms, value)

    def select(self, matchers: Selector) -> tuple[Series, ...]:
        """Return the series that match all matchers, whatever their samples' times.

        Raises:
            ValueError: a matcher is not a regular expression of RE2.
        """
        return self._index.select(matchers)

    def series(
        self, matchers: Selector, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[Mapping[str, str]]:
        """Return the label sets of series with a sample between two times, both included."""
        return [series.labels for series in self._between(matchers, start_ms, end_ms)]

    def label_names(
        self, matchers: Selector = (), start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Return the label names of the selected series, sorted."""
        if not matchers and start_ms is None and end_ms is None:
            return sorted(self._index.postings.names())
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
            return sorted(self._index.postings.values(name))
        found = self._between(matchers, start_ms, end_ms)
        return sorted({series.labels[name] for series in found if name in series.labels})

    def advance(self, now_ms: int) -> int:
        """Advance the store's clock to the server's time, never back; return its time."""
        if self._now_ms is None or now_ms > self._now_ms:
            self._now_ms = now_ms
            if now_ms >= self._sweep_at_ms:
                self._sweep()
        return self._now_ms

    def oldest_kept_ms(self) -> int:
        """Return the earliest time for which queries are answered."""
        return -NEVER_MS if self._now_ms is None else self._now_ms - self.retention_ms

    def stats(self) -> StoreStats:
        """Return how full the store is."""
        since_cut_ms = 0 if self._now_ms is None else self._now_ms - self._cut_before_ms
        return StoreStats(
            len(self._index.listed),
            self._ages.total,
            self._now_ms,
            dict(self._refused),
            self._cut,
            min(self.retention_ms, since_cut_ms) if self._cut else self.retention_ms,
        )

    def _takes(self, t_ms: int, count: int, now_ms: int | None, places: int | None = None) -> bool:
        """Advance the clock, and check a time that many samples share.

        Args:
            t_ms: of the samples.
            count: how many there are.
            now_ms: the server's time; None where `t_ms` is that.
            places: how many they count as; None where that is as many as there are.
        """
        if now_ms is None:
            now_ms = t_ms
        newest_ms = self.advance(now_ms)
        if t_ms < newest_ms - self.retention_ms:
            self._refused["too_old"] += count
            return False
        if t_ms > newest_ms + MAX_AHEAD_MS:
            self._refused["too_far_ahead"] += count
            return False
        if not self._make_room(count if places is None else places):
            self._refused["too_many_samples"] += count
            return False
        return True

    def _append_alone(self, ref: Series, t_ms: int, value: float) -> bool:
        """Append a sample whose time no other series shares."""
        if ref.is_listed:
            last_ms = ref.last_ms
            if t_ms <= last_ms:
                reason = "duplicate_timestamp" if t_ms == last_ms else "out_of_order"
                self._refused[reason] += 1
                return False
            if ref.group is not None:
                ref.group.leave(ref)
                ref.moves += 1
        elif not self._begin(ref):
            return False
        self._append_own(ref, t_ms, value)
        return True

    def _append_own(self, ref: Series, t_ms: int, value: float) -> None:
        ref.append(t_ms, value)
        self._ages.add(t_ms, 1)
        for follower in self._followers:
            follower.own[ref] = None

    def _fill(
        self, group: SeriesGroup | None, refs: Sequence[Series], values: Sequence[float], t_ms: int
    ) -> int:
        """Append samples at a time not later than the group's newest row."""
        taken = 0
        for ref, value in zip(refs, values, strict=True):
            if (
                group is not None
                and t_ms == group.last_ms > group.read_ms
                and group.is_member(ref)
                and ref.last == OPEN
                and not group.has_newest(ref)
            ):
                group.write(ref, value)
                taken += 1
            else:
                taken += self._append_alone(ref, t_ms, value)
        return taken

    def _append_row(self, group: SeriesGroup, t_ms: int, row: "array[float]") -> None:
        self._groups.add(group)
        group.append_row(t_ms, row)

    def _order(self, group: SeriesGroup, refs: Sequence[Series], t_ms: int) -> Order:
        """Return the columns for some series' values; new series get columns if they are allowed."""
        joining = self._joining(group, refs, t_ms)
        if joining:
            group.admit(joining, t_ms)
        taken = [position for position, ref in enumerate(refs) if ref.group is group]
        slots = [refs[position].slot for position in taken]
        alone: list[int] = []
        if len(set(slots)) < len(slots):
            # A series' second sample is refused, like any other with an equal time.
            first = dict(zip(reversed(slots), reversed(taken), strict=True))
            alone += [position for position in taken if first[refs[position].slot] != position]
            taken = sorted(first.values())
            slots = [refs[position].slot for position in taken]
        if len(taken) + len(alone) < len(refs):
            alone += [
                position
                for position, ref in enumerate(refs)
                if ref.group is not group and ref.moves >= _MOST_MOVES
            ]
        order = Order(list(refs), taken, slots, group.width, alone)
        if len(taken) + len(alone) == len(refs):
            group.order = order
        return order

    def _joining(self, group: SeriesGroup, refs: Sequence[Series], t_ms: int) -> list[Series]:
        """Return the series that join the group with the next row, after preparing them."""
        joining: dict[Series, None] = {}
        for ref in refs:
            if ref.group is group:
                if ref.last == OPEN:
                    continue
                if group.is_member(ref):
                    group.resume(ref)
                    continue
                group.leave(ref)
            elif ref.group is not None and t_ms > ref.last_ms:
                ref.moves += ref.last == OPEN
                ref.group.leave(ref)
            if ref in joining or ref.moves >= _MOST_MOVES:
                continue
            if not ref.is_listed:
                if not self._begin(ref):
                    continue
            elif ref.last_ms >= t_ms:
                reason = "duplicate_timestamp" if t_ms == ref.last_ms else "out_of_order"
                self._refused[reason] += 1
                continue
            joining[ref] = None
        return list(joining)

    def _make_room(self, count: int) -> bool:
        """Drop the oldest samples, as many as needed; return whether there is room now.

        Each series keeps its newest sample, so that none that is current seems to have ended.
        """
        now_ms = self._now_ms or 0
        while (excess := self._ages.total + count - self.max_samples) > 0:
            cutoff_ms = self._ages.cutoff_ms(excess + self.max_samples // _CUT_SHARE, now_ms)
            if cutoff_ms is None:
                return False
            before = self._ages.total
            kept = {group: group.first_kept(cutoff_ms) for group in self._groups}
            for series in self._index.listed:
                if (group := series.group) is not None and group in kept:
                    group.keep_newest(series, cutoff_ms, kept[group])
                self._ages.total -= series.cut(cutoff_ms)
            for group in self._groups:
                group.cut(cutoff_ms)
            self._ages.forget(cutoff_ms)
            self._cut += before - self._ages.total
            self._cut_before_ms = max(self._cut_before_ms, cutoff_ms)
        return True

    def _begin(self, ref: Series) -> bool:
        """Add a series before its first sample; return whether it is allowed."""
        reason = self._index.refusal(ref)
        if reason is not None:
            self._refused[reason] += 1
            return False
        self._index.add(ref)
        return True

    def _sweep(self) -> None:
        """Drop samples older than the retention."""
        cutoff_ms = self.oldest_kept_ms()
        for group in self._groups:
            group.expire(cutoff_ms)
        for series in self._index.listed:
            self._ages.total -= series.expire(cutoff_ms)
            if series.group is not None and not series.group.holds(series):
                series.group.forget(series)
        self._groups = {group for group in self._groups if group.blocks}
        self._unclaimed &= self._groups
        self._ages.forget(cutoff_ms)
        gone = {
            series
            for series in self._index.listed
            if series.group is None and series.own_times_ms is None
        }
        if gone:
            for follower in self._followers:
                for series in gone:
                    follower.own.pop(series, None)
            self._index.remove(gone)
        if self._sweep_at_ms != -NEVER_MS:
            # A series' first samples find an existing handle.
            self._index.let_go()
        now_ms = cutoff_ms + self.retention_ms
        self._sweep_at_ms = now_ms + max(1, self.retention_ms // _SWEEPS_PER_RETENTION)

    def _between(
        self, matchers: Selector, start_ms: int | None, end_ms: int | None
    ) -> Iterator[Series]:
        oldest_ms = self.oldest_kept_ms()
        start = oldest_ms if start_ms is None else max(start_ms, oldest_ms)
        end = NEVER_MS if end_ms is None else end_ms
        return (each for each in self.select(matchers) if each.has_sample_between(start, end))

"""Readers of a store's new samples, in batches, in order for each series.

Saving and remote write both read this way. So the store itself is their queue: nothing is copied until it
is due, appending never waits for them, and what they can hold up is bounded by what the store keeps.

How far a series was read is one time: of its group where its newest samples lie in rows, or else its own.
Before samples leave the rows, the group calls the reader, which notes how far that was.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.groups import SeriesGroup
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore

_BATCH_VALUES = 1 << 18
"""How many values a batch has at most, if a row has no more; 2 MiB."""


@dataclass(frozen=True, slots=True)
class Batch:
    """New samples of series that share their times."""

    group: object
    """The same object in all batches of these series."""
    refs: Sequence[Series | None]
    """S series; None for an unused place, whose values mean nothing."""
    times_ms: "array[int]"
    """T times, ascending."""
    values: "array[float]"
    """T x S, those of one time side by side; `ABSENT` where a series has no sample at that time."""
    is_later: bool = False
    """Whether an earlier batch of the same reading may hold earlier samples of these series."""


class Tail:
    """One reader's position in a store.

    Args:
        store: what is read, from its beginning.
    """

    def __init__(self, store: SeriesStore) -> None:
        self._store = store
        self.own = dict.fromkeys(store.select(()))
        self._rows_ms: dict[SeriesGroup, int] = {}
        """The newest row that was read, by group."""
        self._own_ms: dict[Series, int] = {}
        """How far series were read outside of rows."""
        self._undo_rows: dict[SeriesGroup, int] = {}
        self._undo_own: dict[Series, int] = {}
        store.follow(self)

    def read(self) -> Iterator[Batch]:
        """Yield the new samples, which count as read once they are yielded.

        The store may change between two batches; samples that arrive meanwhile are read now or the next
        time.
        """
        groups = self._store.groups()
        self._forget(groups)
        is_later = False
        for series in list(self.own):
            if (batch := self._next_own(series)) is not None:
                yield batch
                is_later = True
        for group in groups:
            is_first = True
            while True:
                # The samples in `own` may have moved here from rows already read.
                is_later = is_later or bool(self.own) or not is_first
                found = self._next(group)
                if found is None:
                    break
                yield replace(found, is_later=is_later)
                is_later = is_first = False

    def skip(self) -> None:
        """Count all samples in the store as read."""
        self._rows_ms = {group: group.last_ms for group in self._store.groups()}
        for group, read_ms in self._rows_ms.items():
            group.read_ms = max(group.read_ms, read_ms)
        for series in self._store.select(()):
            if series.own_times_ms is not None:
                self._own_ms[series] = series.own_times_ms[-1]
        self.own.clear()
        self.commit()

    def commit(self) -> None:
        """Confirm all samples read so far."""
        self._undo_rows.clear()
        self._undo_own.clear()

    def undo(self) -> None:
        """Go back to the last `commit`, to read the samples since then again."""
        self._rows_ms |= self._undo_rows
        self._own_ms |= self._undo_own
        self.own.update(dict.fromkeys(self._undo_own))
        self.commit()

    def leaves(self, series: Series, group: SeriesGroup) -> None:
        self.own[series] = None
        rows_ms = self._rows_ms.get(group, -NEVER_MS)
        if series.joined_ms > rows_ms:
            return
        # Later samples may be older than the rows.
        newest_ms = series.last_ms
        undo_ms = self._undo_rows.get(group)
        if undo_ms is not None:
            was_read = series.joined_ms <= undo_ms
            own_ms = self._own_ms.get(series, -NEVER_MS)
            self._undo_own.setdefault(series, min(undo_ms, newest_ms) if was_read else own_ms)
        self._own_ms[series] = min(rows_ms, newest_ms)

    def _forget(self, groups: Sequence[SeriesGroup]) -> None:
        for group in self._rows_ms.keys() - set(groups):
            del self._rows_ms[group]
            self._undo_rows.pop(group, None)
        for series in [each for each in self._own_ms if each.own_times_ms is None]:
            del self._own_ms[series]

    def _next(self, group: SeriesGroup) -> Batch | None:
        """Return a group's next batch; samples in its series' own arrays are older than the rows."""
        for series in [each for each in self.own if each.group is group]:
            if (batch := self._next_own(series)) is not None:
                return batch
        return self._next_rows(group)

    def _next_own(self, series: Series) -> Batch | None:
        self.own.pop(series, None)
        times_ms, values = series.own_times_ms, series.own_values
        if times_ms is None or values is None:
            return None
        read_ms = self._own_ms.get(series, -NEVER_MS)
        low = bisect_right(times_ms, read_ms)
        if low == len(times_ms):
            return None
        self._undo_own.setdefault(series, read_ms)
        self._own_ms[series] = times_ms[-1]
        return Batch(series, (series,), times_ms[low:], values[low:])

    def _next_rows(self, group: SeriesGroup) -> Batch | None:
        read_ms = self._rows_ms.get(group, -NEVER_MS)
        found = group.after(read_ms)
        if found is None:
            return None
        block, low = found
        high = min(len(block.times_ms), low + max(1, _BATCH_VALUES // block.width))
        times_ms = block.times_ms[low:high]
        values = block.values[low * block.width : high * block.width]
        self._undo_rows.setdefault(group, read_ms)
        self._rows_ms[group] = times_ms[-1]
        group.read_ms = max(group.read_ms, times_ms[-1])
        return Batch(group, group.owners_of(block), times_ms, values)

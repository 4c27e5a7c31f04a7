"""What a store has taken since a reader last looked, in batches, the samples of each series in order.

Saving and remote write both read this way. So the store itself is their queue: nothing is copied until it
is due, appending never waits for them, and what they can hold up is bounded by what the store keeps.

Rows of groups are read behind the newest row that was read before. Series that are appended to alone are
noted by the store, and read likewise. A series may move from one to the other; what its reader has of it is
handed on then.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.groups import Group
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
    """One reader's place in a store.

    Args:
        store: what is read, from its beginning.
    """

    def __init__(self, store: SeriesStore) -> None:
        self._store = store
        self._lone = store.follow_lone()
        """Series to look at, because they have samples that came alone."""
        self._lone.update(dict.fromkeys(store.select(())))
        self._rows_ms: dict[Group, int] = {}
        """The newest row that was read, by group."""
        self._own_ms: dict[Series, int] = {}
        """The newest sample that was read of series that have samples of their own."""
        self._undo_rows: dict[Group, int] = {}
        self._undo_own: dict[Series, int] = {}

    def read(self) -> Iterator[Batch]:
        """Yield what is new. Samples count as read once they are yielded.

        The store may change between two batches; what comes meanwhile is read now or the next time.
        """
        groups = self._store.groups()
        self._note_left()
        self._forget(groups)
        is_later = False
        for batch in self._read_lone(list(self._lone)):
            yield batch
            is_later = True
        for group in groups:
            is_first = True
            while True:
                if self._lone:
                    # Series that came alone or moved since then. Their own samples come before the rows.
                    self._note_left()
                    lone = [each for each in self._lone if each.group is group]
                    for batch in self._read_lone(lone):
                        yield replace(batch, is_later=True)
                    is_later = True
                found = self._next_rows(group)
                if found is None:
                    break
                if is_later or not is_first:
                    found = replace(found, is_later=True)
                yield found
                is_later = is_first = False

    def skip(self) -> None:
        self._rows_ms = {group: group.last_ms for group in self._store.groups()}
        for series in self._store.select(()):
            if series.own_times_ms is not None:
                self._own_ms[series] = series.own_times_ms[-1]
        self._lone.clear()

    def commit(self) -> None:
        """Note that all that was read has arrived where it was to go."""
        self._undo_rows.clear()
        self._undo_own.clear()

    def undo(self) -> None:
        """Read once more what was read since the last `commit`."""
        self._note_left()
        self._rows_ms |= self._undo_rows
        self._own_ms |= self._undo_own
        self._lone.update(dict.fromkeys(self._undo_own))
        self.commit()

    def _note_left(self) -> None:
        """Note how far series were read that have left a group since."""
        for series, left in self._lone.items():
            if left is not None:
                self._note(series, *left)
        self._lone.update(dict.fromkeys(self._lone))

    def _forget(self, groups: Sequence[Group]) -> None:
        for group in self._rows_ms.keys() - set(groups):
            del self._rows_ms[group]
            self._undo_rows.pop(group, None)
        for series in [each for each in self._own_ms if each.own_times_ms is None]:
            del self._own_ms[series]

    def _note(self, series: Series, group: Group, joined_ms: int) -> None:
        """Note that a series was read as far as the group that it has left."""
        own_ms = self._own_ms.get(series, -NEVER_MS)
        rows_ms = self._rows_ms.get(group, -NEVER_MS)
        if joined_ms > rows_ms:
            return
        undo_ms = self._undo_rows.get(group)
        if undo_ms is not None:
            self._undo_own.setdefault(
                series, max(own_ms, undo_ms) if joined_ms <= undo_ms else own_ms
            )
        self._own_ms[series] = max(own_ms, rows_ms)

    def _read_lone(self, found: Sequence[Series]) -> Iterator[Batch]:
        for series in found:
            self._lone.pop(series, None)
            times_ms, values = series.own_times_ms, series.own_values
            if times_ms is None or values is None:
                continue
            read_ms = self._own_ms.get(series, -NEVER_MS)
            low = bisect_right(times_ms, read_ms)
            if low < len(times_ms):
                self._undo_own.setdefault(series, read_ms)
                self._own_ms[series] = times_ms[-1]
                yield Batch(series, (series,), times_ms[low:], values[low:])

    def _next_rows(self, group: Group) -> Batch | None:
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
        return Batch(group, group.owners_of(block), times_ms, values)

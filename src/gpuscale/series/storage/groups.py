"""Groups of series that are appended together, and each one's column in the rows.

A series keeps its place while it goes on. A place whose series has ended goes to a new one with the next
block, so that pods that come and go don't widen the rows. The series that ended still has its samples in the
older blocks.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol

from gpuscale.series.ages import SampleAges
from gpuscale.series.storage.columns import NEVER_MS, Columns, RowBlock, absents
from gpuscale.series.storage.samples import OPEN, Series
from gpuscale.series.values import ABSENT, STALE, is_absent, is_stale

_MAX_ROWS = 64
_MIN_ROWS = 16
_BLOCK_PLACES = 1 << 18
"""A block ends with this many, if it has rows enough; 2 MiB."""
_WIDEN_PLACES = 1 << 12
"""A block is given wider rows if no more empty places come with it; else a wider block begins."""
_SPARE_PART = 16
"""One place in so many is added beyond those needed when rows grow wider."""
_EMPTY_PART = 4
"""Rows are made narrower if they have more than one empty place to so many that are taken."""
_FEW = 16
"""Rows so narrow are never made narrower."""


class Follower(Protocol):
    """A reader of new samples."""

    own: dict[Series, None]
    """Gets each series with new samples of its own."""

    def leaves(self, series: Series, group: "SeriesGroup") -> None:
        """Handle a series whose samples are about to move from the rows into arrays of its own."""


class Order:
    """How a list of values is put into a row.

    Args:
        refs: the series of the values.
        taken: the positions of those in the row.
        slots: the places of these, as many.
        width: of the row.
        alone: the positions of those that share no row.
    """

    __slots__ = ("_pad", "_pick", "alone", "refs", "taken")

    def __init__(
        self,
        refs: list[Series],
        taken: Sequence[int],
        slots: Sequence[int],
        width: int,
        alone: Sequence[int],
    ) -> None:
        self.refs = refs
        self.taken = taken
        self.alone = alone
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] | None = None
        self._pad: array[float] | None = None
        if len(taken) == len(refs) and all(map(int.__eq__, slots, range(len(slots)))):
            self._pad = absents(width - len(slots))
        elif width > 1:
            positions = [len(refs)] * width
            for position, slot in zip(taken, slots, strict=True):
                positions[slot] = position
            self._pick = itemgetter(*positions)

    def row(self, values: Sequence[float]) -> "array[float]":
        if self._pad is not None:
            row = array("d", values)
            row += self._pad
            return row
        if self._pick is not None:
            return array("d", self._pick([*values, ABSENT]))
        return array("d", [values[self.taken[0]]])


class SeriesGroup(Columns):
    """The series of one target, stream or rule.

    Args:
        ages: where samples are counted; a place in a row counts as one, whether it holds a sample or not.
        followers: those who read its rows.
    """

    __slots__ = (
        "_ages",
        "_ended",
        "_followers",
        "_free",
        "_moved",
        "_owners",
        "_sequence",
        "has_marker",
        "order",
        "read_ms",
    )

    def __init__(self, ages: SampleAges, followers: Sequence[Follower] = ()) -> None:
        super().__init__()
        self._ages = ages
        self._followers = followers
        self._owners: list[Series | None] = []
        """Whose the places of the next row are."""
        self._free: list[int] = []
        """Places that hold nothing in any block."""
        self._ended: dict[int, int] = {}
        """Places that hold something up to the block of a number; later ones come last."""
        self._sequence = 0
        """The number of the block that the next row goes to."""
        self._moved: list[tuple[Series, int]] = []
        """Series that have another place in the next row than in the newest one, and that place."""
        self.order: Order | None = None
        """Of the last row, while it still holds."""
        self.has_marker = False
        """Whether the newest row ends a series."""
        self.read_ms = -NEVER_MS
        """The newest row that a follower has read; it gets no more samples."""

    @property
    def width(self) -> int:
        """Return the next row's number of columns."""
        return len(self._owners)

    @property
    def owners(self) -> tuple[Series | None, ...]:
        """Return the series of each column of the next row."""
        return tuple(self._owners)

    @property
    def members(self) -> list[Series]:
        """Return the series that have a column and have not ended."""
        return [each for each in self._owners if each is not None and each.last == OPEN]

    @property
    def going_on(self) -> int:
        """Return the number of series that have a column and have not ended."""
        return len(self._owners) - len(self._free) - len(self._ended)

    def is_member(self, series: Series) -> bool:
        """Return whether a series has a column in future rows, even if it has ended."""
        return (
            series.group is self
            and series.slot < len(self._owners)
            and self._owners[series.slot] is series
        )

    def owners_of(self, block: RowBlock) -> list[Series | None]:
        """Return the series of each column of a block; None for one whose samples were moved away."""
        if block.owners is None:
            return self._owners[: block.width]
        return [
            series
            if series is not None
            and series.group is self
            and series.slot == place
            and series.first <= block.sequence
            else None
            for place, series in enumerate(block.owners[: block.width])
        ]

    def prepare(self, t_ms: int) -> None:
        """Start a new block if the newest is full; call it before adding a row."""
        if self.blocks and (block := self.blocks[-1]).sequence == self._sequence:
            rows = len(block.times_ms)
            if rows >= _MAX_ROWS or (rows >= _MIN_ROWS and len(block.values) >= _BLOCK_PLACES):
                self._next_block()
                self._narrow(t_ms)

    def admit(self, joining: Sequence[Series], t_ms: int) -> None:
        """Give columns to series that begin with the next row."""
        self.order = None
        self._reclaim(len(joining))
        if len(self._free) < len(joining) and len(self._ended) * 8 >= len(self._owners) > 0:
            self._next_block()
            self._reclaim(len(joining))
        if len(self._free) < len(joining):
            self._widen(len(joining) - len(self._free))
        for series in joining:
            self._place(series, self._free.pop(), t_ms)

    def resume(self, series: Series) -> None:
        """Continue an ended series of the group."""
        del self._ended[series.slot]
        series.last = OPEN

    def append_row(self, t_ms: int, row: "array[float]") -> None:
        """Add a row of `width` columns, later than all others."""
        if not self.blocks or self.blocks[-1].sequence != self._sequence:
            self.blocks.append(RowBlock(self._sequence, len(row)))
        block = self.blocks[-1]
        block.times_ms.append(t_ms)
        block.values += row
        self.has_marker = False
        self._moved = []
        self._ages.add(t_ms, len(row))

    def carried_row(self) -> "array[float]":
        """Return a copy of the newest row without ended series."""
        if not self.blocks:
            return absents(len(self._owners))
        block = self.blocks[-1]
        row = block.values[-block.width :]
        if self.has_marker:
            for slot, value in enumerate(row):
                if is_stale(value):
                    row[slot] = ABSENT
        for slot in self._ended:
            # Also of series that have left, whose values still occupy columns here.
            if slot < len(row):
                row[slot] = ABSENT
        moved = [(series, row[slot]) for series, slot in self._moved]
        for _, slot in self._moved:
            row[slot] = ABSENT
        del row[len(self._owners) :]
        row += absents(len(self._owners) - len(row))
        for series, value in moved:
            row[series.slot] = value
        return row

    def move_newest(self, t_ms: int) -> None:
        """Set a later time for the whole newest row."""
        self.blocks[-1].times_ms[-1] = t_ms

    def write(self, series: Series, value: float) -> None:
        """Write a series' value into the newest row."""
        block = self.blocks[-1]
        block.values[series.slot - block.width] = value

    def has_newest(self, series: Series) -> bool:
        """Return whether the newest row holds a sample of a series."""
        if not self.blocks or self.blocks[-1].sequence < series.first:
            return False
        block = self.blocks[-1]
        return not is_absent(block.values[series.slot - block.width])

    def holds(self, series: Series) -> bool:
        """Return whether the group holds any sample of a series."""
        if not self.blocks or self.blocks[0].sequence > series.last:
            return False
        if self.blocks[0].sequence < series.last < OPEN:
            return True
        if series.last == OPEN and self.is_member(series) and self.has_newest(series):
            return True
        return self.newest(series.slot, series.first, series.last, NEVER_MS) is not None

    def end(self, series: Series) -> None:
        """Write a series' end marker into the newest row, if it has no sample there yet."""
        self.write(series, STALE)
        self.has_marker = True
        self.order = None
        series.last = self._ended[series.slot] = self.blocks[-1].sequence

    def leave(self, series: Series) -> None:
        """Move all samples of a series into arrays of its own."""
        times_ms, values = self._taken_out(series)
        for t_ms, value in zip(times_ms, values, strict=True):
            series.append(t_ms, value)
            self._ages.add(t_ms, 1)

    def first_kept(self, cutoff_ms: int) -> int:
        """Return the number of the first block that keeps rows after a cut."""
        return next(
            (b.sequence for b in self.blocks if b.times_ms[-1] >= cutoff_ms), self._sequence
        )

    def keep_newest(self, series: Series, cutoff_ms: int, first_kept: int) -> None:
        """Save a series' newest sample into its own arrays, if a cut is about to drop its row.

        Args:
            series: of the group.
            cutoff_ms: where the cut will be.
            first_kept: what `first_kept` says of it.
        """
        if series.last == OPEN:
            if self.has_newest(series):
                return
        elif series.last > first_kept:
            return
        newest = series.newest(NEVER_MS)
        if newest is None or newest[0] >= min(cutoff_ms, self.last_ms):
            return
        times_ms, values = self._taken_out(series)
        if not times_ms:
            return
        self._ages.total -= series.expire(NEVER_MS)
        if len(times_ms) > 1:
            series.own_cut_ms = times_ms[-2]
        series.append(times_ms[-1], values[-1])
        self._ages.add(times_ms[-1], 1)

    def forget(self, series: Series) -> None:
        """Release a series whose samples in the group are all dropped."""
        series.own_cut_ms = series.cut_ms
        if self.is_member(series):
            self._owners[series.slot] = None
            self._ended.pop(series.slot, None)
            self._free.append(series.slot)
            self.order = None
        series.group = None

    def cut(self, cutoff_ms: int) -> int:
        """Drop rows before a time, but never the newest; return the number of dropped cells."""
        return self._drop_before(min(cutoff_ms, self.last_ms))

    def expire(self, cutoff_ms: int) -> int:
        """Drop rows before a time; return the number of dropped cells."""
        if not self.blocks or self.blocks[0].times_ms[0] >= cutoff_ms:
            return 0
        return self._drop_before(cutoff_ms)

    def _drop_before(self, cutoff_ms: int) -> int:
        for block in reversed(self.blocks):
            if block.times_ms[0] < cutoff_ms:
                row = bisect_left(block.times_ms, cutoff_ms) - 1
                self.cut_ms = max(self.cut_ms, block.times_ms[row])
                break
        dropped = self.drop(cutoff_ms)
        self._ages.total -= dropped
        return dropped

    def _taken_out(self, series: Series) -> tuple["array[int]", "array[float]"]:
        """Remove a series from the group, and return its samples."""
        for follower in self._followers:
            follower.leaves(series, self)
        found = self.read(series.slot, series.first, series.last, -NEVER_MS, NEVER_MS)
        series.own_cut_ms = series.cut_ms
        if self.is_member(series):
            # Its old values occupy the column until the next block.
            self._owners[series.slot] = None
            self._ended.pop(series.slot, None)
            self._ended[series.slot] = self.blocks[-1].sequence
            self.order = None
        series.group = None
        return found

    def _place(self, series: Series, slot: int, t_ms: int) -> None:
        self._owners[slot] = series
        series.group, series.slot = self, slot
        series.first, series.last, series.joined_ms = self._sequence, OPEN, t_ms

    def _next_block(self) -> None:
        if self.blocks and (block := self.blocks[-1]).sequence == self._sequence:
            # An array that has grown has spare capacity.
            block.times_ms, block.values = block.times_ms[:], block.values[:]
            block.owners = tuple(self._owners)
            self._sequence += 1

    def _reclaim(self, wanted: int) -> None:
        """Free the columns of ended series, where the next row's block has nothing of them."""
        while len(self._free) < wanted and self._ended:
            slot, sequence = next(iter(self._ended.items()))
            if sequence >= self._sequence:
                break
            del self._ended[slot]
            self._owners[slot] = None
            self._free.append(slot)

    def _widen(self, by: int) -> None:
        before = len(self._owners)
        width = before + by
        if self.blocks:
            width += width // _SPARE_PART
        if self.blocks and (block := self.blocks[-1]).sequence == self._sequence:
            if len(block.times_ms) * (width - before) <= _WIDEN_PLACES:
                block.widen(width)
                for t_ms in block.times_ms:
                    self._ages.add(t_ms, width - before)
            else:
                self._next_block()
        self._owners.extend([None] * (width - before))
        self._free[:0] = range(width - 1, before - 1, -1)

    def _narrow(self, t_ms: int) -> None:
        """Drop empty columns if a new block begins and a fifth or more would be empty."""
        width = self.going_on + self.going_on // _SPARE_PART
        if len(self._owners) <= max(_FEW, width + width // _EMPTY_PART):
            return
        moving = [each for each in self._owners[width:] if each is not None and each.last == OPEN]
        self._moved = [(series, series.slot) for series in moving]
        for series in moving:
            self.leave(series)
        del self._owners[width:]
        self._free = [slot for slot in self._free if slot < width]
        self._ended = {slot: last for slot, last in self._ended.items() if slot < width}
        self._reclaim(len(moving))
        for series in moving:
            self._place(series, self._free.pop(), t_ms)
        self.order = None

"""Samples of series that are appended together: a row for each time, a column for each series.

The rows lie in blocks, one behind the other in one packed array, so that a scrape is appended in one go and
the samples of a series are a slice with the row's width for a step. A sample takes 8 bytes, and each row 8
more for its time. The place of a series without a sample of a row's time holds `ABSENT`.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpuscale.series.values import ABSENT_BITS, is_absent

if TYPE_CHECKING:
    from gpuscale.series.storage.samples import Series

NEVER_MS = 1 << 62
"""Later than any time; negative, earlier than any."""


class RowBlock:
    """Rows of equal width.

    Args:
        sequence: the number of the block among all that the columns ever had, without a gap.
        width: of its rows.
    """

    __slots__ = ("owners", "sequence", "times_ms", "values", "width")

    def __init__(self, sequence: int, width: int) -> None:
        self.sequence = sequence
        self.width = width
        self.times_ms = array("q")
        """Ascending; at least one, once a block is among the others."""
        self.values = array("d")
        self.owners: Sequence[Series | None] | None = None
        """Whose the places are; None in the newest block, whose places are still given away."""

    def widen(self, width: int) -> None:
        """Add empty columns to each row."""
        pad = absents(width - self.width)
        values = array("d")
        for start in range(0, len(self.values), self.width):
            values += self.values[start : start + self.width]
            values += pad
        self.values, self.width = values, width

    def drop(self, rows: int) -> int:
        """Drop rows from the front; return the number of dropped cells."""
        del self.times_ms[:rows]
        del self.values[: rows * self.width]
        return rows * self.width


class Columns:
    """Row blocks, oldest first."""

    __slots__ = ("__weakref__", "blocks", "cut_ms")

    def __init__(self) -> None:
        self.blocks: list[RowBlock] = []
        self.cut_ms = -NEVER_MS
        """The newest row that was dropped to make room."""

    @property
    def last_ms(self) -> int:
        """Return the newest row's time; minus `NEVER_MS` if there is none."""
        return self.blocks[-1].times_ms[-1] if self.blocks else -NEVER_MS

    def newest(self, slot: int, first: int, last: int, at_ms: int) -> tuple[int, float] | None:
        """Return time and value of a column's newest sample up to a time.

        Args:
            slot: the column's place in a row.
            first: the number of the first block in which the place is the column's.
            last: that of the last one.
            at_ms: milliseconds since the epoch, included.
        """
        for place in range(self._place_of(last), -1, -1):
            block = self.blocks[place]
            if block.times_ms[0] > at_ms:
                continue
            if block.sequence < first:
                return None
            times_ms, values, width = block.times_ms, block.values, block.width
            for row in range(bisect_right(times_ms, at_ms) - 1, -1, -1):
                value = values[row * width + slot]
                if value == value or not is_absent(value):
                    return times_ms[row], value
        return None

    def read(
        self, slot: int, first: int, last: int, start_ms: int, end_ms: int
    ) -> tuple["array[int]", "array[float]"]:
        """Return a column's times and values between two times, both included; arguments as `newest`."""
        times_ms, values = array("q"), array("d")
        for block, low, high in self.between(first, last, start_ms, end_ms):
            width = block.width
            times = block.times_ms[low:high]
            column = block.values[low * width + slot : high * width : width]
            total = sum(column)
            if total != total:
                times, column = _present(times, column)
            times_ms += times
            values += column
        return times_ms, values

    def between(
        self, first: int, last: int, start_ms: int, end_ms: int
    ) -> Iterator[tuple[RowBlock, int, int]]:
        """Return the blocks with rows between two times, and the row indexes `[low, high)`."""
        parts: list[tuple[RowBlock, int, int]] = []
        for place in range(self._place_of(last), -1, -1):
            block = self.blocks[place]
            times_ms = block.times_ms
            if block.sequence < first or times_ms[-1] < start_ms:
                break
            if times_ms[0] <= end_ms:
                low, high = bisect_left(times_ms, start_ms), bisect_right(times_ms, end_ms)
                if low < high:
                    parts.append((block, low, high))
        return reversed(parts)

    def after(self, t_ms: int) -> tuple[RowBlock, int] | None:
        """Return the oldest block with a row later than a time, and that row's position; None for none."""
        found = None
        for block in reversed(self.blocks):
            if block.times_ms[-1] <= t_ms:
                break
            found = block
        return None if found is None else (found, bisect_right(found.times_ms, t_ms))

    def _place_of(self, last: int) -> int:
        """Return the index of the newest block up to a number; -1 if there is none."""
        if not self.blocks:
            return -1
        return min(last - self.blocks[0].sequence, len(self.blocks) - 1)

    def drop(self, cutoff_ms: int) -> int:
        """Drop the rows before a time; return the number of dropped cells."""
        dropped = gone = 0
        for block in self.blocks:
            if block.times_ms[-1] >= cutoff_ms:
                dropped += block.drop(bisect_left(block.times_ms, cutoff_ms))
                break
            dropped += len(block.values)
            gone += 1
        del self.blocks[:gone]
        return dropped


def absents(count: int) -> "array[float]":
    """Return this many empty cells."""
    return array("d", array("Q", [ABSENT_BITS]).tobytes()) * count


def present(row: Iterable[float]) -> list[bool]:
    """Return which cells of a row hold a sample."""
    return [value == value or not is_absent(value) for value in row]


def _present(times_ms: "array[int]", values: "array[float]") -> tuple["array[int]", "array[float]"]:
    kept = present(values)
    if all(kept):
        return times_ms, values
    return (
        array("q", [time_ms for time_ms, is_kept in zip(times_ms, kept, strict=True) if is_kept]),
        array("d", [value for value, is_kept in zip(values, kept, strict=True) if is_kept]),
    )

"""One series' samples, and the part that a query reads.

A store drops samples that are too old, and when it is full its oldest ones. A query that would need them has
no answer: a rate over what is left would be a wrong number that looks like a right one.
"""

from array import array
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuscale.base.errors import UncoveredError
from gpuscale.base.ranges import Range
from gpuscale.series.labels import LabelSet
from gpuscale.series.storage.columns import NEVER_MS
from gpuscale.series.storage.limits import TargetShare
from gpuscale.series.values import is_stale

if TYPE_CHECKING:
    from gpuscale.series.storage.groups import SeriesGroup

OPEN = 1 << 62
"""In place of the number of a series' last block: it goes on."""
_BEFORE_ALL_MS = -NEVER_MS


class Series:
    """The samples of one label set; also the handle through which hot paths append.

    Samples that came alone lie in arrays of the series' own. Those that came with others lie in the rows of a
    group, in one place of each; all of them are newer.
    """

    __slots__ = (
        "__weakref__",
        "first",
        "group",
        "is_listed",
        "joined_ms",
        "labels",
        "last",
        "moves",
        "own_cut_ms",
        "own_times_ms",
        "own_values",
        "range",
        "share",
        "slot",
    )

    def __init__(
        self, labels: LabelSet, share: TargetShare | None = None, limits: Range | None = None
    ) -> None:
        self.labels = labels
        self.share = share
        """Whose series it is; None for the server's own."""
        self.range = limits
        """What it can have; None where any value is possible."""
        self.is_listed = False
        """Whether the store has samples of it."""
        self.own_times_ms: array[int] | None = None
        """Ascending, at least one; None where there is none."""
        self.own_values: array[float] | None = None
        self.own_cut_ms = _BEFORE_ALL_MS
        """The newest sample of its own that was dropped."""
        self.group: SeriesGroup | None = None
        """Whose rows have its newer samples."""
        self.slot = 0
        """Its place in a row."""
        self.first = 0
        """The number of the first block in which this is its place."""
        self.last = OPEN
        """The number of the block where it ended; its place may be another's in later ones."""
        self.joined_ms = 0
        """The time of its first sample in the columns."""
        self.moves = 0
        """How often it came from elsewhere than the time before."""

    @classmethod
    def copied(cls, series: "Series", times_ms: "array[int]", values: "array[float]") -> "Series":
        """Return a copy of a series with only these samples, and the same gaps."""
        copy = cls(series.labels)
        if times_ms:
            copy.own_times_ms, copy.own_values = times_ms, values
        copy.own_cut_ms = series.cut_ms
        return copy

    @property
    def times_ms(self) -> "array[int]":
        """Return a copy of all sample times, ascending."""
        return self.read(-NEVER_MS, NEVER_MS)[0]

    @property
    def values(self) -> "array[float]":
        """Return a copy of all values, end markers included."""
        return self.read(-NEVER_MS, NEVER_MS)[1]

    @property
    def last_ms(self) -> int:
        """Return the newest sample's time; minus `NEVER_MS` if there is none."""
        newest = self.newest(NEVER_MS)
        return -NEVER_MS if newest is None else newest[0]

    @property
    def cut_ms(self) -> int:
        """Return the time up to which samples may have been dropped."""
        group = self.group
        if group is None or group.cut_ms < self.joined_ms:
            return self.own_cut_ms
        return max(group.cut_ms, self.own_cut_ms)

    def rows(self) -> int:
        """Return an upper estimate of the number of samples, quickly."""
        own = 0 if self.own_times_ms is None else len(self.own_times_ms)
        if self.group is None:
            return own
        return own + sum(len(block.times_ms) for block in self.group.blocks)

    def read(self, start_ms: int, end_ms: int) -> tuple["array[int]", "array[float]"]:
        """Return copies of times and values between two times, both included."""
        group, own_times_ms, own_values = self.group, self.own_times_ms, self.own_values
        if group is None:
            times_ms, values = array("q"), array("d")
        else:
            times_ms, values = group.read(self.slot, self.first, self.last, start_ms, end_ms)
        if own_times_ms is not None and own_values is not None and own_times_ms[-1] >= start_ms:
            low, high = bisect_left(own_times_ms, start_ms), bisect_right(own_times_ms, end_ms)
            return own_times_ms[low:high] + times_ms, own_values[low:high] + values
        return times_ms, values

    def newest(self, at_ms: int) -> tuple[int, float] | None:
        """Return time and value of the newest sample up to and including a time."""
        group, own_times_ms, own_values = self.group, self.own_times_ms, self.own_values
        if group is not None:
            found = group.newest(self.slot, self.first, self.last, at_ms)
            if found is not None:
                return found
        if own_times_ms is not None and own_values is not None:
            position = bisect_right(own_times_ms, at_ms) - 1
            if position >= 0:
                return own_times_ms[position], own_values[position]
        return None

    def has_sample_between(self, start_ms: int, end_ms: int) -> bool:
        """Return whether a sample lies in the range, both ends included."""
        newest = self.newest(end_ms)
        return newest is not None and newest[0] >= start_ms

    def is_stale(self) -> bool:
        """Return whether the newest sample is an end marker."""
        if self.group is not None:
            return self.last != OPEN
        return self.own_values is not None and is_stale(self.own_values[-1])

    def append(self, t_ms: int, value: float) -> None:
        """Append a sample to the series' own arrays, which hold all its samples."""
        if self.own_times_ms is None or self.own_values is None:
            self.own_times_ms, self.own_values = array("q"), array("d")
        self.own_times_ms.append(t_ms)
        self.own_values.append(value)

    def cut(self, cutoff_ms: int) -> int:
        """Drop own samples before a time to make room, but never the newest of all; return how many."""
        if self.own_times_ms is None:
            return 0
        keeps = 0 if self.group is not None else 1
        count = min(bisect_left(self.own_times_ms, cutoff_ms), len(self.own_times_ms) - keeps)
        return self._drop(count)

    def expire(self, cutoff_ms: int) -> int:
        """Drop own samples before a time as too old; return how many."""
        if self.own_times_ms is None or self.own_times_ms[0] >= cutoff_ms:
            return 0
        return self._drop(bisect_left(self.own_times_ms, cutoff_ms))

    def _drop(self, count: int) -> int:
        if count <= 0 or self.own_times_ms is None or self.own_values is None:
            return 0
        self.own_cut_ms = self.own_times_ms[count - 1]
        if count == len(self.own_times_ms):
            self.own_times_ms = self.own_values = None
        else:
            del self.own_times_ms[:count]
            del self.own_values[:count]
        return count


def current(series: Series, oldest_ms: int, at_ms: int) -> tuple[int, float] | None:
    """Return time and value of the newest sample between two times, both included.

    None where there is none, or where it says that the series has ended.

    Raises:
        UncoveredError: such a sample may have been dropped.
    """
    group = series.group
    if group is not None and series.last == OPEN and group.blocks:
        # Nearly always it is in the newest row.
        block = group.blocks[-1]
        time_ms = block.times_ms[-1]
        if time_ms <= at_ms:
            value = block.values[series.slot - block.width]
            if value == value:
                return (time_ms, value) if time_ms >= oldest_ms else None
    newest = series.newest(at_ms)
    if newest is None:
        if at_ms >= oldest_ms and series.cut_ms >= oldest_ms:
            raise _not_covered(series, oldest_ms)
        return None
    return None if newest[0] < oldest_ms or is_stale(newest[1]) else newest


def window(
    series: Series, start_ms: int, end_ms: int, *, left_open: bool
) -> tuple["array[int]", "array[float]"]:
    """Return times and values in a range that includes its end, without end markers.

    Raises:
        UncoveredError: samples of the range may have been dropped.
    """
    if series.cut_ms >= start_ms + left_open:
        raise _not_covered(series, start_ms)
    times_ms, values = series.read(start_ms + left_open, end_ms)
    total = sum(values)
    if total != total:
        kept = [place for place, value in enumerate(values) if not is_stale(value)]
        if len(kept) < len(values):
            times_ms = array("q", [times_ms[place] for place in kept])
            values = array("d", [values[place] for place in kept])
    return times_ms, values


def _not_covered(series: Series, start_ms: int) -> UncoveredError:
    needed, kept = (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        for time_ms in (start_ms, series.cut_ms)
    )
    return UncoveredError(
        f"the query needs samples of {series.labels} since {needed}, but those up to {kept} "
        "were dropped: they were too old, or the store was full",
        series.cut_ms,
    )

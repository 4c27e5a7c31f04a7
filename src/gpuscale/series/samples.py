"""The samples of one series, and the part of them that a query looks at.

A store that is full drops its oldest samples. A query that would need them has no answer: a rate over what is
left would be a wrong number that looks like a right one.
"""

from array import array
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime

from gpuscale.core.errors import UncoveredError
from gpuscale.series.labels import LabelSet
from gpuscale.series.limits import Share
from gpuscale.series.staleness import is_stale

NEVER_MS = 1 << 62
"""The `last_ms` of a series that is not listed, so that one comparison sends it the long way."""


class Series:
    """The samples of one label set; also the handle that hot paths append through."""

    __slots__ = (
        "__weakref__",
        "cut_ms",
        "has_stale",
        "labels",
        "last_ms",
        "share",
        "times_ms",
        "values",
    )

    def __init__(self, labels: LabelSet, share: Share | None = None) -> None:
        self.labels = labels
        self.share = share
        """Whose series it is; None for the server's own."""
        self.times_ms = array("q")
        """Ascending."""
        self.values = array("d")
        self.last_ms = NEVER_MS
        self.cut_ms = -NEVER_MS
        """The newest sample that was dropped to make room; those that grew too old don't count."""
        self.has_stale = False
        """Whether a staleness marker was ever written here; most series have none to look for."""

    def has_sample_between(self, start_ms: int, end_ms: int) -> bool:
        """Return whether a sample lies in the range, both ends included."""
        position = bisect_left(self.times_ms, start_ms)
        return position < len(self.times_ms) and self.times_ms[position] <= end_ms

    def is_stale(self) -> bool:
        """Return whether the newest sample says that the series has ended."""
        return self.has_stale and bool(self.values) and is_stale(self.values[-1])

    def cut(self, cutoff_ms: int) -> int:
        """Drop samples before a time to make room, never the newest; return how many."""
        count = min(bisect_left(self.times_ms, cutoff_ms), len(self.times_ms) - 1)
        if count <= 0:
            return 0
        self.cut_ms = self.times_ms[count - 1]
        self._drop(count)
        return count

    def expire(self, cutoff_ms: int) -> int:
        """Drop samples before a time because they are too old; return how many."""
        count = bisect_left(self.times_ms, cutoff_ms)
        self._drop(count)
        return count

    def _drop(self, count: int) -> None:
        del self.times_ms[:count]
        del self.values[:count]


def window_bounds(
    series: Series, start_ms: int, end_ms: int, *, left_open: bool
) -> tuple[int, int]:
    """Return the positions `[low, high)` of the samples in a range that includes its end.

    Raises:
        UncoveredError: samples of the range may have been dropped to make room.
    """
    if series.cut_ms >= start_ms + left_open:
        raise _not_covered(series, start_ms)
    times_ms = series.times_ms
    low = (bisect_right if left_open else bisect_left)(times_ms, start_ms)
    return low, bisect_right(times_ms, end_ms)


def newest_position(series: Series, oldest_ms: int, at_ms: int) -> int | None:
    """Return the position of the newest sample between two times, both included; None where there is none.

    Raises:
        UncoveredError: such a sample may have been dropped to make room.
    """
    high = bisect_right(series.times_ms, at_ms)
    if high == 0:
        if series.cut_ms >= oldest_ms:
            raise _not_covered(series, oldest_ms)
        return None
    return high - 1 if series.times_ms[high - 1] >= oldest_ms else None


def _not_covered(series: Series, start_ms: int) -> UncoveredError:
    needed, kept = (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        for time_ms in (start_ms, series.cut_ms)
    )
    return UncoveredError(
        f"the query needs samples of {series.labels} since {needed}, but those up to {kept} "
        "were dropped because the store is full"
    )

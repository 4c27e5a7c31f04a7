"""Values that are too old or from the future, which must not scale anything.

A time in the future is no time of a measurement: the clock of who answers is wrong, and so is any age. Up to
`MAX_AHEAD_MS` it passes, as clocks of one cluster differ. A Prometheus says when it evaluated a query, not
when the samples behind it were measured, so none of its values is ever old here; it passes over samples older
than its own lookback, five minutes by default.
"""

from collections import OrderedDict
from collections.abc import Mapping

from gpuscale.series import MAX_AHEAD_MS, Value, Vector, VectorSample

_MAX_METRICS = 2_000
"""Metrics that are counted; those found longest ago go first."""
_Counts = OrderedDict[tuple[str, str], int]


class AgeLimit:
    """Drops rows that are too old or in the future, and counts them.

    Args:
        limit_ms: how long ago a row may have been measured; None for any time.
    """

    def __init__(self, limit_ms: int | None = None) -> None:
        self.limit_ms = limit_ms
        self._stale: _Counts = OrderedDict()
        self._ahead: _Counts = OrderedDict()

    @property
    def stale(self) -> Mapping[tuple[str, str], int]:
        """Return how many rows were too old, by API group and metric."""
        return self._stale

    @property
    def ahead(self) -> Mapping[tuple[str, str], int]:
        """Return how many rows were in the future, by API group and metric."""
        return self._ahead

    def fresh(
        self, value: Value, at_ms: int, group: str, metric: str, *, counts: bool = True
    ) -> Value:
        """Return a vector without the rows that are too old or in the future; other values unchanged.

        Args:
            value: what a query gave.
            at_ms: now.
            group: of the API, for the count.
            metric: as the API calls it, for the count.
            counts: whether what is left out counts.
        """
        if not isinstance(value, Vector):
            return value
        oldest_ms = 0 if self.limit_ms is None else at_ms - self.limit_ms
        newest_ms = at_ms + MAX_AHEAD_MS
        kept = tuple([row for row in value.samples if oldest_ms <= row.measured_ms <= newest_ms])
        if len(kept) == len(value.samples):
            return value
        if counts:
            ahead = sum(is_ahead(row, at_ms) for row in value.samples)
            _count(self._ahead, (group, metric), ahead)
            _count(self._stale, (group, metric), len(value.samples) - len(kept) - ahead)
        return Vector(kept)


def is_ahead(row: VectorSample, at_ms: int) -> bool:
    """Return whether a row's time is further in the future than clocks of one cluster may differ."""
    return row.measured_ms > at_ms + MAX_AHEAD_MS


def _count(counts: _Counts, key: tuple[str, str], rows: int) -> None:
    if rows:
        counts[key] = counts.get(key, 0) + rows
        counts.move_to_end(key)
        if len(counts) > _MAX_METRICS:
            counts.popitem(last=False)

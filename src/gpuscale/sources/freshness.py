"""Values that were measured too long ago, kept from those who would scale by them.

A Prometheus says when it evaluated a query, not when the samples behind it were measured, so none of its
values is ever old here; it passes over samples older than its own lookback, five minutes by default.
"""

from collections import OrderedDict
from collections.abc import Mapping

from gpuscale.series.values import Value, Vector

_MAX_METRICS = 2_000
"""Metrics that are counted; those found stale longest ago go first."""


class AgeLimit:
    """Leaves out rows that are too old, and counts them.

    Args:
        limit_ms: how long ago a row may have been measured; None for any time.
    """

    def __init__(self, limit_ms: int | None = None) -> None:
        self.limit_ms = limit_ms
        self._stale: OrderedDict[tuple[str, str], int] = OrderedDict()

    @property
    def stale(self) -> Mapping[tuple[str, str], int]:
        """Return how many rows were left out, by API group and metric."""
        return self._stale

    def fresh(self, value: Value, at_ms: int, group: str, metric: str) -> Value:
        """Return the value less the rows of a vector that are too old.

        Args:
            value: what a query gave.
            at_ms: now.
            group: of the API, for the count.
            metric: as the API calls it, for the count.
        """
        if self.limit_ms is None or not isinstance(value, Vector):
            return value
        oldest_ms = at_ms - self.limit_ms
        kept = tuple(row for row in value.samples if row.measured_ms >= oldest_ms)
        if len(kept) == len(value.samples):
            return value
        self._count((group, metric), len(value.samples) - len(kept))
        return Vector(kept)

    def _count(self, key: tuple[str, str], rows: int) -> None:
        self._stale[key] = self._stale.get(key, 0) + rows
        self._stale.move_to_end(key)
        if len(self._stale) > _MAX_METRICS:
            self._stale.popitem(last=False)

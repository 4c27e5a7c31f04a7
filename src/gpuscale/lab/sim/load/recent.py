"""Rates of recent events, from a few numbers."""

from collections import deque

_BUCKET_MS = 500
_BUCKETS = 10


class RecentCount:
    """Counts events, and returns their rate over the last five seconds."""

    def __init__(self) -> None:
        self._buckets: deque[list[int]] = deque(maxlen=_BUCKETS + 1)
        """Each with its number since the epoch, and its count."""

    def add(self, now_ms: int) -> None:
        """Count an event now."""
        bucket = now_ms // _BUCKET_MS
        if not self._buckets or self._buckets[-1][0] != bucket:
            self._buckets.append([bucket, 0])
        self._buckets[-1][1] += 1

    def per_second(self, now_ms: int) -> float:
        """Return the mean rate over the last whole buckets and the current one."""
        first = now_ms // _BUCKET_MS - _BUCKETS
        count = sum(count for bucket, count in self._buckets if bucket >= first)
        return count * 1000 / (_BUCKETS * _BUCKET_MS + now_ms % _BUCKET_MS)

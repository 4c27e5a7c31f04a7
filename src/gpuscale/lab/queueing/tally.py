"""Tallies of waiting times in a bounded number of buckets.

A bucket is one per cent wide, so a percentile is at most that far off, however many requests there were.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

_WIDTH = math.log(1.01)
_LEAST_S = 1e-6
"""Shorter than this is no wait."""
_ROUNDS = 60


class Spread(Protocol):
    """A distribution of times, given by the share above each time."""

    def exceeding(self, seconds: float) -> float:
        """Return the share of requests that took longer than this."""
        ...

    @property
    def longest_s(self) -> float:
        """Return a time that almost none exceed."""
        ...


class WaitTally:
    """Waiting times, each counted with a weight."""

    def __init__(self) -> None:
        self.count = 0.0
        self._sum_s = 0.0
        self._points: dict[int, float] = {}
        """Bucket of a time to the requests that took it."""
        self._tails: dict[int, float] = {}
        """Bucket of a mean to the requests whose times are exponential with it."""

    @property
    def mean_s(self) -> float | None:
        """Return the mean; None without requests."""
        return self._sum_s / self.count if self.count else None

    @property
    def longest_s(self) -> float:
        points = _middle(max(self._points)) if self._points else 0.0
        tails = 60 * _middle(max(self._tails)) if self._tails else 0.0
        return max(points, tails)

    def add(self, seconds: float, weight: float = 1.0) -> None:
        """Count requests with this waiting time."""
        self.count += weight
        if seconds > _LEAST_S:
            self._sum_s += seconds * weight
            bucket = math.floor(math.log(seconds) / _WIDTH)
            self._points[bucket] = self._points.get(bucket, 0.0) + weight

    def add_exponential(self, chance: float, mean_s: float, weight: float) -> None:
        """Count requests that wait with some probability, for an exponential time with this mean."""
        self.count += weight
        if chance and mean_s > _LEAST_S:
            self._sum_s += chance * mean_s * weight
            bucket = math.floor(math.log(mean_s) / _WIDTH)
            self._tails[bucket] = self._tails.get(bucket, 0.0) + weight * chance

    def exceeding(self, seconds: float) -> float:
        if seconds < 0:
            return 1.0
        longer = sum(weight for at, weight in self._points.items() if _middle(at) > seconds)
        for at, weight in self._tails.items():
            longer += weight * math.exp(-seconds / _middle(at))
        return longer / self.count if self.count else 0.0


class Latencies:
    """Latencies: waits plus an independent time after them.

    Args:
        waits: before the service.
        after_s: as likely times of the service and what else is answered with; at least one.
    """

    def __init__(self, waits: WaitTally, after_s: Sequence[float]) -> None:
        self._waits = waits
        self._after_s = tuple(after_s)

    @property
    def longest_s(self) -> float:
        return self._waits.longest_s + max(self._after_s)

    def exceeding(self, seconds: float) -> float:
        shares = [self._waits.exceeding(seconds - after) for after in self._after_s]
        return sum(shares) / len(shares)


def percentile(times: Spread, percent: float) -> float:
    """Return the smallest time that all but `100 - percent` per cent stay within."""
    return _least(lambda at: times.exceeding(at) <= 1 - percent / 100, 1.02 * times.longest_s)


def _least(holds: Callable[[float], bool], high: float) -> float:
    low = 0.0
    if holds(low):
        return low
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _middle(bucket: int) -> float:
    return math.exp((bucket + 0.5) * _WIDTH)

"""Distributions of durations: service times, image pulls, starts.

A distribution is its inverse: `at(share)` is the time that this share of all cases is within. The caller
brings the random number, so that nothing here is random.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Protocol

_NORMAL = NormalDist()
_LEAST_SHARE = 1e-12
"""The inverse of a normal distribution has no value at 0 and at 1."""


class Times(Protocol):
    """A distribution of durations, in a unit that its creator chooses."""

    @property
    def mean(self) -> float: ...

    @property
    def spread(self) -> float:
        """Return the coefficient of variation: 0 constant, 1 exponential."""
        ...

    def at(self, share: float) -> float:
        """Return the duration that this share of cases, from 0 to 1, stays within."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant duration."""

    mean: float

    @property
    def spread(self) -> float:
        return 0.0

    def at(self, _share: float) -> float:
        return self.mean


@dataclass(frozen=True, slots=True)
class Exponential:
    """The exponential distribution."""

    mean: float

    @property
    def spread(self) -> float:
        return 1.0

    def at(self, share: float) -> float:
        return -self.mean * math.log1p(-min(share, 1 - _LEAST_SHARE))


@dataclass(frozen=True, slots=True)
class Uniform:
    """The uniform distribution."""

    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def spread(self) -> float:
        return (self.high - self.low) / math.sqrt(12) / self.mean if self.mean else 0.0

    def at(self, share: float) -> float:
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The lognormal distribution: most values near the median, and a long tail."""

    median: float
    p99: float
    """The 99th percentile; above the median."""

    @property
    def _sigma(self) -> float:
        return math.log(self.p99 / self.median) / _NORMAL.inv_cdf(0.99)

    @property
    def mean(self) -> float:
        return self.median * math.exp(self._sigma**2 / 2)

    @property
    def spread(self) -> float:
        return math.sqrt(math.expm1(self._sigma**2))

    def at(self, share: float) -> float:
        inside = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)
        return self.median * math.exp(self._sigma * _NORMAL.inv_cdf(inside))


class Quantiles:
    """A distribution given by quantiles: linear between them, constant outside.

    Args:
        shares: of all cases, 0 to 1, rising; at least one.
        times: which these shares are within, never falling; one for each.
    """

    def __init__(self, shares: Sequence[float], times: Sequence[float]) -> None:
        self._shares = (0.0, *shares, 1.0)
        self._times = (times[0], *times, times[-1])
        square = 0.0
        self.mean = 0.0
        for share, low, high in self._parts():
            self.mean += share * (low + high) / 2
            square += share * (low * low + low * high + high * high) / 3
        variance = max(0.0, square - self.mean**2)
        self.spread = math.sqrt(variance) / self.mean if self.mean else 0.0

    def at(self, share: float) -> float:
        after = min(max(1, bisect_left(self._shares, share)), len(self._shares) - 1)
        (left, right), (low, high) = (
            each[after - 1 : after + 1] for each in (self._shares, self._times)
        )
        return high if right == left else low + (high - low) * (share - left) / (right - left)

    def _parts(self) -> Iterator[tuple[float, float, float]]:
        """Yield each segment's share, and the durations at its ends."""
        for (left, right), (low, high) in zip(
            pairwise(self._shares), pairwise(self._times), strict=True
        ):
            yield right - left, low, high


class ObservedTimes:
    """The distribution of observed durations.

    Args:
        times: at least one.
        counts: how often each was seen, above zero; None: once.
    """

    def __init__(self, times: Sequence[float], counts: Sequence[float] | None = None) -> None:
        pairs = sorted(zip(times, counts or [1.0] * len(times), strict=True))
        total = sum(count for _, count in pairs)
        self._times = tuple(time for time, _ in pairs)
        self._shares: list[float] = []
        seen = 0.0
        for _, count in pairs:
            seen += count
            self._shares.append(seen / total)
        self.mean = sum(time * count for time, count in pairs) / total
        square = sum((time - self.mean) ** 2 * count for time, count in pairs) / total
        self.spread = math.sqrt(square) / self.mean if self.mean else 0.0

    def at(self, share: float) -> float:
        return self._times[min(bisect_left(self._shares, share), len(self._times) - 1)]

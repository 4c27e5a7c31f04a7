"""Histograms of durations."""

import bisect
from collections.abc import Iterable, Mapping

from gpuscale.base.exposition.families import Family, Sample

Labels = tuple[tuple[str, str], ...]
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""


class Histogram:
    """A histogram of durations.

    Args:
        bounds: upper bounds in seconds, growing.
    """

    __slots__ = ("_bounds", "_counts", "_total_s")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, seconds)] += 1
        self._total_s += seconds

    def samples(self, labels: Labels) -> Iterable[Sample]:
        """Yield the buckets, cumulative, then sum and count."""
        below = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            yield Sample((*labels, ("le", bound)), below, "_bucket")
        yield Sample(labels, self._total_s, "_sum")
        yield Sample(labels, below, "_count")


def histograms(name: str, help_: str, found: Mapping[Labels, Histogram]) -> Family:
    """Return a family of histograms, sorted by labels."""
    samples = tuple(sample for labels in sorted(found) for sample in found[labels].samples(labels))
    return Family(name, "histogram", help_, samples)

"""A server that processes requests in batches: time per request and throughput, by batch size.

A request in a batch of n takes `seconds(n)`, so the server does n / seconds(n) a second. With n = 1 that is a
plain server. The curve is measured, by the user or by a simulator of an engine; nothing here knows an engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gpuscale.lab.queueing.times import Constant, Times

MAX_BATCH = 4_096


class BatchCurve:
    """The seconds a request takes, by batch size; linear between measured sizes.

    Args:
        points: size and seconds, both above zero; sizes rise from 1 to MAX_BATCH at most.
    """

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        self._seconds = [points[0][1]]
        for (low, start_s), (high, end_s) in pairwise(points):
            self._seconds += [
                start_s + (end_s - start_s) * (size - low) / (high - low)
                for size in range(low + 1, high + 1)
            ]
        self.largest = len(self._seconds)
        """The largest batch that is known."""
        rates = [size / seconds for size, seconds in enumerate(self._seconds, start=1)]
        self.best_rate = max(rates)
        """Requests per second at the most."""
        self.best = rates.index(self.best_rate) + 1
        """The smallest batch that does as many."""

    def seconds(self, size: int) -> float:
        """Return a request's seconds in a batch of this size, from 1 to `largest`."""
        return self._seconds[size - 1]

    def size_at(self, rate: float) -> float:
        """Return the mean batch size at a request rate; `best` if the rate is too high."""
        if rate * self._seconds[0] <= 1:
            return rate * self._seconds[0]
        for size in range(2, self.best + 1):
            more = size / self._seconds[size - 1]
            if more >= rate:
                less = (size - 1) / self._seconds[size - 2]
                return size - 1 + (rate - less) / (more - less)
        return float(self.best)

    def cut(self, largest: int) -> "BatchCurve":
        """Return the curve up to a batch size of at least 1."""
        return BatchCurve(list(enumerate(self._seconds[:largest], start=1)))


@dataclass(frozen=True, slots=True)
class Batching:
    """How a service's pods batch requests."""

    curve: BatchCurve
    """For requests of the mean size, up to the largest batch that a pod takes."""
    prompt_tokens: float = 0.0
    output_tokens: Times = field(default_factory=lambda: Constant(1.0))
    """Of a request; one with twice the tokens of the mean takes twice as long."""
    kv_tokens: float | None = None
    """Tokens for which a pod's KV cache has room; None: no request waits for room there."""

"""The arrival time of each request of a load: random around its rate, even, or recorded."""

import math
from collections.abc import Callable

from gpuscale.base.loads import Load, TraceLoad

Draw = Callable[[], float]
"""Returns a random number from 0 to below 1."""


class Arrivals:
    """The single requests of a load.

    A load says how many have come by `t`. In that count, and not in time, Poisson arrivals are one apart in
    the mean, so they follow any shape exactly.

    Args:
        load: over scenario time; a recorded one keeps its moments.
        draw: for random arrivals; None has them come evenly.
    """

    def __init__(self, load: Load, draw: Draw | None) -> None:
        self._load = load
        self._recorded = load if isinstance(load, TraceLoad) else None
        self._draw = None if self._recorded is not None else draw
        self._next = self._gap()

    def between(self, from_s: float, to_s: float) -> list[float]:
        """Return the arrival times between two times; call for consecutive spans.

        Args:
            from_s: seconds of scenario time.
            to_s: the rate counts as constant in between.
        """
        before, after = self._load.requests_until(from_s), self._load.requests_until(to_s)
        found: list[float] = []
        while self._next <= after:
            found.append(self._moment(from_s, to_s, (self._next - before) / (after - before)))
            self._next += self._gap()
        return found

    def _moment(self, from_s: float, to_s: float, share: float) -> float:
        if self._recorded is not None:
            return self._recorded.moment(self._next)
        return from_s + (to_s - from_s) * max(0.0, share)

    def _gap(self) -> float:
        return 1.0 if self._draw is None else -math.log1p(-self._draw())

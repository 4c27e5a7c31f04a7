"""Who is worked on when: `count` requests at once, the others in the order in which they came.

This is only arithmetic, without a clock, so that it can be held against queueing theory in virtual time.
"""

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """When a request is worked on; both on the clock that `admit` was called with, seconds."""

    start: float
    end: float


class Lanes:
    """A queue in front of `count` equal servers.

    Args:
        count: requests that are worked on at once.
    """

    def __init__(self, count: int) -> None:
        self._free_at = [0.0] * count

    def admit(self, now: float, seconds: float) -> Turn:
        """Take in a request that arrives at `now` and takes this long; times may not go back."""
        start = max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, start + seconds)
        return Turn(start, start + seconds)

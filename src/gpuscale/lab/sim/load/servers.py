"""What serves the requests of a service one by one: the servers of its ready pods, taken together."""

import heapq
import math
from typing import NamedTuple, Protocol

from gpuscale.lab.queueing.times import Times
from gpuscale.lab.sim.load.arrivals import Draw


class Ended(NamedTuple):
    """A request whose time is only known when it is over; seconds."""

    came_s: float
    began_s: float


class Servers(Protocol):
    """Who takes the requests at the head of the line."""

    gpu_ratio: float
    """Part of a pod's GPU time that each one of `working` uses."""

    @property
    def count(self) -> int:
        """Return how many requests are being served."""
        ...

    @property
    def working(self) -> int:
        """Return how many servers, or pods, do so."""
        ...

    def staff(self, ready_pods: int, moment_s: float) -> None:
        """Take in how many pods there are; what is being served is served to its end."""
        ...

    def has_room(self) -> bool:
        """Return whether the request at the head of the line can be taken."""
        ...

    def take(self, came_s: float, moment_s: float) -> float | None:
        """Begin to serve it; return the seconds that this takes, None where they depend on what comes."""
        ...

    def forget(self) -> None:
        """Take in that the head of the line gave up."""
        ...

    def next_end_s(self) -> float:
        """Return when the next request is done, as far as is known now; infinity where there is none."""
        ...

    def end_next(self) -> Ended | None:
        """Let that request go; return it where `take` did not know its time."""
        ...


class Slots:
    """Servers of which each takes one request, for a time that it draws.

    Args:
        per_pod: how many.
        times: that they take.
        draw: random numbers.
        gpu_ratio: part of a pod's GPU time that each uses.
    """

    def __init__(self, per_pod: int, times: Times, draw: Draw, gpu_ratio: float) -> None:
        self.gpu_ratio = gpu_ratio
        self._per_pod = per_pod
        self._times = times
        self._draw = draw
        self._there = 0
        self._ends_s: list[float] = []

    @property
    def count(self) -> int:
        return len(self._ends_s)

    @property
    def working(self) -> int:
        return len(self._ends_s)

    def staff(self, ready_pods: int, _moment_s: float) -> None:
        self._there = ready_pods * self._per_pod

    def has_room(self) -> bool:
        return len(self._ends_s) < self._there

    def take(self, _came_s: float, moment_s: float) -> float:
        took_s = self._times.at(self._draw()) if self._times.spread else self._times.mean
        heapq.heappush(self._ends_s, moment_s + took_s)
        return took_s

    def forget(self) -> None:
        """Do nothing: all requests are alike until they are served."""

    def next_end_s(self) -> float:
        return self._ends_s[0] if self._ends_s else math.inf

    def end_next(self) -> None:
        heapq.heappop(self._ends_s)

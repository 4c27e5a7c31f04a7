"""The servers of a service's ready pods, taken together, for requests served one by one."""

import heapq
import math
from typing import NamedTuple, Protocol

from gpuscale.lab.queueing.times import Times
from gpuscale.lab.sim.load.arrivals import Draw


class Ended(NamedTuple):
    """A finished request whose duration was unknown at its start; in seconds."""

    came_s: float
    began_s: float


class Servers(Protocol):
    """The servers that take requests from the head of the queue."""

    gpu_ratio: float
    """Part of a pod's GPU time that each one of `working` uses."""

    @property
    def count(self) -> int:
        """Return the number of requests in service."""
        ...

    @property
    def working(self) -> int:
        """Return the number of busy servers, or of pods."""
        ...

    def staff(self, ready_pods: int, moment_s: float) -> None:
        """Set the number of ready pods; requests in service are finished."""
        ...

    def has_room(self) -> bool:
        """Return whether a server can take the request at the head of the queue."""
        ...

    def take(self, came_s: float, moment_s: float) -> float | None:
        """Start a request; return its seconds, or None if these depend on later requests."""
        ...

    def forget(self) -> None:
        """Forget the request at the head of the queue, whose client gave up."""
        ...

    def next_end_s(self) -> float:
        """Return when the next request ends, as known now; infinity if there is none."""
        ...

    def end_next(self) -> Ended | None:
        """End that request; return it if `take` did not know its duration."""
        ...


class Slots:
    """Servers that take one request each, for a random time.

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
        """Do nothing: requests are alike until they are served."""

    def next_end_s(self) -> float:
        return self._ends_s[0] if self._ends_s else math.inf

    def end_next(self) -> None:
        heapq.heappop(self._ends_s)

"""Single requests within a service's fluid load: when each of them is served.

The service is a fluid queue that all ready pods work off together. A request that finds others waits until
they are served, at whatever rate the pods of that time have; one that finds none takes the time of one
request. On one pod, with Poisson arrivals and no other load, this is M/D/1. On several it is the same queue
with a faster server, so waits come out a little short where pods are many and hardly busy.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.lab.sim.load.service import SimulatedService

_ALMOST = 1e-6
"""What rounding may have taken from a whole request."""


@dataclass(frozen=True, slots=True)
class _Request:
    joined_ms: int
    place: float
    """Requests that will have been served when it is, as `SimulatedService.join` counts them."""
    on_done: Callable[[float], None]


class WaitingLine:
    """A service's single unserved requests, in order of arrival.

    Args:
        service: that they are requests of.
        now_ms: milliseconds since the epoch.
    """

    def __init__(self, service: SimulatedService, now_ms: int) -> None:
        self._service = service
        self._requests: deque[_Request] = deque()
        self._looked_ms = now_ms
        self._served = service.served

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._requests)

    def join(self, now_ms: int, ready_pods: int, on_done: Callable[[float], None]) -> bool:
        """Add a request, and return whether there was room.

        Args:
            now_ms: when it comes.
            ready_pods: of the service.
            on_done: called by a later `look` with the time at which its answer is due, milliseconds.
        """
        self.look(now_ms, ready_pods)
        place = self._service.join(now_ms, ready_pods)
        if place is None:
            return False
        self._requests.append(_Request(now_ms, place, on_done))
        return True

    def look(self, now_ms: int, ready_pods: int) -> None:
        """Advance the service with this many ready pods, and wake the requests that were served."""
        served = self._service.served_at(now_ms, ready_pods)
        while self._requests and self._requests[0].place <= served + _ALMOST:
            request = self._requests.popleft()
            # Waiting requests are served at the full rate.
            waited_ms = 1000 * (request.place - self._served) / self._rate(ready_pods)
            left_ms = min(float(now_ms), self._looked_ms + waited_ms)
            least_ms = 1000 * self._service.model.least_seconds
            request.on_done(max(request.joined_ms + least_ms, left_ms))
        self._looked_ms, self._served = now_ms, served

    def due_ms(self, ready_pods: int) -> float:
        """Return when the first request will be served if nothing changes; infinity if there is none."""
        if not self._requests or not ready_pods:
            return float("inf")
        left = self._requests[0].place - self._served
        return self._looked_ms + 1000 * left / self._rate(ready_pods)

    def _rate(self, ready_pods: int) -> float:
        return max(1, ready_pods) * self._service.model.largest_rate

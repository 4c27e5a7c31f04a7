"""What requests do to GPUs: queueing, saturation, and how busy each pod's GPUs were.

The model is a fluid one: requests flow at the load's rate, every ready pod works at a fixed largest rate,
what is not worked off waits. All ready pods share the work evenly, as behind a Service, so one number
says how busy each of them is. Requests are conserved: arrived = served + waiting + turned away.
"""

from bisect import bisect_right
from dataclasses import dataclass

from gpuscale.sim.load.loads import Load

_HISTORY = 600
"""Steps of busy time kept; readings look back by one collect interval, which is far shorter."""


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """What one request costs one pod."""

    gpu_seconds: float
    """GPU time of one request, spread over the pod's GPUs; above zero."""
    other_seconds: float
    """Time off the GPU during which a request still holds a slot."""
    concurrency: int
    """Requests that a pod works on at once."""
    queue_limit: float
    """Requests that may wait."""
    gpus: int = 1
    """GPUs per pod."""

    @property
    def seconds_per_request(self) -> float:
        """Return how long a pod's GPUs are busy with one request."""
        return self.gpu_seconds / self.gpus

    @property
    def largest_rate(self) -> float:
        """Return the requests per second of one saturated pod.

        Either the GPUs are the limit (they are busy all the time) or the slots are (each is held for the
        whole time of a request): the operational bounds of a closed system.
        """
        by_gpu = 1 / self.seconds_per_request
        by_slots = self.concurrency / (self.seconds_per_request + self.other_seconds)
        return min(by_gpu, by_slots)


class Service:
    """One Deployment's requests over time.

    Args:
        model: cost of a request.
        load: requests over scenario time.
        start_ms: when the scenario starts.
    """

    def __init__(self, model: ServiceModel, load: Load, start_ms: int) -> None:
        self.model = model
        self.waiting = 0.0
        self.arrived = 0.0
        self.served = 0.0
        self.rejected = 0.0
        self.rate = 0.0
        """Requests per second over the last step."""
        self.manual_rate: float | None = None
        """Set by hand; None follows the load."""
        self._load = load
        self._start_ms = start_ms
        self._now_ms = start_ms
        self._times_ms = [start_ms]
        self._busy_s = [0.0]

    def planned_rate(self, now_ms: int) -> float:
        """Return the load's rate, whatever was set by hand."""
        return self._load.rate((now_ms - self._start_ms) / 1000)

    def advance(self, now_ms: int, ready_pods: int) -> None:
        """Let the time since the last step pass with this many ready pods."""
        step_s = (now_ms - self._now_ms) / 1000
        if step_s <= 0:
            return
        requests = self._requests(now_ms, step_s)
        self._now_ms = now_ms
        self.arrived += requests
        self.rate = requests / step_s
        done = min(self.waiting + requests, ready_pods * self.model.largest_rate * step_s)
        self.served += done
        self._queue(self.waiting + requests - done)
        busy_s = done * self.model.seconds_per_request / ready_pods if ready_pods else 0.0
        self._remember(now_ms, busy_s)

    def busy_ratio(self, from_ms: int, to_ms: int) -> float:
        """Return the share of the time between two moments that each ready pod's GPUs were busy, 0 to 1."""
        if to_ms <= from_ms:
            return 0.0
        busy_s = self._busy_until(to_ms) - self._busy_until(from_ms)
        return min(1.0, busy_s * 1000 / (to_ms - from_ms))

    def _requests(self, now_ms: int, step_s: float) -> float:
        if self.manual_rate is not None:
            return self.manual_rate * step_s
        until = self._load.requests_until
        return until((now_ms - self._start_ms) / 1000) - until(
            (self._now_ms - self._start_ms) / 1000
        )

    def _queue(self, waiting: float) -> None:
        self.rejected += max(0.0, waiting - self.model.queue_limit)
        self.waiting = min(waiting, self.model.queue_limit)

    def _remember(self, now_ms: int, busy_s: float) -> None:
        self._times_ms.append(now_ms)
        self._busy_s.append(self._busy_s[-1] + busy_s)
        if len(self._times_ms) > 2 * _HISTORY:
            del self._times_ms[:_HISTORY]
            del self._busy_s[:_HISTORY]

    def _busy_until(self, time_ms: int) -> float:
        """Busy seconds up to a moment, in a straight line between steps."""
        index = bisect_right(self._times_ms, time_ms) - 1
        if index < 0:
            return self._busy_s[0]
        if index + 1 >= len(self._times_ms):
            return self._busy_s[-1]
        before_ms, after_ms = self._times_ms[index], self._times_ms[index + 1]
        share = (time_ms - before_ms) / (after_ms - before_ms)
        return self._busy_s[index] + (self._busy_s[index + 1] - self._busy_s[index]) * share

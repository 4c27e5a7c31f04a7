"""The cost of a request to its pod, and a pod's largest rate."""

import math
from dataclasses import dataclass

from gpuscale.lab.queueing.batching import Batching
from gpuscale.lab.queueing.times import Constant, Times


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """The cost of one request to one pod."""

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
    servers: int | None = None
    """Requests that a pod serves at once, each in a time of its own; None: what GPUs and slots make of it."""
    times: Times | None = None
    """How long a server takes; None: always `least_seconds`."""
    timeout_s: float = math.inf
    """How long a client waits before it gives up."""
    batching: Batching | None = None
    """How pods work on several requests at once; `servers` and `times` are then those of a full batch."""

    @property
    def seconds_per_request(self) -> float:
        """Return the GPU seconds of one request."""
        return self.gpu_seconds / self.gpus

    @property
    def largest_rate(self) -> float:
        """Return the requests per second of a saturated pod.

        Either the GPUs are the limit (they are busy all the time) or the slots are (each is held for the
        whole time of a request): the operational bounds of a closed system.
        """
        if self.servers is not None:
            return self.servers / self.server_times.mean
        by_gpu = 1 / self.seconds_per_request
        by_slots = self.concurrency / self.least_seconds
        return min(by_gpu, by_slots)

    @property
    def least_seconds(self) -> float:
        """Return the mean duration of a request that meets no other."""
        return self.times.mean if self.times else self.seconds_per_request + self.other_seconds

    @property
    def servers_per_pod(self) -> int:
        """Return how many requests a pod serves at once: one, or its number of slots."""
        if self.servers is not None:
            return self.servers
        return 1 if self._is_gpu_bound else self.concurrency

    @property
    def server_times(self) -> Times:
        """Return the distribution of the time that a request occupies a server."""
        if self.times is not None:
            return self.times
        is_gpu = self.servers is None and self._is_gpu_bound
        return Constant(self.seconds_per_request if is_gpu else self.least_seconds)

    @property
    def after_seconds(self) -> float:
        """Return the seconds of a request after its server is free again."""
        return max(0.0, self.least_seconds - self.server_times.mean)

    @property
    def _is_gpu_bound(self) -> bool:
        return self.concurrency * self.seconds_per_request >= self.least_seconds

"""A replica policy: one replica more in each full minute, up to the HPA's maximum."""

from gpuscale.hpa.controller.policy import ReplicaRequest, resized
from gpuscale.hpa.types import Decision


class SteadyGrowth:
    def __init__(self) -> None:
        self._start_ms: int | None = None

    def decide(self, request: ReplicaRequest) -> Decision:
        if self._start_ms is None:
            self._start_ms = request.now_ms
        minutes = (request.now_ms - self._start_ms) // 60_000
        return resized(request, 1 + minutes, f"minute {minutes}")

"""The interface of replica autoscalers, and the HPA's own policy.

The caller of a policy fetches what is in a `ReplicaRequest`, asks `decide`, and applies the Decision. In
virtual time and in the live loop that is `lab.sim.autoscaler`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.hpa.deciding import decide, succeeded
from gpuscale.hpa.types import (
    DEFAULT_SETTINGS,
    ControllerSettings,
    Decision,
    Event,
    HpaState,
    Observation,
    PodInfo,
    Scale,
)


@dataclass(frozen=True, slots=True)
class ReplicaRequest:
    """The facts for one sync of one autoscaler."""

    hpa: HorizontalPodAutoscaler
    """Names the target, its bounds and its metrics."""
    scale: Scale
    pods: tuple[PodInfo, ...]
    """Those that the scale's selector finds."""
    observations: tuple[Observation, ...]
    """One for each metric of the HPA, in its order."""
    now_ms: int
    """Milliseconds since the epoch."""
    settings: ControllerSettings = DEFAULT_SETTINGS
    selecting_hpas: tuple[str, ...] = ()
    """Keys of the HPAs whose selectors find these pods, where they are several."""


class ReplicaPolicy(Protocol):
    """Decides a target's replicas. Each HPA has its own instance, which may keep state."""

    def decide(self, request: ReplicaRequest) -> Decision:
        """Return what to do now; the caller writes the scale where it changes."""


ReplicaPolicyFactory = Callable[[], ReplicaPolicy]
"""Makes the policy of one HPA; a class is one."""


class HpaPolicy:
    """The algorithm of Kubernetes' HPA controller."""

    def __init__(self) -> None:
        self._state = HpaState()

    def decide(self, request: ReplicaRequest) -> Decision:
        decision = decide(
            request.hpa,
            request.scale,
            request.pods,
            request.observations,
            self._state,
            request.now_ms,
            request.settings,
            selecting_hpas=request.selecting_hpas,
        )
        self._state = succeeded(decision).state
        return decision


def resized(request: ReplicaRequest, replicas: int, reason: str) -> Decision:
    """Return a decision for a number of replicas, for policies that have no HPA status to show.

    Args:
        request: what was asked.
        replicas: wanted; the HPA's bounds are applied here.
        reason: why, as its event says it.
    """
    current = request.scale.spec_replicas
    least = 1 if request.hpa.min_replicas is None else request.hpa.min_replicas
    wanted = min(max(replicas, least), request.hpa.max_replicas)
    state = HpaState(desired_replicas=wanted)
    is_changed = wanted != current
    event = Event("Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {reason}")
    return Decision(
        current_replicas=current,
        desired_replicas=wanted,
        reason=reason if is_changed else "",
        event=event if is_changed else None,
        warnings=(),
        metrics=(),
        explanation=(reason,),
        next_state=state,
        state_before_write=state,
    )

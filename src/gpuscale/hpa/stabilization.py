"""Holding a count against recent recommendations.

Raw recommendations are recorded, before any limit. An HPA with `behavior` moves only as far as every
recommendation of that direction's window agrees; one without takes the highest of the scale-down
window, which can also lift the count.

The windows differ at their far end: with `behavior` a record exactly as old as the window no longer
counts, without it still does.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendation,
    stabilizeRecommendationWithBehaviors).
"""

from typing import NamedTuple

from gpuscale.hpa.types import Recommendation
from gpuscale.objects.hpa import Behavior

Recommendations = tuple[Recommendation, ...]


class Stabilized(NamedTuple):
    """A count after stabilization, and the history with the new recommendation in it."""

    replicas: int
    recommendations: Recommendations


def stabilize_recommendation(
    recommendations: Recommendations, desired_replicas: int, window_s: int, now_ms: int
) -> Stabilized:
    """Return the highest recommendation of the window, as for an HPA without `behavior`."""
    cutoff_ms = now_ms - window_s * 1000
    recent = [r.replicas for r in recommendations if r.time_ms >= cutoff_ms]
    old = [i for i, r in enumerate(recommendations) if r.time_ms < cutoff_ms]
    recorded = _recorded(recommendations, old, Recommendation(desired_replicas, now_ms))
    return Stabilized(max([desired_replicas, *recent]), recorded)


def stabilize_recommendation_with_behaviors(
    recommendations: Recommendations,
    current_replicas: int,
    desired_replicas: int,
    behavior: Behavior,
    downscale_stabilization_s: int,
    now_ms: int,
) -> Stabilized:
    """Return the current count, moved as far as both windows allow."""
    up_cutoff_ms = now_ms - (behavior.scale_up.stabilization_window_s or 0) * 1000
    down_cutoff_ms = now_ms - scale_down_window_s(behavior, downscale_stabilization_s) * 1000
    up_recommendation = min(
        [desired_replicas, *(r.replicas for r in recommendations if r.time_ms > up_cutoff_ms)]
    )
    down_recommendation = max(
        [desired_replicas, *(r.replicas for r in recommendations if r.time_ms > down_cutoff_ms)]
    )
    recommendation = max(current_replicas, up_recommendation)
    recommendation = min(recommendation, down_recommendation)
    cutoff_ms = min(up_cutoff_ms, down_cutoff_ms)
    old = [i for i, r in enumerate(recommendations) if r.time_ms < cutoff_ms]
    recorded = _recorded(recommendations, old, Recommendation(desired_replicas, now_ms))
    return Stabilized(recommendation, recorded)


def scale_down_window_s(behavior: Behavior, downscale_stabilization_s: int) -> int:
    """Return the scale-down window: the HPA's own, or the controller's."""
    window_s = behavior.scale_down.stabilization_window_s
    return downscale_stabilization_s if window_s is None else window_s


def _recorded(
    recommendations: Recommendations, old: list[int], new: Recommendation
) -> Recommendations:
    """Return the history with the new record in the last place that is too old, or at the end."""
    if not old:
        return (*recommendations, new)
    return (*recommendations[: old[-1]], new, *recommendations[old[-1] + 1 :])

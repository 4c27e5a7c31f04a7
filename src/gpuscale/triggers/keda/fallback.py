"""KEDA's fallback for a failing trigger's metric.

Failures in a row are counted by metric, by polls and by the HPA's questions alike.

Source: KEDA v2.21 pkg/fallback/fallback.go.
Known difference: KEDA keeps the count in the ScaledObject's status and in a copy of the object that the HPA's
    questions use; here it is one count. The two differ only until the next failure or success is written.
"""

from gpuscale.base.objects.hpa import MetricTarget
from gpuscale.base.objects.scaled_object import Fallback, FallbackBehavior


class Health:
    """The consecutive failures of a ScaledObject's metrics.

    Args:
        fallback: of the ScaledObject; None counts nothing.
    """

    def __init__(self, fallback: Fallback | None) -> None:
        self._fallback = fallback
        self._failures: dict[str, int] = {}

    def succeeded(self, metric: str) -> None:
        if self._fallback is not None:
            self._failures[metric] = 0

    def failed(self, metric: str) -> bool:
        """Count a failure; return whether the fallback applies now."""
        if self._fallback is None:
            return False
        self._failures[metric] = self._failures.get(metric, 0) + 1
        return self._exceeds(metric)

    def failures(self, metric: str) -> int:
        """Return how often a metric failed in a row."""
        return self._failures.get(metric, 0)

    @property
    def is_falling_back(self) -> bool:
        """Whether the fallback applies to any metric, as the condition `Fallback` says."""
        return any(map(self._exceeds, self._failures))

    def _exceeds(self, metric: str) -> bool:
        fallback = self._fallback
        return fallback is not None and self._failures[metric] > fallback.failure_threshold


def fallback_replicas(fallback: Fallback, current_replicas: int) -> int:
    """Return the fallback's replica count."""
    match fallback.behavior:
        case FallbackBehavior.CURRENT:
            return current_replicas
        case FallbackBehavior.CURRENT_IF_HIGHER:
            return max(current_replicas, fallback.replicas)
        case FallbackBehavior.CURRENT_IF_LOWER:
            return min(current_replicas, fallback.replicas)
        case _:
            return fallback.replicas


def fallback_milli(
    fallback: Fallback, target: MetricTarget, current_replicas: int, ready_pods: int
) -> int | None:
    """Return the metric value in thousandths that makes the HPA compute the fallback's count.

    Args:
        fallback: of the ScaledObject.
        target: of the failing metric.
        current_replicas: of the scale target.
        ready_pods: of the scale target; a Value is held against the target once for each of them.

    Returns:
        None where there is no such value: a Value with no ready pod.
    """
    replicas = float(fallback_replicas(fallback, current_replicas))
    if target.average_value is not None:
        return int(float(target.average_value) * 1000 * replicas)
    if target.value is None or ready_pods == 0:
        return None
    return int(float(target.value) * 1000 * (replicas / ready_pods))

"""Words for the steps between the metrics' proposal and the written count: windows, rates, bounds.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (normalizeDesiredReplicas,
    normalizeDesiredReplicasWithBehaviors, convertDesiredReplicasWithRules,
    convertDesiredReplicasWithBehaviorRate).
"""

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.hpa import Behavior, HorizontalPodAutoscaler, SelectPolicy
from gpuscale.hpa.kernel.memory import Limits
from gpuscale.hpa.kernel.syncing import (
    DOWN_LIMIT,
    DOWN_STABILIZED,
    IN_RANGE,
    READY_FOR_SCALE,
    TOO_FEW,
    TOO_MANY,
    UP_LIMIT,
    UP_STABILIZED,
    Normalized,
)
from gpuscale.hpa.terms.conditions import (
    DESIRED_WITHIN_RANGE,
    READY_FOR_NEW_SCALE,
    SCALE_DOWN_LIMIT,
    SCALE_DOWN_STABILIZED,
    SCALE_UP_LIMIT,
    SCALE_UP_STABILIZED,
    TOO_FEW_REPLICAS,
    TOO_MANY_REPLICAS,
    Verdict,
)

_ABLE = {
    READY_FOR_SCALE: READY_FOR_NEW_SCALE,
    UP_STABILIZED: SCALE_UP_STABILIZED,
    DOWN_STABILIZED: SCALE_DOWN_STABILIZED,
}
_LIMITED = {
    IN_RANGE: DESIRED_WITHIN_RANGE,
    TOO_FEW: TOO_FEW_REPLICAS,
    TOO_MANY: TOO_MANY_REPLICAS,
    UP_LIMIT: SCALE_UP_LIMIT,
    DOWN_LIMIT: SCALE_DOWN_LIMIT,
}


def verdicts(normalized: Normalized) -> tuple[Verdict, Verdict]:
    """Return the conditions AbleToScale and ScalingLimited."""
    return _ABLE[normalized.able], _LIMITED[normalized.limited]


def normalized_steps(
    normalized: Normalized, limits: Limits, hpa: HorizontalPodAutoscaler
) -> tuple[str, ...]:
    """Return a sentence for each rule that changed the count."""
    steps: list[str] = []
    count, limited = normalized.bounded, normalized.limited
    if normalized.able != READY_FOR_SCALE:
        which = "highest"
        window_ms = limits.down.window_ms if limits.has_behavior else limits.window_ms
        if normalized.able == UP_STABILIZED:
            which, window_ms = "lowest", limits.up.window_ms
        window = format_duration(window_ms)
        steps.append(
            f"Stabilization keeps {normalized.held}, the {which} asked for within the last {window}."
        )
    if limited == TOO_FEW:
        steps.append(f"Raised to minReplicas, {count}.")
    elif limited == TOO_MANY:
        steps.append(f"Cut to maxReplicas, {count}.")
    elif limited == UP_LIMIT:
        steps.append(_rate("Scale-up", count, hpa.behavior))
    elif limited == DOWN_LIMIT:
        steps.append(_rate("Scale-down", count, hpa.behavior))
    if normalized.replicas != count:
        steps.append(f"Raised from zero to minReplicas, {normalized.replicas}.")
    return tuple(steps)


def _rate(direction: str, limit: int, behavior: Behavior | None) -> str:
    if behavior is None:
        return f"{direction} is limited to {limit}: no more than double, or 4, in one step."
    rules = behavior.scale_up if direction == "Scale-up" else behavior.scale_down
    if rules.select_policy is SelectPolicy.DISABLED:
        return f"{direction} is disabled by selectPolicy, so the count stays at {limit}."
    return f"{direction} is limited to {limit} by the policies of spec.behavior."

"""The conditions in an HPA's status.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (setConditionInList,
    removeCondition).
"""

from dataclasses import dataclass, replace

from gpuscale.hpa.types import Condition, Decision

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"
_NEEDED = frozenset({ABLE_TO_SCALE, SCALING_ACTIVE})
"""Each of these is False only where the controller has no count."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition before its transition time is known."""

    type: str
    is_true: bool
    reason: str
    message: str


def set_condition(
    conditions: tuple[Condition, ...], verdict: Verdict, now_ms: int
) -> tuple[Condition, ...]:
    """Return the conditions with one set; a new type goes to the end."""
    status = "True" if verdict.is_true else "False"
    existing = next((c for c in conditions if c.type == verdict.type), None)
    if existing is None:
        new = Condition(verdict.type, status, verdict.reason, verdict.message, now_ms)
        return (*conditions, new)
    changed_ms = existing.last_transition_ms if existing.status == status else now_ms
    updated = replace(
        existing,
        status=status,
        reason=verdict.reason,
        message=verdict.message,
        last_transition_ms=changed_ms,
    )
    return tuple(updated if c.type == verdict.type else c for c in conditions)


def set_conditions(
    conditions: tuple[Condition, ...], verdicts: tuple[Verdict, ...], now_ms: int
) -> tuple[Condition, ...]:
    """Return the conditions with several set, one after the other."""
    for verdict in verdicts:
        conditions = set_condition(conditions, verdict, now_ms)
    return conditions


def remove_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Return the conditions without the one of this type."""
    return tuple(condition for condition in conditions if condition.type != kind)


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Return whether a condition exists and is True."""
    return any(c.type == kind and c.status == "True" for c in conditions)


def could_decide(decision: Decision) -> bool:
    """Return whether the controller could compute a count."""
    return decision.rescale or not any(
        c.type in _NEEDED and c.status == "False" for c in decision.conditions
    )


SUCCEEDED_GET_SCALE = Verdict(
    ABLE_TO_SCALE,
    is_true=True,
    reason="SucceededGetScale",
    message="the HPA controller was able to get the target's current scale",
)
READY_FOR_NEW_SCALE = Verdict(
    ABLE_TO_SCALE,
    is_true=True,
    reason="ReadyForNewScale",
    message="recommended size matches current size",
)
SCALE_UP_STABILIZED = Verdict(
    ABLE_TO_SCALE,
    is_true=True,
    reason="ScaleUpStabilized",
    message="recent recommendations were lower than current one, "
    "applying the lowest recent recommendation",
)
SCALE_DOWN_STABILIZED = Verdict(
    ABLE_TO_SCALE,
    is_true=True,
    reason="ScaleDownStabilized",
    message="recent recommendations were higher than current one, "
    "applying the highest recent recommendation",
)
SCALING_DISABLED = Verdict(
    SCALING_ACTIVE,
    is_true=False,
    reason="ScalingDisabled",
    message="scaling is disabled since the replica count of the target is zero",
)
MISSING_SELECTOR = Verdict(
    SCALING_ACTIVE,
    is_true=False,
    reason="InvalidSelector",
    message="the HPA target's scale is missing a selector",
)
DESIRED_WITHIN_RANGE = Verdict(
    SCALING_LIMITED,
    is_true=False,
    reason="DesiredWithinRange",
    message="the desired count is within the acceptable range",
)
TOO_FEW_REPLICAS = Verdict(
    SCALING_LIMITED,
    is_true=True,
    reason="TooFewReplicas",
    message="the desired replica count is less than the minimum replica count",
)
TOO_MANY_REPLICAS = Verdict(
    SCALING_LIMITED,
    is_true=True,
    reason="TooManyReplicas",
    message="the desired replica count is more than the maximum replica count",
)
SCALE_UP_LIMIT = Verdict(
    SCALING_LIMITED,
    is_true=True,
    reason="ScaleUpLimit",
    message="the desired replica count is increasing faster than the maximum scale rate",
)
SCALE_DOWN_LIMIT = Verdict(
    SCALING_LIMITED,
    is_true=True,
    reason="ScaleDownLimit",
    message="the desired replica count is decreasing faster than the maximum scale rate",
)
SCALED_TO_ZERO_BY_CONTROLLER = Verdict(
    SCALED_TO_ZERO,
    is_true=True,
    reason="ScaledToZero",
    message="the HPA controller scaled the workload to zero",
)
NOT_SCALED_TO_ZERO = Verdict(
    SCALED_TO_ZERO,
    is_true=False,
    reason="NotScaledToZero",
    message="the HPA controller did not scale the workload to zero",
)


def succeeded_rescale(replicas: int) -> Verdict:
    """Return the condition after the scale was written."""
    message = f"the HPA controller was able to update the target scale to {replicas}"
    return Verdict(ABLE_TO_SCALE, is_true=True, reason="SucceededRescale", message=message)


def failed_get_scale(error: str) -> Verdict:
    """Return the condition after the scale could not be read."""
    message = f"the HPA controller was unable to get the target's current scale: {error}"
    return Verdict(ABLE_TO_SCALE, is_true=False, reason="FailedGetScale", message=message)


def failed_update_scale(error: str) -> Verdict:
    """Return the condition after the scale could not be written."""
    message = f"the HPA controller was unable to update the target scale: {error}"
    return Verdict(ABLE_TO_SCALE, is_true=False, reason="FailedUpdateScale", message=message)


def valid_metric_found(metric: str) -> Verdict:
    """Return the condition after a count could be computed."""
    message = f"the HPA was able to successfully calculate a replica count from {metric}"
    return Verdict(SCALING_ACTIVE, is_true=True, reason="ValidMetricFound", message=message)


def unable_to_compute(reason: str, error: str) -> Verdict:
    """Return the condition after no count could be computed from the metrics."""
    message = f"the HPA was unable to compute the replica count: {error}"
    return Verdict(SCALING_ACTIVE, is_true=False, reason=reason, message=message)


def selector_refused(reason: str, error: str) -> Verdict:
    """Return the condition for a selector that can't be used."""
    return Verdict(SCALING_ACTIVE, is_true=False, reason=reason, message=error)

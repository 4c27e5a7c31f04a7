"""Whether KEDA itself changes the count: from zero or the idle count to work, and back after the cooldown.

Source: KEDA v2.21 pkg/scaling/executor/scale_scaledobjects.go (RequestScale, scaleFromZeroOrIdle,
    scaleToZeroOrIdle).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.hpa import Event
from gpuscale.triggers.keda.counts import NO_IDLE, has_cooled_down, may_rest, woken

ACTIVATED = "KEDAScaleTargetActivated"
DEACTIVATED = "KEDAScaleTargetDeactivated"
RAISED = "MinReplicaCount"
"""What a raise to minReplicaCount is called here: KEDA changes the count and emits no event."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The triggers' activity."""

    is_active: bool
    is_error: bool
    """Whether a trigger failed, and no fallback stands in."""
    active_metrics: Sequence[str] = ()
    """Names of the metrics that made it active."""


@dataclass(frozen=True, slots=True)
class ActivationTimes:
    """Times of a ScaledObject; both in whole seconds, as the API server keeps them."""

    created_ms: int
    last_active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ActivationStep:
    """The decision of one poll or push."""

    replicas: int | None
    """To write to the scale; None leaves it alone."""
    event: Event | None
    active: tuple[str, str]
    """Status and reason of the condition Active; both empty while it is paused."""
    ready: tuple[str, str]
    """Status and reason of the condition Ready."""
    last_active_ms: int | None
    """As the status has it from now on."""


_READY = ("True", "ScaledObjectReady")
_ACTIVE = ("True", "ScalerActive")
_INACTIVE = ("False", "ScalerNotActive")
_COOLING = ("False", "ScalerCooldown")


def request_scale(
    scaled: ScaledObject, status: ActivationTimes, current: int, activity: Activity, now_ms: int
) -> ActivationStep:
    """Return what KEDA does after a poll or a push.

    Args:
        scaled: the ScaledObject.
        status: its times.
        current: replicas of the scale target.
        activity: what the triggers say.
        now_ms: milliseconds since the epoch.
    """
    kept = status.last_active_ms
    target = _target(scaled)
    idle = NO_IDLE if scaled.idle is None else scaled.idle
    if scaled.is_paused:
        return ActivationStep(None, None, ("", ""), _READY, kept)
    if activity.is_active or scaled.is_forced_active:
        replicas = woken(current, scaled.least, idle)
        if replicas != current and scaled.pauses_scale_out:
            return ActivationStep(None, None, _ACTIVE, _READY, kept)
        if replicas != current:
            cause = (
                "caused by forced activation annotation"
                if scaled.is_forced_active
                else f"triggered by {';'.join(activity.active_metrics)}"
            )
            text = f"Scaled {target} from {current} to {replicas}, {cause}"
            event = Event("Normal", ACTIVATED, text)
            return ActivationStep(replicas, event, _ACTIVE, _READY, _whole_second(now_ms))
        if activity.is_error:
            return ActivationStep(None, None, _ACTIVE, ("Unknown", "PartialTriggerError"), kept)
        return ActivationStep(None, None, _ACTIVE, _READY, _whole_second(now_ms))
    if activity.is_error and scaled.fallback is None:
        return ActivationStep(None, None, _INACTIVE, ("False", "TriggerError"), kept)
    if activity.is_error and scaled.fallback is not None and scaled.fallback.replicas != 0:
        return ActivationStep(None, None, _INACTIVE, _READY, kept)
    if may_rest(current, scaled.least, idle):
        if scaled.pauses_scale_in:
            return ActivationStep(None, None, _INACTIVE, _READY, kept)
        since_ms, cooldown_s = kept, scaled.cooldown_s
        if since_ms is None:
            since_ms, cooldown_s = status.created_ms, scaled.initial_cooldown_s
        if not has_cooled_down(since_ms, cooldown_s, now_ms):
            return ActivationStep(None, None, _COOLING, _READY, kept)
        replicas = scaled.least if scaled.idle is None else scaled.idle
        text = f"Deactivated {target} from {current} to {replicas}"
        return ActivationStep(replicas, Event("Normal", DEACTIVATED, text), _INACTIVE, _READY, kept)
    if scaled.idle is None and current < scaled.least:
        text = f"Set {target} from {current} to minReplicaCount, {scaled.least}"
        return ActivationStep(scaled.least, Event("Normal", RAISED, text), _INACTIVE, _READY, kept)
    return ActivationStep(None, None, _INACTIVE, _READY, kept)


def _target(scaled: ScaledObject) -> str:
    where = f"{scaled.metadata.namespace}/{scaled.target_name}"
    return f"{scaled.target_api_version}.{scaled.target_kind} {where}"


def _whole_second(time_ms: int) -> int:
    return time_ms // 1000 * 1000

"""From what the metrics ask for to what may be written: stabilization, rate limits, bounds.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (normalizeDesiredReplicas,
    normalizeDesiredReplicasWithBehaviors, convertDesiredReplicasWithRules,
    convertDesiredReplicasWithBehaviorRate).
"""

from dataclasses import dataclass

from gpuscale.core.golang.durations import format_duration
from gpuscale.hpa.conditions import (
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
from gpuscale.hpa.policies import (
    ScaleHistory,
    scale_down_limit_with_rules,
    scale_up_limit,
    scale_up_limit_with_rules,
)
from gpuscale.hpa.stabilization import (
    Recommendations,
    scale_down_window_s,
    stabilize_recommendation,
    stabilize_recommendation_with_behaviors,
)
from gpuscale.hpa.types import ControllerSettings, HpaState
from gpuscale.objects.hpa import Behavior, HorizontalPodAutoscaler, SelectPolicy


@dataclass(frozen=True, slots=True)
class NormalizationArg:
    """A raw desired count, and what bounds it."""

    hpa: HorizontalPodAutoscaler
    min_replicas: int
    current_replicas: int
    desired_replicas: int
    state: HpaState
    settings: ControllerSettings
    now_ms: int

    @property
    def max_replicas(self) -> int:
        return self.hpa.max_replicas


@dataclass(frozen=True, slots=True)
class Normalized:
    """The count that may be written, and why it is that."""

    replicas: int
    recommendations: Recommendations
    verdicts: tuple[Verdict, Verdict]
    """AbleToScale, then ScalingLimited."""
    explanation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Converted:
    """A count after rate limits and bounds."""

    replicas: int
    verdict: Verdict
    explanation: tuple[str, ...] = ()


def normalize_desired_replicas(arg: NormalizationArg) -> Normalized:
    """Return the raw desired count stabilized, limited in rate and held within the bounds."""
    behavior = arg.hpa.behavior
    if behavior is None:
        return _normalized_without_behavior(arg)
    return _normalized_with_behavior(arg, behavior)


def _normalized_without_behavior(arg: NormalizationArg) -> Normalized:
    window_s = arg.settings.downscale_stabilization_s
    stabilized, recommendations = stabilize_recommendation(
        arg.state.recommendations, arg.desired_replicas, window_s, arg.now_ms
    )
    converted = _converted_with_rules(arg, stabilized)
    if stabilized == arg.desired_replicas:
        return _normalized(converted, recommendations, READY_FOR_NEW_SCALE)
    step = _highest_recent(stabilized, window_s)
    return _normalized(converted, recommendations, SCALE_DOWN_STABILIZED, step)


def _normalized_with_behavior(arg: NormalizationArg, behavior: Behavior) -> Normalized:
    stabilized, recommendations = stabilize_recommendation_with_behaviors(
        arg.state.recommendations,
        arg.current_replicas,
        arg.desired_replicas,
        behavior,
        arg.settings.downscale_stabilization_s,
        arg.now_ms,
    )
    converted = _converted_with_behavior_rate(arg, behavior, stabilized)
    if stabilized == arg.desired_replicas:
        return _normalized(converted, recommendations, READY_FOR_NEW_SCALE)
    if arg.desired_replicas >= arg.current_replicas:
        step = _lowest_recent(stabilized, behavior.scale_up.stabilization_window_s or 0)
        return _normalized(converted, recommendations, SCALE_UP_STABILIZED, step)
    window_s = scale_down_window_s(behavior, arg.settings.downscale_stabilization_s)
    step = _highest_recent(stabilized, window_s)
    return _normalized(converted, recommendations, SCALE_DOWN_STABILIZED, step)


def _normalized(
    converted: _Converted, recommendations: Recommendations, able: Verdict, *steps: str
) -> Normalized:
    return Normalized(
        converted.replicas,
        recommendations,
        (able, converted.verdict),
        (*steps, *converted.explanation),
    )


def _converted_with_rules(arg: NormalizationArg, desired_replicas: int) -> _Converted:
    limit = scale_up_limit(arg.current_replicas)
    cap = min(arg.max_replicas, limit)
    if desired_replicas < arg.min_replicas:
        return _too_few(arg)
    if desired_replicas <= cap:
        return _Converted(desired_replicas, DESIRED_WITHIN_RANGE)
    if arg.max_replicas <= limit:
        return _too_many(arg)
    why = "no more than double, or 4, in one step"
    return _Converted(cap, SCALE_UP_LIMIT, (f"Scale-up is limited to {cap}: {why}.",))


def _converted_with_behavior_rate(
    arg: NormalizationArg, behavior: Behavior, desired_replicas: int
) -> _Converted:
    history = ScaleHistory(arg.state.scale_up_events, arg.state.scale_down_events, arg.now_ms)
    if desired_replicas > arg.current_replicas:
        limit = scale_up_limit_with_rules(arg.current_replicas, behavior.scale_up, history)
        return _limited_up(arg, desired_replicas, max(limit, arg.current_replicas), behavior)
    if desired_replicas < arg.current_replicas:
        limit = scale_down_limit_with_rules(arg.current_replicas, behavior.scale_down, history)
        return _limited_down(arg, desired_replicas, min(limit, arg.current_replicas), behavior)
    return _Converted(desired_replicas, DESIRED_WITHIN_RANGE)


def _limited_up(
    arg: NormalizationArg, desired_replicas: int, limit: int, behavior: Behavior
) -> _Converted:
    if desired_replicas <= min(limit, arg.max_replicas):
        return _Converted(desired_replicas, DESIRED_WITHIN_RANGE)
    if arg.max_replicas <= limit:
        return _too_many(arg)
    step = _rate_step("Scale-up", limit, behavior.scale_up.select_policy)
    return _Converted(limit, SCALE_UP_LIMIT, (step,))


def _limited_down(
    arg: NormalizationArg, desired_replicas: int, limit: int, behavior: Behavior
) -> _Converted:
    if desired_replicas >= max(limit, arg.min_replicas):
        return _Converted(desired_replicas, DESIRED_WITHIN_RANGE)
    if arg.min_replicas >= limit:
        return _too_few(arg)
    step = _rate_step("Scale-down", limit, behavior.scale_down.select_policy)
    return _Converted(limit, SCALE_DOWN_LIMIT, (step,))


def _too_few(arg: NormalizationArg) -> _Converted:
    step = f"Raised to minReplicas, {arg.min_replicas}."
    return _Converted(arg.min_replicas, TOO_FEW_REPLICAS, (step,))


def _too_many(arg: NormalizationArg) -> _Converted:
    step = f"Cut to maxReplicas, {arg.max_replicas}."
    return _Converted(arg.max_replicas, TOO_MANY_REPLICAS, (step,))


def _rate_step(direction: str, limit: int, select_policy: SelectPolicy) -> str:
    if select_policy is SelectPolicy.DISABLED:
        return f"{direction} is disabled by selectPolicy, so the count stays at {limit}."
    return f"{direction} is limited to {limit} by the policies of spec.behavior."


def _highest_recent(replicas: int, window_s: int) -> str:
    window = format_duration(window_s * 1000)
    return f"Stabilization keeps {replicas}, the highest asked for within the last {window}."


def _lowest_recent(replicas: int, window_s: int) -> str:
    window = format_duration(window_s * 1000)
    return f"Stabilization keeps {replicas}, the lowest asked for within the last {window}."

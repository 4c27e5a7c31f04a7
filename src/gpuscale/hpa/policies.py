"""How far the count may move now.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go
    (calculateScaleUpLimitWithScalingRules, calculateScaleDownLimitWithBehaviors,
    calculateScaleUpLimit, storeScaleEvent, markScaleEventsOutdated).
"""

from dataclasses import dataclass, replace

from gpuscale.hpa.replicas.arithmetic import MAX_INT32, ceil_replicas
from gpuscale.hpa.types import HpaState, ScaleEvent
from gpuscale.objects.hpa import Behavior, PolicyType, ScalingPolicy, ScalingRules, SelectPolicy

SCALE_UP_LIMIT_FACTOR = 2
SCALE_UP_LIMIT_MINIMUM = 4

ScaleEvents = tuple[ScaleEvent, ...]


@dataclass(frozen=True, slots=True)
class ScaleHistory:
    """The changes of both directions that policies look back on."""

    scale_up_events: ScaleEvents
    scale_down_events: ScaleEvents
    now_ms: int

    def period_start_replicas(self, current_replicas: int, period_s: int) -> int:
        """Return the count at the start of the period, going by the changes since."""
        added = _replicas_change(self.scale_up_events, period_s, self.now_ms)
        deleted = _replicas_change(self.scale_down_events, period_s, self.now_ms)
        return current_replicas - added + deleted


def _replicas_change(events: ScaleEvents, period_s: int, now_ms: int) -> int:
    """Sum the changes strictly younger than the period."""
    cutoff_ms = now_ms - period_s * 1000
    return sum(event.replica_change for event in events if event.time_ms > cutoff_ms)


def scale_up_limit(current_replicas: int) -> int:
    """Return the highest count that an HPA without `behavior` may reach in one step."""
    return max(SCALE_UP_LIMIT_FACTOR * current_replicas, SCALE_UP_LIMIT_MINIMUM)


def scale_up_limit_with_rules(
    current_replicas: int, rules: ScalingRules, history: ScaleHistory
) -> int:
    """Return the highest count that the policies allow; it may lie below the current one."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current_replicas
    limits = [_highest(policy, current_replicas, history) for policy in rules.policies]
    if rules.select_policy is SelectPolicy.MIN:
        return min(limits, default=MAX_INT32)
    return max(limits, default=-MAX_INT32)


def scale_down_limit_with_rules(
    current_replicas: int, rules: ScalingRules, history: ScaleHistory
) -> int:
    """Return the lowest count that the policies allow; it may be negative, or above the current."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current_replicas
    limits = [_lowest(policy, current_replicas, history) for policy in rules.policies]
    if rules.select_policy is SelectPolicy.MIN:
        return max(limits, default=-MAX_INT32)
    return min(limits, default=MAX_INT32)


def _highest(policy: ScalingPolicy, current_replicas: int, history: ScaleHistory) -> int:
    start = history.period_start_replicas(current_replicas, policy.period_s)
    if policy.type is PolicyType.PODS:
        return start + policy.value
    return ceil_replicas(float(start) * (1 + float(policy.value) / 100))


def _lowest(policy: ScalingPolicy, current_replicas: int, history: ScaleHistory) -> int:
    start = history.period_start_replicas(current_replicas, policy.period_s)
    if policy.type is PolicyType.PODS:
        return start - policy.value
    return int(float(start) * (1 - float(policy.value) / 100))


def with_scale_event(
    state: HpaState,
    behavior: Behavior | None,
    previous_replicas: int,
    new_replicas: int,
    now_ms: int,
) -> HpaState:
    """Return the state with a written change recorded; without `behavior` nothing is."""
    if behavior is None:
        return state
    event = ScaleEvent(abs(new_replicas - previous_replicas), now_ms)
    if new_replicas > previous_replicas:
        events = _stored(state.scale_up_events, event, behavior.scale_up)
        return replace(state, scale_up_events=events)
    events = _stored(state.scale_down_events, event, behavior.scale_down)
    return replace(state, scale_down_events=events)


def _stored(events: ScaleEvents, event: ScaleEvent, rules: ScalingRules) -> ScaleEvents:
    """Return the events with a new one in the last outdated place, or at the end."""
    longest_period_s = max((policy.period_s for policy in rules.policies), default=0)
    cutoff_ms = event.time_ms - longest_period_s * 1000
    marked = [replace(e, outdated=e.outdated or e.time_ms < cutoff_ms) for e in events]
    outdated = [i for i, e in enumerate(marked) if e.outdated]
    if outdated:
        marked[outdated[-1]] = event
    else:
        marked.append(event)
    return tuple(marked)

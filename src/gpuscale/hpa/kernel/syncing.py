"""One sync of an HPA: from the metrics' proposals to the written count.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler,
    normalizeDesiredReplicas, normalizeDesiredReplicasWithBehaviors, convertDesiredReplicasWithRules,
    convertDesiredReplicasWithBehaviorRate).
"""

from typing import NamedTuple

from gpuscale.hpa.kernel.memory import (
    Cells,
    Limits,
    begin,
    highest_recent,
    moved_within_windows,
    record_change,
    scale_down_limit,
    scale_up_limit,
)
from gpuscale.hpa.kernel.numbers import int32_of
from gpuscale.hpa.kernel.proposals import Choice, is_blocked

PAUSED, ABOVE_MAX, BELOW_MIN, MEASURED = range(4)
"""What a sync does: nothing, since the target rests at 0; it repairs a count outside the bounds, without a
look at metrics; or it follows the metrics."""
READY_FOR_SCALE, UP_STABILIZED, DOWN_STABILIZED = range(3)
"""The condition AbleToScale."""
IN_RANGE, TOO_FEW, TOO_MANY, UP_LIMIT, DOWN_LIMIT = range(5)
"""The condition ScalingLimited: not, by the bounds, or by the rate."""


class Normalized(NamedTuple):
    """A count within all limits, and which limits changed it."""

    replicas: int
    asked: int
    """By the metrics; never below 0."""
    held: int
    """After stabilization."""
    able: int
    limited: int
    bounded: int
    """After bounds and rates; a target at 0 is raised from there to its minimum."""
    place: int
    """Of the new recommendation in memory."""


def phase(least: int, most: int, current: int, may_leave_zero: int) -> int:
    """Return the phase of this sync: PAUSED, ABOVE_MAX, BELOW_MIN or MEASURED."""
    if current == 0:
        return MEASURED if may_leave_zero else PAUSED
    if current > most:
        return ABOVE_MAX
    return BELOW_MIN if current < least else MEASURED


def normalized(limits: Limits, memory: Cells, current: int, asked: int, now_ms: int) -> Normalized:
    """Return the proposal after stabilization, rate limits and bounds."""
    asked = max(0, asked)
    if limits.has_behavior:
        held = moved_within_windows(
            memory, current, asked, limits.up.window_ms, limits.down.window_ms, now_ms
        )
        replicas, limited = _within_rate(limits, memory, current, held.replicas, now_ms)
    else:
        held = highest_recent(memory, asked, limits.window_ms, now_ms)
        replicas, limited = _within_doubling(limits, current, held.replicas)
    able = READY_FOR_SCALE
    if held.replicas != asked:
        goes_up = limits.has_behavior and asked >= current
        able = UP_STABILIZED if goes_up else DOWN_STABILIZED
    bounded = replicas
    if current == 0 and replicas < limits.least:
        replicas = limits.least
    return Normalized(replicas, asked, held.replicas, able, limited, bounded, held.place)


def _within_doubling(limits: Limits, current: int, wanted: int) -> tuple[int, int]:
    limit = doubling_limit(current)
    if wanted < limits.least:
        return limits.least, TOO_FEW
    if wanted <= min(limits.most, limit):
        return wanted, IN_RANGE
    if limits.most <= limit:
        return limits.most, TOO_MANY
    return limit, UP_LIMIT


def doubling_limit(current: int) -> int:
    """Return the highest count that an HPA without `behavior` may reach in one step."""
    return int32_of(max(2.0 * float(current), 4.0))


def _within_rate(
    limits: Limits, memory: Cells, current: int, wanted: int, now_ms: int
) -> tuple[int, int]:
    if wanted > current:
        limit = max(scale_up_limit(memory, limits, current, now_ms), current)
        if wanted <= min(limit, limits.most):
            return wanted, IN_RANGE
        return (limits.most, TOO_MANY) if limits.most <= limit else (limit, UP_LIMIT)
    if wanted < current:
        limit = min(scale_down_limit(memory, limits, current, now_ms), current)
        if wanted >= max(limit, limits.least):
            return wanted, IN_RANGE
        return (limits.least, TOO_FEW) if limits.least >= limit else (limit, DOWN_LIMIT)
    return wanted, IN_RANGE


def sync(
    limits: Limits, memory: Cells, current: int, choice: Choice, may_leave_zero: int, now_ms: int
) -> int:
    """Return the count after one sync that can write it, and remember the sync.

    This is what a simulator asks, once a service and step. `decide` calls the same parts one by one, since
    it also says why.

    Args:
        limits: of the HPA.
        memory: of the HPA; written to.
        current: replicas of the target.
        choice: what the metrics ask for; not looked at where the phase is not MEASURED.
        may_leave_zero: 1 where the controller itself took the target to 0 and may wake it.
        now_ms: whole milliseconds; only differences matter.
    """
    begin(memory, current, now_ms)
    step = phase(limits.least, limits.most, current, may_leave_zero)
    replicas = current
    if step == ABOVE_MAX:
        replicas = limits.most
    elif step == BELOW_MIN:
        replicas = limits.least
    elif step == MEASURED and not is_blocked(choice, current):
        replicas = normalized(limits, memory, current, choice.replicas, now_ms).replicas
    if replicas != current and limits.has_behavior:
        record_change(memory, limits, current, replicas, now_ms)
    return replicas

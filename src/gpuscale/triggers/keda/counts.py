"""The replica counts that KEDA itself sets: idle, zero and woken.

In the part of Python that numba compiles, because policies of `plan` use it as well.

Source: KEDA v2.21 pkg/scaling/executor/scale_scaledobjects.go (RequestScale, scaleToZeroOrIdle).
"""

NO_IDLE = -1
"""In place of idleReplicaCount where there is none."""


def woken(current: int, least: int, idle: int) -> int:
    """Return the count that KEDA scales an active target to; `current` if that is up to the HPA."""
    if current == 0 or (idle != NO_IDLE and current < least):
        return max(least, 1)
    return current


def may_rest(current: int, least: int, idle: int) -> bool:
    """Return whether an inactive target is scaled down after its cooldown."""
    return (idle != NO_IDLE and current > idle) or (current > 0 and least == 0)


def has_cooled_down(since_ms: int, cooldown_s: int, now_ms: int) -> bool:
    """Return whether a cooldown that began at a time is over."""
    return since_ms + cooldown_s * 1000 < now_ms

"""A forgetting histogram of shortfalls, and the margin that would have avoided most of them.

Bins are narrow near 0 and grow by 5 %, so that one histogram holds tenths of a pod and thousands of them.
"""

import math

from gpuscale.triggers.policies.policy import Numbers

BINS = 300
_ZERO = 60
"""Bins below 0, for capacity that was too high throughout."""
_FINEST = 0.1
_GROWTH = math.log(1.05)


def count_shortfall(memory: Numbers, first: int, shortfall: float, weight: float) -> None:
    """Count one step.

    Args:
        memory: the policy's.
        first: where the histogram's BINS numbers begin in it.
        shortfall: demand less capacity, in pods.
        weight: of the step; 1 where steps are counted.
    """
    distance = int(math.log(1 + abs(shortfall) / _FINEST) / _GROWTH)
    if shortfall >= 0:
        memory[first + min(_ZERO + distance, BINS - 1)] += weight
    else:
        memory[first + max(_ZERO - 1 - distance, 0)] += weight


def forget_shortfalls(memory: Numbers, first: int, keep: float) -> None:
    """Multiply all counts by this share."""
    for at in range(BINS):
        memory[first + at] *= keep


def least_margin(memory: Numbers, first: int, allowed: float) -> float:
    """Return the smallest margin, in pods, that leaves at most `allowed` of the weight short.

    It is a bin's upper end, so it is too high rather than too low; less than 0 where capacity was too high.
    """
    above, at = 0.0, BINS - 1
    while at > 0:
        above += memory[first + at]
        if above > allowed:
            break
        at -= 1
    if at >= _ZERO:
        return _FINEST * (math.exp((at + 1 - _ZERO) * _GROWTH) - 1)
    return -_FINEST * (math.exp((_ZERO - 1 - at) * _GROWTH) - 1)

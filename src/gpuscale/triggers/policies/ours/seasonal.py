"""What the same time of earlier days needed, corrected by how today compares, and never less than now."""

import math

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_DAYS = 14
_BUCKETS = 288
"""Of five minutes, in a day; the highest demand of each is kept."""
_FIRST = 1
_FILLED = _FIRST + _DAYS * _BUCKETS


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    headroom, spare, days = settings[0], settings[1], int(settings[2])
    now_s = seen.step * seen.step_s
    day = int(now_s // 86_400)
    bucket = int(now_s % 86_400 // 300)
    at = _FIRST + day % _DAYS * _BUCKETS + bucket
    if memory[_FILLED + bucket] != day + 1:
        memory[_FILLED + bucket] = day + 1
        memory[at] = 0.0
    memory[at] = max(memory[at], seen.demand)
    ahead = math.ceil((seen.start_up_s + seen.lag_s) / 300)
    expected = 0.0
    for back in range(1, min(days, day) + 1):
        for later in range(ahead + 1):
            then = bucket + later
            of_day = day - back + then // _BUCKETS
            if of_day < day:
                past = memory[_FIRST + of_day % _DAYS * _BUCKETS + then % _BUCKETS]
                expected = max(expected, past)
    return float(max(expected, seen.demand) * headroom + spare)


SEASONAL = Policy(
    "seasonal",
    "the same time of earlier days",
    _desired,
    (
        Parameter("headroom", 1.1, 0.8, 2),
        Parameter("spare", 1, 0, 20),
        Parameter("days", 7, 1, 13),
    ),
    _FILLED + _BUCKETS,
)

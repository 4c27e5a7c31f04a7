"""What the same time of earlier days needed, corrected by how today compares, and never less than now."""

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen
from gpuscale.triggers.policies.rings import BUCKETS, highest_days_ago, keep_highest

_DAYS = 14


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    headroom, spare, days = settings[0], settings[1], int(settings[2])
    keep_highest(seen.demand, seen, memory, 0, _DAYS)
    expected = seen.demand
    for back in range(1, days + 1):
        expected = max(expected, highest_days_ago(back, seen, memory, 0, _DAYS))
    return float(expected * headroom + spare)


SEASONAL = Policy(
    "seasonal",
    "the same time of earlier days",
    _desired,
    (
        Parameter("headroom", 1.1, 0.8, 2),
        Parameter("spare", 1, 0, 20),
        Parameter("days", 7, 1, 13),
    ),
    (_DAYS + 1) * BUCKETS,
)

"""Ring buffers in a policy's memory: of recent steps, and of the same time on earlier days."""

import math

from gpuscale.triggers.policies.policy import Numbers, Seen

BUCKETS = 288
"""Of five minutes, in a day; the highest value of each is kept."""
_BUCKET_S = 300


def keep_highest(value: float, seen: Seen, memory: Numbers, first: int, days: int) -> None:
    """Keep a value if it is the highest of its bucket.

    Args:
        value: of this step.
        seen: says which step it is.
        memory: the policy's.
        first: where `(days + 1) * BUCKETS` numbers begin in it.
        days: that are kept.
    """
    now_s = seen.step * seen.step_s
    day, bucket = int(now_s // 86_400), int(now_s % 86_400 // _BUCKET_S)
    at, filled = first + day % days * BUCKETS + bucket, first + days * BUCKETS + bucket
    if memory[filled] != day + 1:
        memory[filled] = day + 1
        memory[at] = 0.0
    memory[at] = max(memory[at], value)


def highest_days_ago(back: int, seen: Seen, memory: Numbers, first: int, days: int) -> float:
    """Return the highest of an earlier day, from this time of day until what is ordered now is ready.

    Args:
        back: how many days ago; 0 is returned if there were fewer.
        seen: says which step it is.
        memory: the policy's.
        first: where `keep_highest` keeps the values.
        days: that are kept.
    """
    now_s = seen.step * seen.step_s
    today, bucket = int(now_s // 86_400), int(now_s % 86_400 // _BUCKET_S)
    highest = 0.0
    for later in range(math.ceil((seen.start_up_s + seen.lag_s) / _BUCKET_S) + 1):
        then = bucket + later
        day = today - back + then // BUCKETS
        if today - back >= 0 and day < today:
            highest = max(highest, memory[first + day % days * BUCKETS + then % BUCKETS])
    return highest


def held(value: float, seen: Seen, memory: Numbers, first: int, size: int, hold_s: float) -> float:
    """Add a value to a ring buffer, and return the maximum of the last `hold_s` seconds.

    Args:
        value: of this step.
        seen: says which step it is.
        memory: the policy's.
        first: where the ring begins in it.
        size: steps that the ring holds, which bounds the hold.
        hold_s: how far to look back; the step itself always counts.
    """
    memory[first + seen.step % size] = value
    steps = min(size, max(1, int(hold_s / seen.step_s)), seen.step + 1)
    highest = value
    for back in range(steps):
        highest = max(highest, memory[first + (seen.step - back) % size])
    return highest

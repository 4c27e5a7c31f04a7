"""How long a workload takes from a pod's creation to its first answer, and how long it is waited for."""

from collections.abc import Sequence

UNKNOWN_DEADLINE_S = 1800.0
"""Where no pod of the workload ever became ready: a node to buy, an image to pull and a model to load."""
_LEAST_S = 300.0
_KEPT = 10
_SPARE_S = 60.0


def kept_starts(starts_s: Sequence[float], start_s: float) -> tuple[float, ...]:
    """Return the last starts with one more, in seconds from creation to Ready."""
    return (*starts_s, start_s)[-_KEPT:]


def learned_deadline_s(starts_s: Sequence[float]) -> float:
    """Return the deadline for a workload whose pods took so long: the longest start twice, and a minute.

    Args:
        starts_s: of its pods, in seconds from creation to Ready, the newest last.
    """
    last = starts_s[-_KEPT:]
    return max(_LEAST_S, 2 * max(last) + _SPARE_S) if last else UNKNOWN_DEADLINE_S

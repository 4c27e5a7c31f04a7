"""How long pods take from creation to their first response, and how long to wait for them."""

from collections.abc import Sequence

UNKNOWN_DEADLINE_S = 1800.0
"""Where no pod of the workload ever became ready: a node to buy, an image to pull and a model to load."""
_LEAST_S = 300.0
_KEPT = 10
_SPARE_S = 60.0


def kept_starts(starts_s: Sequence[float], start_s: float) -> tuple[float, ...]:
    """Return the last start times with a new one, in seconds from creation to Ready."""
    return (*starts_s, start_s)[-_KEPT:]


def learned_deadline_s(starts_s: Sequence[float]) -> float:
    """Return the waiting deadline: twice the longest start, plus a minute.

    Args:
        starts_s: of its pods, in seconds from creation to Ready, the newest last.
    """
    last = starts_s[-_KEPT:]
    return max(_LEAST_S, 2 * max(last) + _SPARE_S) if last else UNKNOWN_DEADLINE_S

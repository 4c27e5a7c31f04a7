"""The costs that let a scale-in take the pods with the least work.

Pure: what pods do now, and what costs they should have.
"""

import math
from collections.abc import Mapping

_IDLE = -1_000
_CLASSES = 8
"""For each doubling of the work, so that each number of requests up to eleven has a cost of its own."""
_ALIKE = 2
"""Costs that differ by no more say the same: up to a fifth more or less work."""


def cost_of_work(work: float) -> int:
    """Return the deletion cost of a pod: negative, so that pods without a cost go after it.

    Args:
        work: requests, tokens or use, in any unit, not negative; 0 is idle.
    """
    return min(-1, _IDLE + round(_CLASSES * math.log2(1 + work)))


def planned_costs(
    work: Mapping[str, float], kept: Mapping[str, int], leaving: int
) -> dict[str, int]:
    """Return the costs that pods should have; one that is not there should have none.

    The pods with the least work get one, as many as may leave; no other, as each cost is a write. A cost that
    is still right stays. What is unknown is not idle: a pod without a value gets no cost.

    Args:
        work: of the pods whose work is known, by name.
        kept: the costs that pods have from an earlier plan.
        leaving: how many pods may leave.
    """
    costs = {name: cost_of_work(value) for name, value in work.items()}
    right = {
        name: kept[name]
        for name, cost in costs.items()
        if name in kept and _is_alike(kept[name], cost)
    }
    costs |= right
    first = sorted(costs, key=lambda name: (costs[name], name not in right, name))[:leaving]
    return right | {name: costs[name] for name in first}


def _is_alike(kept: int, cost: int) -> bool:
    return kept == cost if _IDLE in {kept, cost} else abs(kept - cost) <= _ALIKE

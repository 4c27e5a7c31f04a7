"""What one node is worth to a pod by its resources, in whole points from 0 to 100 for each plugin.

Source: kubernetes v1.37 pkg/scheduler/framework/plugins/noderesources (least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go, balanced_allocation.go, resource_allocation.go) and apis/config/v1
(defaults.go, default_plugins.go).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.requests import Amounts, plus
from gpuscale.hpa.cluster.scheduling.fit import NodeState

MOST = 100
"""The most points that a plugin gives a node."""
DEFAULT_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
}
"""ImageLocality is not among them: which node has which image is not known here."""
_LEAST_NODES = 100
_STEPS = {"cpu": 1_000_000}
"""Nano-units in one unit that the scheduler counts in; a whole one for all but CPU."""


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """`scoringStrategy` of NodeResourcesFit's arguments."""

    type: str = "LeastAllocated"
    """Or `MostAllocated`, or `RequestedToCapacityRatio`."""
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    """Names with weights."""
    shape: tuple[tuple[int, int], ...] = ()
    """Of RequestedToCapacityRatio: percent used, with 0 to 10 points."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a KubeSchedulerConfiguration says of one profile, as far as placement depends on it."""

    strategy: ScoringStrategy = ScoringStrategy()
    weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    """Of plugins that score; one that is not there is switched off."""
    spreads_by_default: bool = True
    """`defaultingType: System` of PodTopologySpread; otherwise pods without constraints aren't spread."""
    percentage_of_nodes: int | None = None
    """`percentageOfNodesToScore`; 0 for what Kubernetes takes by itself, None for all nodes."""


def nodes_to_score(count: int, percentage: int) -> int:
    """Return after how many nodes that a pod fits on the search for more stops.

    Source: kubernetes v1.37 pkg/scheduler/schedule_one.go (numFeasibleNodesToFind).

    Args:
        count: of all nodes.
        percentage: `percentageOfNodesToScore`; 0 for fewer in larger clusters.
    """
    if count < _LEAST_NODES:
        return count
    return max(_LEAST_NODES, count * (percentage or max(5, 50 - count // 125)) // 100)


def resource_score(
    settings: SchedulerSettings, requests: Amounts, more: Amounts, state: NodeState
) -> int:
    """Return the weighted points of NodeResourcesFit and NodeResourcesBalancedAllocation.

    Args:
        settings: the scheduler's.
        requests: of the pod.
        more: what its containers count for without asking for it.
        state: of the node, without the pod.
    """
    fit = settings.weights.get("NodeResourcesFit", 0)
    balance = settings.weights.get("NodeResourcesBalancedAllocation", 0)
    total = 0
    if fit:
        total += fit * _fit(settings.strategy, plus(requests, more), state)
    if balance and any(requests.get(name) for name in ("cpu", "memory")):
        total += balance * _balance(requests, state)
    return total


def _units(name: str, nano: int) -> int:
    return -(-nano // _STEPS.get(name, 1_000_000_000))


def _amounts(
    name: str, asked: Amounts, used: Amounts, state: NodeState
) -> tuple[int, int, int] | None:
    """Return a resource's allocatable, what is taken, and what would be; None where it doesn't count."""
    quantity = state.node.allocatable.get(name)
    capacity = _units(name, quantity.nano) if quantity else 0
    more = asked.get(name, 0)
    if not capacity or (not more and name not in {"cpu", "memory", "ephemeral-storage"}):
        return None
    taken = _units(name, used.get(name, 0))
    return capacity, taken, taken + _units(name, more)


def _fit(strategy: ScoringStrategy, asked: Amounts, state: NodeState) -> int:
    points = weights = 0
    used = plus(state.used, state.unasked) if state.unasked else state.used
    for name, weight in strategy.resources:
        found = _amounts(name, asked, used, state)
        if found is None:
            continue
        capacity, _, requested = found
        match strategy.type:
            case "MostAllocated":
                each = min(requested, capacity) * MOST // capacity
            case "RequestedToCapacityRatio":
                each = _on_shape(strategy.shape, min(MOST, requested * 100 // capacity))
                if each <= 0:
                    continue
            case _:
                each = max(0, capacity - requested) * MOST // capacity
        points += each * weight
        weights += weight
    if not weights:
        return 0
    if strategy.type == "RequestedToCapacityRatio":
        return math.floor(points / weights + 0.5)
    return points // weights


def _on_shape(shape: Sequence[tuple[int, int]], used: int) -> int:
    """Return the points of a line through the shape's points, which are out of 10, at a percentage."""
    before: tuple[int, int] | None = None
    for at, points in shape:
        here = at, points * 10
        if used <= at:
            if before is None:
                return here[1]
            rise, run = (here[1] - before[1]) * (used - before[0]), here[0] - before[0]
            return before[1] + (rise // run if rise >= 0 else -(-rise // run))
        before = here
    return before[1] if before else 0


def _balance(asked: Amounts, state: NodeState) -> int:
    """Return the points for how much the pod evens out what is used of CPU and of memory."""
    shares = [
        found
        for name in ("cpu", "memory")
        if (found := _amounts(name, asked, state.used, state)) is not None
    ]
    before = _evenness([min(1.0, taken / capacity) for capacity, taken, _ in shares])
    after = _evenness([min(1.0, requested / capacity) for capacity, _, requested in shares])
    return MOST // 2 + (MOST // 2 + after - before) // 2


def _evenness(shares: Sequence[float]) -> int:
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - deviation) * MOST)

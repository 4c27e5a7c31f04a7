"""How many new nodes of a pool pods would fill.

Source: cluster-autoscaler/estimator/binpacking_estimator.go and decreasing_pod_orderer.go (1.35).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import PodKind
from gpuscale.hpa.cluster.scheduling import NodeState


@dataclass(frozen=True, slots=True, eq=False)
class PodGroup:
    """Pending pods of one kind."""

    kind: PodKind
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """New nodes of one pool, and the pods that they would take."""

    nodes: int
    pods: tuple[Pod, ...]


def estimate(groups: Sequence[PodGroup], template: NodeState, limit: int) -> Estimate:
    """Return how many new nodes the pods fill: the largest by CPU and memory first, each where it fits first.

    GPUs don't count in that order. The pods' taints and labels must have been checked against the template.

    Args:
        groups: pods that could go to an empty new node.
        template: such a node.
        limit: the most nodes.
    """
    opened: list[dict[str, int]] = []
    """What is free on each new node."""
    with_pods: set[int] = set()
    placed: list[Pod] = []
    turn = 0
    may_open = True
    empty = {name: template.free(name) for name in template.node.allocatable}
    allocatable = template.node.allocatable
    share_of = [(name, allocatable[name].nano) for name in ("cpu", "memory") if name in allocatable]
    shares = {
        group.kind: sum(group.kind.requests.get(name, 0) / nano for name, nano in share_of if nano)
        for group in groups
    }
    for group in sorted(groups, key=lambda each: -shares[each.kind]):
        requests = [
            (name, amount)
            for name, amount in group.kind.requests.items()
            if name != "pods" or "pods" in allocatable
        ]
        left = len(group.pods)
        # First the nodes that are open already, one pod on each in turn.
        in_turn = [*range(turn, len(opened)), *range(turn)]
        while in_turn and left:
            fitting = []
            for index in in_turn:
                free = opened[index]
                if left and all(free.get(name, 0) >= amount for name, amount in requests):
                    for name, amount in requests:
                        free[name] -= amount
                    with_pods.add(index)
                    turn = index + 1 if index + 1 < len(opened) else 0
                    left -= 1
                    fitting.append(index)
            in_turn = fitting
        # Then new ones. A new node that stays empty shows that no other would help these pods.
        last = len(opened) - 1
        while left and may_open:
            count = _room(opened[last], requests, left) if opened else 0
            if count:
                for name, amount in requests:
                    opened[last][name] -= amount * count
                with_pods.add(last)
                left -= count
                continue
            if opened and last not in with_pods:
                break
            if len(opened) >= limit:
                may_open = False
                break
            opened.append(dict(empty))
            last = len(opened) - 1
        placed += group.pods[: len(group.pods) - left]
    return Estimate(len(with_pods), tuple(placed))


def _room(free: dict[str, int], requests: Sequence[tuple[str, int]], most: int) -> int:
    """Return how many pods fit, at most so many."""
    for name, amount in requests:
        most = min(most, free.get(name, 0) // amount)
    return max(0, most)

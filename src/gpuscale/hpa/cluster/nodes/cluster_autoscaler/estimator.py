"""How many new nodes of a pool pods would fill.

Source: cluster-autoscaler/estimator/binpacking_estimator.go and decreasing_pod_orderer.go (1.35).
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import Company
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import HOSTNAME, PodKind
from gpuscale.hpa.cluster.scheduling import NodeState, misfits
from gpuscale.hpa.cluster.scheduling.neighbours import SPREAD


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


def estimate(
    groups: Sequence[PodGroup], template: NodeState, limit: int, company: Company | None = None
) -> Estimate:
    """Return how many new nodes the pods fill: the largest by CPU and memory first, each where it fits first.

    GPUs don't count in that order. The pods' taints and labels must have been checked against the template.

    Args:
        groups: pods that could go to an empty new node.
        template: such a node.
        limit: the most nodes.
        company: the pods that are there, for rules about other pods; None where there are no such rules.
    """
    groups = _largest_first(groups, template)
    if company is not None and any(company.is_bound(each.pods[0]) for each in groups):
        return _one_by_one(groups, template, limit, company)
    opened: list[dict[str, int]] = []
    """What is free on each new node."""
    with_pods: set[int] = set()
    placed: list[Pod] = []
    turn = 0
    may_open = True
    empty = {name: template.free(name) for name in template.node.allocatable}
    allocatable = template.node.allocatable
    for group in groups:
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


def _largest_first(groups: Sequence[PodGroup], template: NodeState) -> list[PodGroup]:
    """Return groups by the shares of the template's CPU and memory that a pod asks for."""
    allocatable = template.node.allocatable
    whole = {name: allocatable[name].nano for name in ("cpu", "memory") if name in allocatable}

    def share(group: PodGroup) -> float:
        asked = group.kind.requests
        return sum(asked.get(name, 0) / nano for name, nano in whole.items() if nano)

    return sorted(groups, key=lambda group: -share(group))


def _one_by_one(
    groups: Sequence[PodGroup], template: NodeState, limit: int, company: Company
) -> Estimate:
    """Return what `estimate` does, where a pod's place depends on those of others."""
    opened: list[NodeState] = []
    indices: list[int] = []
    """Of the new nodes in the company."""
    with_pods: set[int] = set()
    placed: list[Pod] = []
    turn, may_open = 0, True

    def put(pod: Pod, key: Hashable, places: Iterable[int]) -> tuple[int, str]:
        """Put a pod on the first of some new nodes that takes it; return the last tried, and what refused."""
        at, refused, refusal = 0, "", company.refusals(pod, key)
        for at in places:
            refused = refusal(indices[at])
            # A node that has no room is not full by the constraint.
            if not refused or refused == SPREAD:
                found = misfits(pod.spec, opened[at])
                refused = found[0] if found else refused
            if not refused:
                opened[at] = opened[at].with_pod(pod.spec)
                company.put(pod, indices[at])
                with_pods.add(at)
                placed.append(pod)
                break
        return at, refused

    for group in groups:
        key = company.key_of(group.pods[0])
        waiting = deque(group.pods)
        while waiting and opened:
            in_turn = chain(range(turn, len(opened)), range(turn))
            found, refused = put(waiting[0], key, in_turn)
            if refused:
                break
            waiting.popleft()
            turn = (found + 1) % len(opened)
        for pod in waiting if may_open else ():
            last = len(opened) - 1
            refused = put(pod, key, [last])[1] if opened else "no node"
            if refused == SPREAD and any(each.topology_key == HOSTNAME for each in pod.spec.spread):
                # A node that is as full as it may be is no reason to open one more.
                refused = put(pod, key, range(last))[1] if last else refused
            if not refused:
                continue
            if opened and last not in with_pods:
                break
            if len(opened) >= limit:
                may_open = False
                break
            node = replace(template.node, metadata=_renamed(template.node.metadata, len(opened)))
            opened.append(replace(template, node=node))
            indices.append(company.open(node))
            if put(pod, key, [last + 1])[1]:
                break
    for index in reversed(indices):
        company.shut(index)
    return Estimate(len(with_pods), tuple(placed))


def _renamed(meta: ObjectMeta, number: int) -> ObjectMeta:
    name = f"{meta.name}-{number}"
    return replace(meta, name=name, labels={**meta.labels, HOSTNAME: name})


def _room(free: dict[str, int], requests: Sequence[tuple[str, int]], most: int) -> int:
    """Return how many pods fit, at most so many."""
    for name, amount in requests:
        most = min(most, free.get(name, 0) // amount)
    return max(0, most)

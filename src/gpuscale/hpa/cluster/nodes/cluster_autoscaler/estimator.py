"""How many new nodes of a pool pods would fill.

Source: cluster-autoscaler/estimator/binpacking_estimator.go and decreasing_pod_orderer.go (1.35).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import Company
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import HOSTNAME, PodKind
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.hpa.cluster.scheduling.claims import is_served
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
    if company is not None and not any(company.is_bound(each.pods[0]) for each in groups):
        company = None
    opened: list[dict[str, int]] = []
    """What is free on each new node."""
    indices: list[int] = []
    """Of the new nodes in the company."""
    with_pods: set[int] = set()
    placed: list[Pod] = []
    turn = 0
    may_open = True
    allocatable = template.node.allocatable
    empty = {name: template.free(name) for name in allocatable}
    waiting: deque[Pod] = deque()
    """Of the group that is looked at."""
    requests: list[tuple[str, int]] = []

    def put(at: int, count: int) -> None:
        """Put so many of the pods on a new node."""
        for name, amount in requests:
            opened[at][name] -= amount * count
        with_pods.add(at)
        for _ in range(count):
            pod = waiting.popleft()
            placed.append(pod)
            if company is not None:
                company.put(pod, indices[at])

    for group in _largest_first(groups, template):
        requests = [
            (name, amount)
            for name, amount in group.kind.requests.items()
            if (name != "pods" or "pods" in allocatable)
            and not (company is not None and is_served(name, template.node))
        ]
        waiting = deque(group.pods)
        rules = _Rules(company, group.pods[0]) if company is not None else None

        # First the nodes that are open already, one pod on each in turn.
        in_turn = [*range(turn, len(opened)), *range(turn)]
        while in_turn and waiting:
            fitting = []
            least = rules.least if rules else ()
            for index in in_turn:
                if (
                    waiting
                    and _room(opened[index], requests, 1)
                    and not (rules and rules.refusal(indices[index]))
                ):
                    put(index, 1)
                    turn = index + 1 if index + 1 < len(opened) else 0
                    fitting.append(index)
                    if rules and rules.least != least:
                        # Those that a constraint kept away may take a pod now.
                        fitting = [*range(turn, len(opened)), *range(turn)]
                        break
            in_turn = fitting
        # Then new ones. A new node that stays empty shows that no other would help these pods.
        refused_up_to: dict[tuple[int, ...], int] = {}
        """The smallest sums of constraints to the first new node that they may let take a pod."""
        while waiting and may_open:
            last = len(opened) - 1
            count = _room(opened[last], requests, len(waiting)) if opened else 0
            if rules and count:
                refusal, count = rules.refusal(indices[last]), 1
                if refusal:
                    count = 0
                if refusal == SPREAD and rules.spreads_over_nodes:
                    # A node that is as full as it may be is no reason to open one more.
                    least = rules.least
                    at = refused_up_to.get(least, 0)
                    while at < last and (
                        not _room(opened[at], requests, 1) or rules.refusal(indices[at])
                    ):
                        at += 1
                    refused_up_to[least] = at if rules.are_lasting else 0
                    if at < last:
                        put(at, 1)
                        continue
            if count:
                put(last, count)
                continue
            if opened and last not in with_pods:
                break
            if len(opened) >= limit:
                may_open = False
                break
            if company is not None:
                meta = _renamed(template.node.metadata, len(opened))
                indices.append(company.open(replace(template.node, metadata=meta)))
            opened.append(dict(empty))
    for index in reversed(indices):
        if company is not None:
            company.shut(index)
    return Estimate(len(with_pods), tuple(placed))


def _largest_first(groups: Sequence[PodGroup], template: NodeState) -> list[PodGroup]:
    """Return groups by the shares of the template's CPU and memory that a pod asks for."""
    allocatable = template.node.allocatable
    whole = {name: allocatable[name].nano for name in ("cpu", "memory") if name in allocatable}

    def share(group: PodGroup) -> float:
        asked = group.kind.requests
        return sum(asked.get(name, 0) / nano for name, nano in whole.items() if nano)

    return sorted(groups, key=lambda group: -share(group))


class _Rules:
    """What other pods have to do with where pods of a group go."""

    def __init__(self, company: Company, pod: Pod) -> None:
        self._company, self._alike = company, company.alike(pod)
        self.spreads_over_nodes = any(each.topology_key == HOSTNAME for each in pod.spec.spread)

    @property
    def least(self) -> tuple[int, ...]:
        """Return the smallest sums of their constraints."""
        return self._company.refusals(self._alike).least

    @property
    def are_lasting(self) -> bool:
        return self._company.refusals(self._alike).lasting

    def refusal(self, index: int) -> str:
        """Return which rule keeps them off a node; empty where none does."""
        return self._company.refusals(self._alike).of_node(index)


def _renamed(meta: ObjectMeta, number: int) -> ObjectMeta:
    name = f"{meta.name}-{number}"
    return replace(meta, name=name, labels={**meta.labels, HOSTNAME: name})


def _room(free: dict[str, int], requests: Sequence[tuple[str, int]], most: int) -> int:
    """Return how many pods fit, at most so many."""
    for name, amount in requests:
        most = min(most, free.get(name, 0) // amount)
    return max(0, most)

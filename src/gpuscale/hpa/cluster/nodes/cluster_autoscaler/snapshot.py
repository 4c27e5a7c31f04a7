"""The cluster as one pass sees it: what is free on each node, and where pods would go.

Pods that ask for the same fit on the same nodes, so a kind of pod keeps the nodes that it fits on. What is
free only shrinks during a pass, so a node that a kind was found not to fit on is never looked at again by it.

Source: cluster-autoscaler/simulator/scheduling/hinting_simulator.go and
simulator/clustersnapshot/predicate/plugin_runner.go (1.35): a pod goes where it went the pass before, or to
the next node in turn that it fits on. The order of nodes is theirs in the request; upstream has none.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodSpec
from gpuscale.base.objects.requests import Amounts
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import (
    Alike,
    Company,
    Refusals,
    chooses_by_name,
)
from gpuscale.hpa.cluster.scheduling.fit import NodeState, refusal_of
from gpuscale.hpa.cluster.scheduling.placing import ByDemands
from gpuscale.hpa.cluster.scheduling.resources import pod_requests

HOSTNAME = "kubernetes.io/hostname"
_UNLIMITED = 1 << 100
"""Pods on a node whose allocatable does not limit them."""


@dataclass(frozen=True, slots=True, eq=False)
class PodKind:
    """Pods that fit on the same nodes."""

    spec: PodSpec
    """Of one of them."""
    requests: Amounts
    by_name: bool
    """They choose nodes by their names, so that equal nodes are not equal to them."""


class PodKinds:
    """The kinds of the pods that one pass looks at."""

    def __init__(self) -> None:
        self.of = ByDemands(_kind).of
        """Returns the kind of a pod's spec."""

    def requests(self, pod: Pod) -> Amounts:
        """Return what a pod asks for, without what it asks nothing of."""
        return self.of(pod.spec).requests


def _kind(spec: PodSpec) -> PodKind:
    requests = {name: nano for name, nano in pod_requests(spec).items() if nano}
    return PodKind(spec, requests, chooses_by_name(spec))


@dataclass(slots=True)
class _Fitting:
    """The nodes that a kind of pod may fit on."""

    nodes: list[int]
    after: list[int]
    """For each of them, itself or one further on: those in between are known not to fit any more."""
    columns: list[tuple[list[int], str, int]]
    """What is free on all nodes of each resource that the kind asks for, its name, and how much it asks."""
    least: tuple[int, ...]
    """Of constraints: nodes that they refused are left out for as long as it stays so."""

    def first_from(self, at: int) -> int:
        after = self.after
        root = at
        while after[root] != root:
            root = after[root]
        while after[at] != root:
            after[at], at = root, after[at]
        return root


@dataclass(slots=True)
class _Refused:
    """Pods with rules about others that fit on no node when all were looked at."""

    least: tuple[int, ...]
    """Of the rules; nodes that did not change refuse them while it stays so."""
    seen: int
    """How many changes of nodes there had been."""
    unknown: set[int]
    """Nodes that were left out."""


@dataclass(slots=True)
class Trial:
    """Pods put on nodes for the time being."""

    taken: dict[int, dict[str, int]] = field(default_factory=dict)
    pods: list[tuple[int, Pod, PodKind]] = field(default_factory=list)


class Snapshot:
    """The nodes of one pass, with room for pods.

    Args:
        states: the nodes, with what is on them.
        kinds: of the pass.
        hints: pod key to the node that it went to the pass before.
        pods_of: returns the pods on a node of this name.
        repelling: whether pods that are there, or wait, keep others away.
    """

    def __init__(
        self,
        states: Sequence[NodeState],
        kinds: PodKinds,
        hints: Mapping[str, str],
        pods_of: Callable[[str], Sequence[Pod]] = lambda _name: (),
        *,
        repelling: bool = False,
    ) -> None:
        self.nodes: list[Node] = [state.node for state in states]
        self.index = {state.name: index for index, state in enumerate(states)}
        self.placed: dict[int, list[Pod]] = {}
        """The pods that were put on nodes in this pass."""
        self.kinds = kinds
        self.company = Company(self.nodes, pods_of, repelling=repelling)
        self.hints: dict[str, str] = {}
        self._old_hints = hints
        self._states = states
        self._hopeless: set[tuple[PodKind, Alike | None]] = set()
        """Pods that rules about other pods hold for, and that were found to fit nowhere."""
        self._refused: dict[tuple[PodKind, Alike | None], _Refused] = {}
        self._open = [True] * len(states)
        self._turn = 0
        self._free: dict[str, list[int]] = {}
        self._fitting: dict[tuple[PodKind, Alike | None], list[_Fitting]] = {}
        self._hosts: dict[str, list[int]] = {}

    def close(self, indices: Iterable[int]) -> None:
        """Let no more pods go to these nodes."""
        for index in indices:
            self._open[index] = False

    def free(self, resource: str) -> list[int]:
        """Return what is left of a resource on each node."""
        column = self._free.get(resource)
        if column is None:
            is_pods = resource == "pods"
            column = self._free[resource] = [
                _UNLIMITED
                if is_pods and resource not in state.node.allocatable
                else state.free(resource)
                for state in self._states
            ]
            for index, pods in self.placed.items():
                for pod in pods:
                    column[index] -= self.kinds.of(pod.spec).requests.get(resource, 0)
        return column

    def place(self, pod: Pod, trial: Trial, *, but: int = -1) -> int | None:
        """Put a pod on a node, and return which; None where it fits on none.

        Args:
            pod: to be put somewhere.
            trial: has the pods that were put somewhere before, and then has this one.
            but: not on this node.
        """
        company, kind = self.company, self.kinds.of(pod.spec)
        if not company.is_bound(pod):
            return self._place(pod, kind, trial, but)
        alike = company.alike(pod)
        known, refusals, least = (kind, alike), company.refusals(alike), company.least(alike)
        refused = self._refused.get(known)
        only = None
        if refused is not None and refused.least == least:
            # New nodes of an estimate are not of this snapshot.
            changed = (each for each in company.changed[refused.seen :] if each < len(self.nodes))
            only = refused.unknown.union(changed)
        found = self._place(pod, kind, trial, but, refusals, only=only)
        if found is None and least is not None:
            self._refused[known] = _Refused(least, len(company.changed), {but} - {-1})
        return found

    def _place(
        self,
        pod: Pod,
        kind: PodKind,
        trial: Trial,
        but: int = -1,
        refusals: Refusals | None = None,
        *,
        alike: Alike | None = None,
        only: Collection[int] | None = None,
    ) -> int | None:
        found = self._hinted(pod, kind, trial, but, refusals)
        if found is None and only is not None:
            found = self._next_of(only, kind, trial, but, refusals)
        elif found is None:
            found = self._next(kind, trial, but, refusals, alike)
        if found is None:
            return None
        self.company.put(pod, found)
        taken = trial.taken.setdefault(found, {})
        for resource, amount in kind.requests.items():
            taken[resource] = taken.get(resource, 0) + amount
        trial.pods.append((found, pod, kind))
        self.hints[pod.metadata.key] = self.nodes[found].metadata.name
        return found

    def put(self, pod: Pod) -> bool:
        """Put a pod on a node for good, and return whether it fits on one."""
        trial, kind, company = Trial(), self.kinds.of(pod.spec), self.company
        alike = refusals = None
        if company.is_bound(pod):
            # Each node may have to be looked at, so that is done once for pods that are alike.
            alike = company.alike(pod)
            if (kind, alike) in self._hopeless:
                return False
            refusals = company.refusals(alike)
        if self._place(pod, kind, trial, refusals=refusals, alike=alike) is None:
            if alike is not None:
                self._hopeless.add((kind, alike))
            return False
        self.keep(trial)
        return True

    def drop(self, trial: Trial) -> None:
        """Let the pods of a trial be nowhere again."""
        for index, pod, _ in trial.pods:
            self.company.take(pod, index)

    def keep(self, trial: Trial) -> None:
        """Let the pods of a trial stay where they were put."""
        for index, pod, kind in trial.pods:
            for resource, amount in kind.requests.items():
                self.free(resource)[index] -= amount
            self.placed.setdefault(index, []).append(pod)

    def _hinted(
        self, pod: Pod, kind: PodKind, trial: Trial, but: int, refusals: Refusals | None
    ) -> int | None:
        if not self._old_hints:
            return None
        index = self.index.get(self._old_hints.get(pod.metadata.key, ""))
        return (
            index if index is not None and self._fits(index, kind, trial, but, refusals) else None
        )

    def _fits(
        self, index: int, kind: PodKind, trial: Trial, but: int, refusals: Refusals | None
    ) -> bool:
        if index == but or not self._open[index]:
            return False
        taken = trial.taken.get(index, {})
        return (
            not (refusals and refusals.of_node(index))
            and not refusal_of(kind.spec, self.nodes[index])
            and all(
                self.free(resource)[index] - taken.get(resource, 0) >= amount
                for resource, amount in kind.requests.items()
            )
        )

    def _next_of(
        self,
        some: Collection[int],
        kind: PodKind,
        trial: Trial,
        but: int,
        refusals: Refusals | None,
    ) -> int | None:
        """Return the next of some nodes in turn that a kind fits on."""
        for index in sorted(some, key=lambda each: (each < self._turn, each)):
            if self._fits(index, kind, trial, but, refusals):
                self._turn = index + 1
                return index
        return None

    def _next(
        self,
        kind: PodKind,
        trial: Trial,
        but: int,
        refusals: Refusals | None,
        alike: Alike | None,
    ) -> int | None:
        """Return the next node in turn that a kind fits on.

        Args:
            kind: of the pod.
            trial: has the pods that were put somewhere before.
            but: not this node.
            refusals: of rules about other pods.
            alike: the pods that they are for, where none of the pods on nodes will leave them.
        """
        known = self._fitting.get((kind, alike))
        least = refusals.least if refusals and alike else ()
        if known is None or known[0].least != least:
            known = self._fitting[kind, alike] = self._look(kind, refusals if alike else None)
        turn = self._turn
        found = [
            index
            for each in known
            if each.nodes
            and not (alike and refusals and refusals.of_domain(each.nodes[0]))
            and (index := self._next_in(each, trial, but, refusals, lasting=bool(alike)))
            is not None
        ]
        if not found:
            return None
        index = min(found, key=lambda each: (each < turn, each))
        self._turn = index + 1
        return index

    def _next_in(
        self,
        fitting: _Fitting,
        trial: Trial,
        but: int,
        refusals: Refusals | None,
        *,
        lasting: bool,
    ) -> int | None:
        nodes, after, columns, is_open = fitting.nodes, fitting.after, fitting.columns, self._open
        start = bisect_left(nodes, self._turn)
        lasting = lasting and refusals is not None and refusals.lasting
        for first, end in ((start, len(nodes)), (0, start)):
            at = fitting.first_from(first)
            while at < end:
                index = nodes[at]
                if is_open[index] and all(column[index] >= need for column, _, need in columns):
                    taken = trial.taken.get(index)
                    if index != but and (
                        taken is None
                        or all(
                            column[index] - taken.get(name, 0) >= need
                            for column, name, need in columns
                        )
                    ):
                        if not (refusals and refusals.of_node(index)):
                            return index
                        if lasting:
                            after[at] = at + 1
                else:
                    after[at] = at + 1
                at = fitting.first_from(at + 1)
        return None

    def _of_host(self, hostname: str) -> list[int]:
        if not self._hosts:
            for index, node in enumerate(self.nodes):
                self._hosts.setdefault(node.metadata.labels.get(HOSTNAME, ""), []).append(index)
        return self._hosts.get(hostname, [])

    def _look(self, kind: PodKind, refusals: Refusals | None) -> list[_Fitting]:
        """Return the nodes that a kind may fit on, by the domains that rules look at."""
        if kind.by_name:
            wanted = kind.spec.node_selector.get(HOSTNAME)
            looked = range(len(self.nodes)) if wanted is None else self._of_host(wanted)
            nodes = [i for i in looked if not refusal_of(kind.spec, self.nodes[i])]
        else:
            refused: dict[int, bool] = {}
            nodes = []
            for index, shape in enumerate(self.company.shape_of()[: len(self.nodes)]):
                if shape not in refused:
                    refused[shape] = bool(refusal_of(kind.spec, self.nodes[index]))
                if not refused[shape]:
                    nodes.append(index)
        columns = [(self.free(name), name, need) for name, need in kind.requests.items()]
        for column, _, need in columns:
            nodes = [index for index in nodes if column[index] >= need]
        by_domain: dict[Hashable, list[int]] = {}
        keys, least = (refusals.keys, refusals.least) if refusals else ((), ())
        for index in nodes if keys else ():
            labels = self.nodes[index].metadata.labels
            by_domain.setdefault(tuple(map(labels.get, keys)), []).append(index)
        return [
            _Fitting(each, list(range(len(each) + 1)), columns, least)
            for each in (by_domain.values() or (nodes,))
        ]

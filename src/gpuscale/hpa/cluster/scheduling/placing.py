"""Placing many pods on many nodes: equal pods are checked against each node once per change.

Pods that ask for the same, with the same selectors and tolerations, fit on the same nodes. So a class keeps
the nodes that it fits on in the order of their score, and how often each reason keeps it off the others. A
pod costs a look at the best of them, not at all nodes.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuscale.base.objects.pods import PodSpec
from gpuscale.hpa.cluster.scheduling.fit import NodeState, misfits, refusal, score
from gpuscale.hpa.cluster.scheduling.resources import pod_requests


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of one attempt."""

    node: str | None
    message: str
    """Why no node was found; empty where one was."""


@dataclass(slots=True, eq=False)
class _Class:
    """The nodes' suitability for a class of equal pods."""

    spec: PodSpec
    """Of one of them."""
    seen: int = 0
    """How many of the changes of nodes it has looked at."""
    fitting: list[tuple[float, int, str, int]] = field(default_factory=list)
    """A heap of nodes by score, then order; the last is the node's version, and another voids the entry."""
    reasons: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node to what keeps them off it."""
    counts: Counter[str] = field(default_factory=Counter)


class Placer:
    """Places pods one after the other; nodes change by that alone.

    The node with the most CPU and memory left is taken. Kubernetes breaks ties at random; here the first of
    them is taken, so that the same cluster always gives the same answer, whatever its nodes are called.

    Args:
        nodes: with what is on them, oldest first.
    """

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        self._states = {state.name: state for state in nodes}
        self._order = {name: order for order, name in enumerate(self._states)}
        self._changed = list(self._states)
        """Names of nodes, once for each version of theirs."""
        self._versions = dict.fromkeys(self._states, 0)
        self._classes: dict[object, _Class] = {}
        self._by_spec: dict[int, tuple[PodSpec, _Class]] = {}
        """The class of a spec by its identity; the spec is kept so that no other gets its number."""

    def place(self, spec: PodSpec) -> Placement:
        """Return where a pod goes, and let it take its room there."""
        kind = self._class_of(spec)
        self._look(kind)
        fitting, versions = kind.fitting, self._versions
        while fitting and fitting[0][3] != versions[fitting[0][2]]:
            heapq.heappop(fitting)
        if not fitting:
            return Placement(None, refusal(len(self._states), kind.counts))
        name = fitting[0][2]
        self._states[name] = self._states[name].with_pod(spec)
        versions[name] += 1
        self._changed.append(name)
        return Placement(name, "")

    def _class_of(self, spec: PodSpec) -> _Class:
        known = self._by_spec.get(id(spec))
        if known is None:
            key = (
                tuple(sorted(pod_requests(spec).items())),
                tuple(sorted(spec.node_selector.items())),
                repr(spec.required_node_terms),
                spec.tolerations,
            )
            known = spec, self._classes.setdefault(key, _Class(spec))
            self._by_spec[id(spec)] = known
        return known[1]

    def _look(self, kind: _Class) -> None:
        """Check a class against the nodes that changed since its last check."""
        if kind.seen == len(self._changed):
            return
        for name in dict.fromkeys(self._changed[kind.seen :]):
            state = self._states[name]
            found = misfits(kind.spec, state)
            kind.counts.subtract(kind.reasons.pop(name, ()))
            if found:
                kind.reasons[name] = found
                kind.counts.update(found)
            else:
                entry = -score(state), self._order[name], name, self._versions[name]
                heapq.heappush(kind.fitting, entry)
        kind.counts = +kind.counts
        kind.seen = len(self._changed)

"""Where rules about other pods, and claims, let pods go: topology spread, pod affinity and devices.

Pods that such rules hold for are looked at one by one, as upstream does it for all. Preferences don't count.

Source: cluster-autoscaler/simulator/clustersnapshot/predicate/plugin_runner.go (1.35), which runs the
scheduler's filters.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.scheduling.claims import devices_for
from gpuscale.hpa.cluster.scheduling.fit import NodeState
from gpuscale.hpa.cluster.scheduling.neighbours import (
    Rule,
    Tally,
    Watch,
    least_of,
    refusal_by,
    tallies_of,
    watches_of,
)

_NONE: frozenset[DeviceKey] = frozenset()
_REQUIRED = (Rule.SPREAD, Rule.NEAR, Rule.APART, Rule.REPELLED)


def repelling_keys(pods: Iterable[Pod]) -> frozenset[str]:
    """Return the topology keys of the domains from which these pods keep others."""
    return frozenset(
        term.topology_key
        for pod in pods
        for term in pod.spec.affinity
        if term.is_anti and term.weight is None
    )


class Company:
    """The pods of all nodes, as far as rules ask for them.

    Args:
        nodes: of the pass.
        pods_of: returns the pods that are on a node of this name.
        repelling: the keys by which pods that are there, or wait, keep others away.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        pods_of: Callable[[str], Iterable[Pod]],
        repelling: frozenset[str],
    ) -> None:
        self._nodes = nodes
        self._pods_of = pods_of
        self._repelling = repelling
        self.changed: list[int] = []
        """The nodes whose pods changed, one after the other."""
        self._has_begun = False
        """Somebody has asked for a rule, so that pods are counted."""
        self._early: list[tuple[Callable[[Pod, int], None], Pod, int]] = []
        """What was done before that."""
        self._states: list[NodeState] = []
        self._got: dict[tuple[str, int], frozenset[DeviceKey]] = {}
        """Pod key and node to the devices of those that were put there."""
        self._groups: defaultdict[Watch, set[int]] = defaultdict(set)
        self._tallies: dict[Hashable, list[Tally]] = {}
        self._by_watch: defaultdict[Watch, list[Tally]] = defaultdict(list)

    def is_bound(self, pod: Pod) -> bool:
        """Return whether a rule about other pods, or about devices, holds for a pod."""
        spread, affinity = pod.spec.spread, pod.spec.affinity
        if pod.spec.claims:
            return True
        if not spread and not affinity:
            return bool(self._repelling)
        return (
            bool(self._repelling)
            or any(each.required for each in spread)
            or any(each.weight is None for each in affinity)
        )

    def key_of(self, pod: Pod) -> Hashable:
        """Return a key that is equal for pods that the same rules hold for."""
        spec, meta = pod.spec, pod.metadata
        selected = frozenset(spec.node_selector.items())
        where = selected, spec.required_node_terms, spec.tolerations
        labels = frozenset(meta.labels.items())
        return meta.namespace, labels, spec.spread, spec.affinity, where, spec.claims

    def refusals(self, pod: Pod, key: Hashable = None) -> Callable[[int], str]:
        """Return what tells which rule keeps a pod off a node, until pods move; empty where none does.

        Args:
            pod: the pod.
            key: as `key_of` returns it, where it is known.
        """
        tallies = self._tallies_of(pod, self.key_of(pod) if key is None else key)
        least = least_of(tallies)

        def refusal(index: int) -> str:
            state = self._states[index]
            labels = state.node.metadata.labels
            sums = (
                (tally, tally.sums.get(labels[tally.key], 0) if tally.key in labels else None)
                for tally in tallies
            )
            refused = refusal_by(sums, least, tallies)
            return refused or devices_for(pod.spec, state.node, state.held).refused

        return refusal

    def least(self, pod: Pod, key: Hashable) -> tuple[int, ...] | None:
        """Return the smallest sums of a pod's constraints; None where more than one node makes a domain.

        While they stay equal, only a change of a node's own pods changes what keeps the pod off that node.
        """
        tallies = self._tallies_of(pod, key)
        if all(each.of_node and each.rule is not Rule.NEAR for each in tallies):
            return tuple(least_of(tallies).values())
        return None

    def put(self, pod: Pod, index: int) -> None:
        """Let a pod be on a node."""
        self.changed.append(index)
        if self._has_begun:
            state = self._states[index]
            got = devices_for(pod.spec, state.node, state.held).keys if pod.spec.claims else _NONE
            if got:
                self._got[pod.metadata.key, index] = got
            self._states[index] = replace(state, pods=(*state.pods, pod), held=state.held | got)
            self._count(pod, index)
        else:
            self._early.append((self.put, pod, index))

    def take(self, pod: Pod, index: int) -> None:
        """Let a pod be on a node no more."""
        self.changed.append(index)
        if self._has_begun:
            state, key = self._states[index], pod.metadata.key
            left = tuple(each for each in state.pods if each.metadata.key != key)
            got = self._got.pop((key, index), pod.devices)
            self._states[index] = replace(state, pods=left, held=state.held - got)
            self._count(pod, index)
        else:
            self._early.append((self.take, pod, index))

    def open(self, node: Node) -> int:
        """Have one more node, without pods, and return its index."""
        self._begin()
        self._states.append(NodeState(node))
        for tally in self._spreads():
            tally.enter(self._states[-1])
        return len(self._states) - 1

    def shut(self, index: int) -> None:
        """Have the last node no more."""
        state = self._states[index]
        for pod in state.pods:
            self.take(pod, index)
            for watch in watches_of(pod):
                self._groups[watch].discard(index)
        state = self._states.pop()
        for tally in self._spreads():
            tally.leave(state)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._states = [
                NodeState(node, pods=pods, held=_NONE.union(*(pod.devices for pod in pods)))
                for node in self._nodes
                for pods in (tuple(self._pods_of(node.metadata.name)),)
            ]
            for index, state in enumerate(self._states):
                for pod in state.pods:
                    for watch in watches_of(pod):
                        self._groups[watch].add(index)
            for move, pod, index in self._early:
                move(pod, index)

    def _spreads(self) -> Iterable[Tally]:
        return (
            tally
            for tallies in self._tallies.values()
            for tally in tallies
            if tally.rule is Rule.SPREAD
        )

    def _count(self, pod: Pod, index: int) -> None:
        state = self._states[index]
        for watch in watches_of(pod):
            self._groups[watch].add(index)
            for tally in self._by_watch.get(watch, ()):
                tally.put(state.name, tally.share(state))

    def _tallies_of(self, pod: Pod, key: Hashable) -> list[Tally]:
        tallies = self._tallies.get(key)
        if tallies is None:
            self._begin()
            found = tallies_of(pod, None, sorted(self._repelling))
            tallies = self._tallies[key] = [each for each in found if each.rule in _REQUIRED]
            for tally in tallies:
                self._by_watch[tally.watch].append(tally)
                for index in self._groups.get(tally.watch, ()):
                    state = self._states[index]
                    tally.put(state.name, tally.share(state))
                if tally.rule is Rule.SPREAD:
                    for state in self._states:
                        tally.enter(state)
        return tallies

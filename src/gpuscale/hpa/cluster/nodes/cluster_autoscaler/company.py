"""Where rules about other pods, and claims, let pods go: topology spread, pod affinity and devices.

Pods that are alike to all rules are counted together, so a pod that comes or goes changes no sums but those
of the rules that mean it. Preferences don't count.

Source: cluster-autoscaler/simulator/clustersnapshot/predicate/plugin_runner.go (1.35), which runs the
scheduler's filters.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodAffinityTerm, PodSpec
from gpuscale.hpa.cluster.scheduling.claims import devices_for
from gpuscale.hpa.cluster.scheduling.neighbours import (
    HOSTNAME,
    Rule,
    Tally,
    Watch,
    is_in,
    least_of,
    refusal_by,
    tallies_of,
    watch_of_term,
    watches_of,
)

_NONE: frozenset[DeviceKey] = frozenset()
_REQUIRED = (Rule.SPREAD, Rule.NEAR, Rule.APART)
_NEVER = 1 << 62
"""More pods than any rule allows."""


def have_repelling(pods: Iterable[Pod]) -> bool:
    """Return whether one of these pods keeps others away."""
    return any(_repels(term) for pod in pods for term in pod.spec.affinity)


def _repels(term: PodAffinityTerm) -> bool:
    return term.is_anti and term.weight is None


def chooses_by_name(spec: PodSpec) -> bool:
    """Return whether pods choose nodes by their names, so that equal nodes are not equal to them."""
    return HOSTNAME in spec.node_selector or any(
        term.names or any(each.key == HOSTNAME for each in term.labels)
        for term in spec.required_node_terms or ()
    )


@dataclass(slots=True, eq=False)
class _Sums:
    """A tally, and which nodes count in it."""

    tally: Tally
    shapes: frozenset[int] | None = None
    """Of nodes that count; None: all."""
    by_name: bool = False
    """Each node has to be asked."""


@dataclass(slots=True, eq=False)
class Refusals:
    """What keeps pods that are alike off nodes, until pods move."""

    keys: tuple[str, ...]
    """Labels of domains that are more than a node."""
    of_domain: Callable[[int], bool]
    """Tells whether a rule keeps them off a node, and off all with the same values of these labels."""
    of_node: Callable[[int], str]
    """Tells which rule keeps them off a node; empty where none does."""
    least: tuple[int, ...]
    """The smallest sums of their constraints."""
    lasting: bool
    """What keeps them off a node alone does so, as long as these sums stay, until a pod leaves it."""


@dataclass(slots=True, eq=False)
class Alike:
    """Pods that are alike to all rules."""

    pod: Pod
    """One of them."""
    at: dict[int, int] = field(default_factory=dict)
    """Node to how many of them are there."""
    counted: list[tuple[_Sums, int]] = field(default_factory=list)
    """Where they count, and as how much."""
    own: list[Tally] | None = None
    """Of the rules that they have; None until somebody asks."""
    foreign: list[Tally] = field(default_factory=list)
    """Of the terms of others that keep them away."""
    refusals: Refusals | None = None


class Company:
    """The pods of all nodes, as far as rules ask for them.

    Args:
        nodes: of the pass.
        pods_of: returns the pods that are on a node of this name.
        repelling: whether pods that are there, or wait, keep others away.
    """

    def __init__(
        self, nodes: Sequence[Node], pods_of: Callable[[str], Iterable[Pod]], *, repelling: bool
    ) -> None:
        self._nodes = list(nodes)
        self._pods_of = pods_of
        self.repelling = repelling
        self.changed: list[int] = []
        """The nodes whose pods changed, one after the other."""
        self._has_begun = False
        """Somebody has asked for a rule, so that pods are counted."""
        self._early: list[tuple[Callable[[Pod, int], None], Pod, int]] = []
        """What was done before that."""
        self._held: dict[int, frozenset[DeviceKey]] = {}
        self._got: dict[tuple[str, int], frozenset[DeviceKey]] = {}
        """Pod key and node to the devices of those that were put there."""
        self._opened: dict[int, list[Pod]] = {}
        """The pods on nodes that were not there to begin with."""
        self._known: dict[Hashable, tuple[PodSpec, Alike]] = {}
        """By the identity of a spec and labels; the spec is kept so that no other gets its number."""
        self._alike: dict[Hashable, Alike] = {}
        self._by_watch: defaultdict[Watch, list[Alike]] = defaultdict(list)
        self._sums: defaultdict[Watch, list[_Sums]] = defaultdict(list)
        self._terms: defaultdict[Watch, list[tuple[str, PodAffinityTerm, Tally]]] = defaultdict(
            list
        )
        """Terms that keep pods away, with the namespace of the pods that have them."""
        self._sums_of_terms: dict[tuple[str, PodAffinityTerm], _Sums] = {}
        self._shapes: dict[Hashable, int] = {}
        self._shape_of: list[int] = []
        self._examples: list[Node] = []
        """A node of each shape."""
        self._spreads: list[_Sums] = []
        self._domains: dict[tuple[str, frozenset[int]], Counter[str]] = {}
        """Label and shapes to the label's values on nodes of these shapes."""

    def shape_of(self) -> Sequence[int]:
        """Return a number for each node that those share which differ in nothing but their name."""
        while len(self._shape_of) < len(self._nodes):
            node = self._nodes[len(self._shape_of)]
            labels = dict(node.metadata.labels)
            labels.pop(HOSTNAME, None)
            key = node.unschedulable, node.taints, frozenset(labels.items())
            shape = self._shapes.setdefault(key, len(self._shapes))
            if shape == len(self._examples):
                self._examples.append(node)
            self._shape_of.append(shape)
        return self._shape_of

    def is_bound(self, pod: Pod) -> bool:
        """Return whether a rule about other pods, or about devices, holds for a pod."""
        spec = pod.spec
        if (
            spec.claims
            or any(each.required for each in spec.spread)
            or any(each.weight is None for each in spec.affinity)
        ):
            return True
        if not self.repelling:
            return False
        self._begin()
        return bool(self.alike(pod).foreign)

    def alike(self, pod: Pod) -> Alike:
        """Return the pods that the same rules hold for."""
        meta, spec = pod.metadata, pod.spec
        labels = tuple(meta.labels.items())
        fast = id(spec), meta.namespace, labels, meta.deletion_ms is None
        known = self._known.get(fast)
        if known is None:
            selected = frozenset(spec.node_selector.items())
            where = selected, spec.required_node_terms, spec.tolerations
            rules = spec.spread, spec.affinity, where, spec.claims
            key = meta.namespace, frozenset(labels), meta.deletion_ms is None, rules
            found = self._alike.get(key)
            if found is None:
                found = self._alike[key] = self._new(pod)
            known = self._known[fast] = spec, found
        return known[1]

    def _new(self, pod: Pod) -> Alike:
        found, home = Alike(pod), pod.metadata.namespace
        for watch in watches_of(pod):
            self._by_watch[watch].append(found)
            found.counted += (
                (sums, count)
                for sums in self._sums.get(watch, ())
                if (count := sums.tally.count(pod))
            )
            found.foreign += (
                tally for of, term, tally in self._terms.get(watch, ()) if is_in(term, of, pod)
            )
        for term in dict.fromkeys(filter(_repels, pod.spec.affinity)):
            sums = self._sums_of_terms.get((home, term))
            if sums is None:
                watch = watch_of_term(term, home)
                tally = Tally(Rule.REPELLED, term.topology_key, watch, lambda _: 1)
                sums = self._sums_of_terms[home, term] = _Sums(tally)
                self._terms[watch].append((home, term, tally))
                for each in self._by_watch.get(watch, ()):
                    if is_in(term, home, each.pod):
                        each.foreign.append(tally)
                        each.refusals = None
            found.counted.append((sums, 1))
        return found

    def refusals(self, alike: Alike) -> Refusals:
        """Return what keeps these pods off nodes."""
        own = self._own(alike)
        known = alike.refusals
        least = least_of(own)
        leasts = tuple(least.values())
        if known is not None and known.least == leasts:
            return known
        tallies, nodes, spec, held = [*own, *alike.foreign], self._nodes, alike.pod.spec, self._held
        near = [each for each in tallies if each.rule is Rule.NEAR]
        is_near_a_node = any(each.of_node for each in near)
        limits: list[tuple[str, dict[str, int], int, int]] = []
        wide: list[Tally] = []
        for tally in tallies:
            if tally.rule is Rule.SPREAD and tally.spread is not None:
                most = tally.spread.max_skew + least[id(tally)] - tally.matches_itself
                limits.append((tally.key, tally.sums, most, _NEVER))
            elif tally.rule is not Rule.NEAR:
                limits.append((tally.key, tally.sums, 0, 0))
            if not tally.of_node and not (tally.rule is Rule.NEAR and is_near_a_node):
                wide.append(tally)

        def by_tallies(some: Sequence[Tally], index: int) -> str:
            labels = nodes[index].metadata.labels
            sums = (
                (tally, tally.sums.get(labels[tally.key], 0) if tally.key in labels else None)
                for tally in some
            )
            return refusal_by(sums, least, some)

        def of_node(index: int) -> str:
            node = nodes[index]
            labels = node.metadata.labels
            for key, sums, most, lacking in limits:
                value = labels.get(key)
                if (lacking if value is None else sums.get(value, 0)) > most:
                    return by_tallies(tallies, index)
            if near and (refused := by_tallies(tallies, index)):
                return refused
            if spec.claims or node.devices is not None:
                return devices_for(spec, node, held.get(index, _NONE)).refused
            return ""

        found = alike.refusals = Refusals(
            tuple(dict.fromkeys(each.key for each in wide)),
            lambda index: bool(wide) and bool(by_tallies(wide, index)),
            of_node,
            leasts,
            not is_near_a_node,
        )
        return found

    def least(self, alike: Alike) -> tuple[int, ...] | None:
        """Return the smallest sums of these pods' constraints; None where several nodes make a domain.

        While they stay equal, only a change of a node's own pods changes what keeps the pods off that node.
        """
        own = self._own(alike)
        if all(each.of_node and each.rule is not Rule.NEAR for each in (*own, *alike.foreign)):
            return tuple(least_of(own).values())
        return None

    def put(self, pod: Pod, index: int) -> None:
        """Let a pod be on a node."""
        self.changed.append(index)
        if not self._has_begun:
            self._early.append((self.put, pod, index))
            return
        if pod.spec.claims:
            held = self._held.get(index, _NONE)
            got = devices_for(pod.spec, self._nodes[index], held).keys
            self._got[pod.metadata.key, index] = got
            self._held[index] = held | got
        if index in self._opened:
            self._opened[index].append(pod)
        self._count(pod, index, 1)

    def take(self, pod: Pod, index: int) -> None:
        """Let a pod be on a node no more."""
        self.changed.append(index)
        if not self._has_begun:
            self._early.append((self.take, pod, index))
            return
        if pod.spec.claims:
            got = self._got.pop((pod.metadata.key, index), pod.devices)
            self._held[index] = self._held.get(index, _NONE) - got
        self._count(pod, index, -1)

    def open(self, node: Node) -> int:
        """Have one more node, without pods, and return its index."""
        self._begin()
        index = len(self._nodes)
        self._nodes.append(node)
        self._opened[index] = []
        if self._spreads:
            shapes = len(self._examples)
            shape = self.shape_of()[index]
            for (key, counted), values in self._domains.items():
                value = node.metadata.labels.get(key)
                if value is not None and shape in counted:
                    values[value] += 1
            for sums in self._spreads:
                if sums.by_name:
                    sums.tally.enter(node)
                elif shape == shapes:
                    self._look_at_shapes(sums)
        return index

    def shut(self, index: int) -> None:
        """Have the last node no more."""
        for pod in self._opened.pop(index):
            self.take(pod, index)
            self.alike(pod).at.pop(index, None)
        node = self._nodes.pop()
        self._held.pop(index, None)
        if len(self._shape_of) <= index:
            return
        shape = self._shape_of.pop()
        domains = [(key, each) for (key, of), each in self._domains.items() if shape in of]
        named = (each.tally for each in self._spreads if each.by_name)
        domains += ((each.key, each.domains) for each in named if each.domain(node) is not None)
        for key, values in domains:
            value = node.metadata.labels.get(key)
            if value is not None:
                values[value] -= 1
                if not values[value]:
                    del values[value]

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        for index, node in enumerate(self._nodes):
            for pod in self._pods_of(node.metadata.name):
                self._count(pod, index, 1)
                if pod.devices:
                    self._held[index] = self._held.get(index, _NONE) | pod.devices
        for move, pod, index in self._early:
            move(pod, index)

    def _count(self, pod: Pod, index: int, by: int) -> None:
        alike = self.alike(pod)
        alike.at[index] = alike.at.get(index, 0) + by
        for sums, count in alike.counted:
            self._add(sums, index, by * count)

    def _add(self, sums: _Sums, index: int, count: int) -> None:
        tally, node = sums.tally, self._nodes[index]
        value = node.metadata.labels.get(tally.key)
        if (
            value is not None
            and (sums.shapes is None or self._shape_of[index] in sums.shapes)
            and not (sums.by_name and not tally.counts_node(node))
        ):
            tally.add(value, count)

    def _own(self, alike: Alike) -> list[Tally]:
        if alike.own is None:
            self._begin()
            found = tallies_of(alike.pod, None, ())
            alike.own = [each for each in found if each.rule in _REQUIRED]
            by_name = chooses_by_name(alike.pod.spec)
            for tally in alike.own:
                self._watch(_Sums(tally, by_name=by_name and tally.rule is Rule.SPREAD))
        return alike.own

    def _watch(self, sums: _Sums) -> None:
        """Keep a tally up to date from now on."""
        tally = sums.tally
        if tally.rule is Rule.SPREAD:
            self._spreads.append(sums)
            if sums.by_name:
                for node in self._nodes:
                    tally.enter(node)
            else:
                self.shape_of()
                self._look_at_shapes(sums)
        self._sums[tally.watch].append(sums)
        for alike in self._by_watch.get(tally.watch, ()):
            count = tally.count(alike.pod)
            if count:
                alike.counted.append((sums, count))
                for index, number in alike.at.items():
                    self._add(sums, index, number * count)

    def _look_at_shapes(self, sums: _Sums) -> None:
        """Find the domains of a spread constraint; nodes of one shape count alike."""
        tally, shape_of = sums.tally, self._shape_of
        sums.shapes = frozenset(
            shape for shape, node in enumerate(self._examples) if tally.counts_node(node)
        )
        key = tally.key, sums.shapes
        if key not in self._domains:
            self._domains[key] = Counter(
                value
                for node, shape in zip(self._nodes, shape_of, strict=True)
                if shape in sums.shapes
                and (value := node.metadata.labels.get(tally.key)) is not None
            )
        tally.domains = self._domains[key]

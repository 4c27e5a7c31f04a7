"""Placing many pods on many nodes: equal pods are checked against each node once per change.

Pods that ask for the same, with the same selectors and tolerations, fit on the same nodes. So a class keeps
the nodes that it fits on, in groups of those that all rules but that of resources treat alike, in the order
of their score, and how often each reason keeps it off the others. What other pods have to do with it is
counted by topology value (`neighbours`). A pod costs a look at the best of each group, not at all nodes.

Source: kubernetes v1.37 pkg/scheduler/schedule_one.go, and the scoring of plugins tainttoleration,
nodeaffinity, podtopologyspread and interpodaffinity. Known difference: unless `percentageOfNodesToScore` is
given, all nodes are looked at, where Kubernetes stops early in clusters of 100 nodes or more.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Generic, TypeVar

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodSpec
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.objects.taints import tolerates
from gpuscale.hpa.cluster.scheduling.claims import (
    FAULT,
    NO_DEVICES,
    DeviceFit,
    devices_for,
    is_served,
)
from gpuscale.hpa.cluster.scheduling.fit import (
    NodeState,
    misfits_but_devices,
    refusal,
    refusal_of,
    term_matches,
)
from gpuscale.hpa.cluster.scheduling.neighbours import (
    HOSTNAME,
    NO_LABEL,
    NOT_NEAR,
    ZONE,
    Rule,
    Tally,
    Watch,
    least_of,
    refusal_by,
    tallies_of,
    watches_of,
)
from gpuscale.hpa.cluster.scheduling.resources import pod_requests, unasked
from gpuscale.hpa.cluster.scheduling.scoring import (
    MOST,
    SchedulerSettings,
    nodes_to_score,
    resource_score,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placement:
    """The outcome of one attempt."""

    node: str | None
    message: str
    """Why no node was found; empty where one was."""
    devices: frozenset[DeviceKey] = frozenset()
    """What the pod's claims get there."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What all rules but that of resources know of a node."""

    disliked: int
    """PreferNoSchedule taints that the pods don't tolerate."""
    preferred: int
    """The weights of preferred node terms that hold."""
    values: tuple[str | None, ...]
    """Of the topology keys; of the host name only whether there is one."""
    devices: DeviceFit = DeviceFit()  # noqa: RUF009 - frozen
    """What the pods' claims get there, without the devices themselves."""


@dataclass(slots=True, eq=False)
class _Group:
    """The nodes of a kind that a class fits on."""

    size: int = 0
    best: list[tuple[int, int, str, int]] = field(default_factory=list)
    """A heap of nodes by score, then order; the last is the node's version, and another voids the entry."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """Nodes of one kind with the same sums of tallies by host name."""

    kind: _Kind
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Best:
    """The best node of a cell, and how many there are."""

    size: int
    score: int
    order: int
    name: str


@dataclass(slots=True, eq=False)
class _Class:
    """The nodes' suitability for a class of pods that ask for the same."""

    spec: PodSpec
    """Of one of them."""
    keys: tuple[str, ...]
    """Topology keys that matter to them."""
    requests: Mapping[str, int]
    more: Mapping[str, int]
    seen: int = 0
    """How many of the changes of nodes it has looked at."""
    kinds: dict[str, tuple[Node, _Kind]] = field(default_factory=dict)
    """Node, as it was when its kind was found."""
    fitting: dict[str, tuple[_Kind, int]] = field(default_factory=dict)
    """Node to its kind and score by resources."""
    groups: dict[_Kind, _Group] = field(default_factory=dict)
    reasons: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node to what keeps them off it."""
    counts: Counter[str] = field(default_factory=Counter)

    def kind_of(self, node: Node) -> _Kind:
        """Return a node's kind."""
        name, labels = node.metadata.name, node.metadata.labels
        known = self.kinds.get(name)
        if known is not None and known[0] is node:
            return known[1]
        tolerations = self.spec.tolerations
        kind = _Kind(
            sum(
                taint.effect == "PreferNoSchedule"
                and not any(tolerates(each, taint) for each in tolerations)
                for taint in node.taints
            ),
            sum(w for w, term in self.spec.preferred_node_terms if term_matches(term, node)),
            tuple(
                "" if key == HOSTNAME and key in labels else labels.get(key) for key in self.keys
            ),
        )
        self.kinds[name] = node, kind
        return kind


@dataclass(slots=True, eq=False)
class _Members:
    """Pods of a class that the same rules about other pods hold for."""

    fit: _Class
    pod: Pod
    """One of them."""
    tallies: list[Tally]
    nodes_version: int
    seen: dict[Watch, int] = field(default_factory=dict)
    """How many changes of a group of pods it has looked at."""
    seen_nodes: int = 0
    touched: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Node to its sums by host name, where it has any."""
    placed: dict[str, _Cell] = field(default_factory=dict)
    """The cell of each of those nodes that they fit on."""
    cells: dict[_Cell, _Group] = field(default_factory=dict)
    in_group: Counter[_Kind] = field(default_factory=Counter)
    """How many of those nodes are of a kind."""

    @property
    def hosts(self) -> list[Tally]:
        """Return the tallies by host name."""
        return [each for each in self.tallies if each.of_node]

    def refusal(self, cell: _Cell, least: Mapping[int, int]) -> str:
        """Return which rule about other pods keeps them off a cell's nodes; empty where none does.

        Args:
            cell: of the nodes.
            least: as `least_of` returns it.
        """
        return refusal_by(self._sums(cell), least, self.tallies)

    def _sums(self, cell: _Cell) -> Iterator[tuple[Tally, int | None]]:
        hosts = iter(cell.hosts)
        for tally in self.tallies:
            value = cell.kind.values[self.fit.keys.index(tally.key)]
            here = next(hosts) if tally.of_node else tally.sums.get(value or "", 0)
            yield tally, None if value is None else here

    def points(self, cells: Mapping[_Cell, int], weights: Mapping[str, int]) -> dict[_Cell, int]:
        """Return the weighted points of all plugins that compare nodes, for the cells of one choice.

        Args:
            cells: with their numbers of nodes.
            weights: of plugins.
        """
        found = dict.fromkeys(cells, 0)
        if weight := weights.get("TaintToleration", 0):
            most = max(each.kind.disliked for each in cells)
            for each in cells:
                found[each] += weight * (MOST - (MOST * each.kind.disliked // most if most else 0))
        weight = weights.get("NodeAffinity", 0)
        if weight and (most := max(each.kind.preferred for each in cells)) > 0:
            for each in cells:
                found[each] += weight * (MOST * each.kind.preferred // most)
        even = [each for each in self.tallies if each.rule is Rule.EVEN]
        if even and (weight := weights.get("PodTopologySpread", 0)):
            for each, points in self._evenness(even, cells).items():
                found[each] += weight * points
        weight = weights.get("DynamicResources", 0)
        if weight and (most := max(each.kind.devices.points for each in cells)) > 0:
            for each in cells:
                found[each] += weight * (MOST * each.kind.devices.points // most)
        if weight := weights.get("InterPodAffinity", 0):
            sums = {
                each: sum(sum_ or 0 for tally, sum_ in self._sums(each) if tally.rule is Rule.LIKED)
                for each in cells
            }
            least, most = min(sums.values()), max(sums.values())
            if most > least:
                for each, sum_ in sums.items():
                    found[each] += weight * int(MOST * ((sum_ - least) / (most - least)))
        return found

    def _evenness(self, even: list[Tally], cells: Mapping[_Cell, int]) -> dict[_Cell, int]:
        """Return the points for few pods of the same set in a node's domains."""
        places = [self.fit.keys.index(tally.key) for tally in even]
        counted = {
            each: size
            for each, size in cells.items()
            if not self.pod.spec.spread or None not in [each.kind.values[place] for place in places]
        }
        logs = {}
        for tally, place in zip(even, places, strict=True):
            values = {each.kind.values[place] for each in counted}
            domains = sum(counted.values()) if tally.of_node else len(values)
            logs[id(tally)] = math.log(domains + 2)
        raw = {}
        for each in counted:
            points = 0.0
            for tally, sum_ in self._sums(each):
                if tally.rule is Rule.EVEN and tally.spread and sum_ is not None:
                    points += sum_ * logs[id(tally)] + (tally.spread.max_skew - 1)
            raw[each] = math.floor(points + 0.5)
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        return {
            each: MOST * (most + least - points) // most if most else MOST
            for each, points in raw.items()
        }


@dataclass(slots=True, eq=False)
class _PodGroup:
    """The nodes that have pods of a group, and which of them changed, in order."""

    nodes: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)


def no_selector(_pod: Pod) -> Selector:
    """Return a selector without conditions: nothing selects the pod."""
    return Selector()


class Placer:
    """Places pods one after the other, on nodes that also change by themselves.

    The node with the most points is taken. Kubernetes breaks ties at random; here the first of them is taken,
    so that the same cluster always gives the same answer, whatever its nodes are called.

    Args:
        nodes: with what is on them, oldest first.
        settings: the scheduler's.
        selector_of: returns what the Services and the ReplicaSet of a pod select pods by.
    """

    def __init__(
        self,
        nodes: Iterable[NodeState],
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008 - frozen
        selector_of: Callable[[Pod], Selector] = no_selector,
    ) -> None:
        self._settings = settings
        self._selector_of = selector_of
        self._states: dict[str, NodeState] = {}
        self._order: dict[str, int] = {}
        self._joined = 0
        self._turn: tuple[int, list[str]] = -1, []
        """Version of the nodes, and their names in the order in which they are looked at."""
        self._next = 0
        """Where in that order the next search begins."""
        self._changed: list[str] = []
        """Names of nodes, once for each version of theirs."""
        self._versions: Counter[str] = Counter()
        self._nodes_version = 0
        """Grows with each change of a node itself, not of its pods."""
        self._classes: dict[Hashable, _Class] = {}
        self._members: dict[Hashable, _Members] = {}
        self._known: dict[tuple[int, Hashable], tuple[PodSpec, Hashable]] = {}
        """Keys of members by the identity of a spec; the spec is kept so that no other gets its number."""
        self._pods: dict[Watch, _PodGroup] = {}
        self._priorities: Counter[int] = Counter()
        """How many pods on nodes have it."""
        self._foreign_keys: dict[str, None] = {}
        """Topology keys of terms of pods that are there."""
        self.update({state.name: state for state in nodes})

    def update(self, nodes: Mapping[str, NodeState]) -> None:
        """Take over what is on the nodes now; those that are not given are gone."""
        for name in [name for name in self._states if name not in nodes]:
            self._put(name, None)
        for name, state in nodes.items():
            if self._states.get(name) is not state:
                self._put(name, state)

    def place(self, pod: Pod) -> Placement:
        """Return where a pod goes, and let it take its room there."""
        members = self._members_of(pod)
        cells, reasons = self._cells(members)
        if not cells:
            fault = next((each for each in reasons if each.startswith(FAULT)), "")
            return Placement(None, fault or refusal(len(self._states), reasons))
        if self._settings.percentage_of_nodes is not None:
            cells = self._in_turn(members, cells, self._settings.percentage_of_nodes)
        points = members.points({c: b.size for c, b in cells.items()}, self._settings.weights)
        best = min(
            (-points[cell] - found.score, found.order, found.name) for cell, found in cells.items()
        )
        name = best[2]
        before = self._states[name]
        state = before.with_pod(pod.spec, pod)
        self._put(name, state)
        return Placement(name, "", state.held - before.held)

    def best_nodes(self, pod: Pod) -> tuple[str, ...]:
        """Return all nodes with the most points, oldest first; Kubernetes takes any of them."""
        members = self._members_of(pod)
        cells, _ = self._cells(members)
        if not cells:
            return ()
        points = members.points({c: b.size for c, b in cells.items()}, self._settings.weights)
        none = (0,) * len(members.hosts)
        totals: dict[str, int] = {}
        for name, (kind, score) in members.fit.fitting.items():
            cell = _Cell(kind, members.touched.get(name, none))
            if cell in points:
                totals[name] = points[cell] + score
        most = max(totals.values())
        return tuple(
            sorted((n for n, total in totals.items() if total == most), key=self._order.__getitem__)
        )

    def reserve(self, name: str, pod: Pod) -> None:
        """Let a pod take room on a node, whether it is there or not, until the next update."""
        self._put(name, self._states[name].with_pod(pod.spec, pod))

    def has_pods_below(self, priority: int) -> bool:
        """Return whether any pod has a lower priority."""
        return any(count and each < priority for each, count in self._priorities.items())

    @property
    def states(self) -> Mapping[str, NodeState]:
        """Return the nodes with what is on them, by name."""
        return self._states

    def promising_nodes(self, pod: Pod) -> list[str]:
        """Return the nodes that a pod might fit on if others left, of those it does not fit on."""
        members = self._members_of(pod)
        kind = members.fit
        found = []
        for name, state in self._states.items():
            reasons = kind.reasons.get(name) or self._refused(
                members, state, kind.fitting[name][0].devices
            )
            if reasons and not any(map(self._is_final(kind, state).__contains__, reasons)):
                found.append(name)
        return found

    def misfits_with(self, pod: Pod, state: NodeState) -> tuple[str, ...]:
        """Return why a pod would not fit on a node in this state; empty means it would."""
        members = self._members_of(pod)
        found = misfits_but_devices(pod.spec, state)
        if found:
            return found
        before = [(tally, tally.parts.get(state.name)) for tally in members.tallies]
        for tally in members.tallies:
            tally.put(state.name, tally.share(state))
        found = self._refused(members, state, devices_for(pod.spec, state.node, state.held))
        for tally, share in before:
            tally.put(state.name, share)
        return found

    def _refused(self, members: _Members, state: NodeState, devices: DeviceFit) -> tuple[str, ...]:
        hosts = tuple(tally.parts.get(state.name, ("", 0))[1] for tally in members.hosts)
        cell = _Cell(members.fit.kind_of(state.node), hosts)
        refused = members.refusal(cell, least_of(members.tallies)) or devices.refused
        return (refused,) if refused else ()

    @staticmethod
    def _is_final(kind: _Class, state: NodeState) -> frozenset[str]:
        """Return the reasons against a node that remain whoever leaves."""
        short = (
            f"Insufficient {name}"
            for name, amount in kind.requests.items()
            if amount > (state.node.allocatable[name].nano if name in state.node.allocatable else 0)
            and not is_served(name, state.node)
        )
        return frozenset(
            (refusal_of(kind.spec, state.node), NO_LABEL, NOT_NEAR, NO_DEVICES, *short)
        )

    # Nodes and their pods

    def _put(self, name: str, state: NodeState | None) -> None:
        before = self._states.get(name)
        if state is None:
            del self._states[name], self._order[name]
        else:
            if before is None:
                self._joined += 1
                self._order[name] = self._joined
            self._states[name] = state
        self._versions[name] += 1
        self._changed.append(name)
        if before is None or state is None or before.node is not state.node:
            self._nodes_version += 1
        # What counts of a pod for others is the same as long as its metadata are.
        old = {id(pod.metadata): pod for pod in before.pods} if before else {}
        new = {id(pod.metadata): pod for pod in state.pods} if state else {}
        for gone, there, step in ((old, new, -1), (new, old, 1)):
            for pod in (gone[each] for each in gone.keys() - there.keys()):
                self._priorities[pod.spec.priority] += step
                for watch in watches_of(pod):
                    group = self._pods.setdefault(watch, _PodGroup())
                    group.nodes[name] += step
                    group.changed.append(name)
                for term in pod.spec.affinity:
                    self._foreign_keys.setdefault(term.topology_key)

    # Classes

    def _members_of(self, pod: Pod) -> _Members:
        meta, spec = pod.metadata, pod.spec
        mine: Hashable = (meta.namespace, frozenset(meta.labels.items()), meta.owner)
        known = self._known.get((id(spec), mine))
        if known is None:
            known = spec, self._key_of(pod)
            self._known[id(spec), mine] = known
        key = known[1], tuple(self._foreign_keys)
        members = self._members.get(key)
        if members is None or members.nodes_version != self._nodes_version:
            members = self._members[key] = self._new_members(pod)
        self._look(members.fit)
        self._count(members)
        return members

    def _key_of(self, pod: Pod) -> Hashable:
        spec, meta = pod.spec, pod.metadata
        return (
            demands(spec),
            meta.namespace,
            frozenset(meta.labels.items()),
            str(self._selector_of(pod)),
            repr(spec.spread),
            repr(spec.affinity),
        )

    def _new_members(self, pod: Pod) -> _Members:
        settings = self._settings
        default = self._selector_of(pod) if settings.spreads_by_default else None
        tallies = tallies_of(pod, default, self._foreign_keys)
        keys = tuple(sorted({tally.key for tally in tallies}))
        fit = self._classes.setdefault(
            (demands(pod.spec), keys),
            _Class(pod.spec, keys, pod_requests(pod.spec), unasked(pod.spec)),
        )
        members = _Members(fit, pod, tallies, self._nodes_version)
        for tally in tallies:
            if tally.rule is Rule.SPREAD:
                for state in self._states.values():
                    tally.enter(state.node)
        return members

    def _look(self, kind: _Class) -> None:
        """Check a class against the nodes that changed since its last check."""
        if kind.seen == len(self._changed):
            return
        for name in dict.fromkeys(self._changed[kind.seen :]):
            before = kind.fitting.pop(name, None)
            if before is not None:
                kind.groups[before[0]].size -= 1
            kind.counts.subtract(kind.reasons.pop(name, ()))
            state = self._states.get(name)
            if state is None:
                kind.kinds.pop(name, None)
                continue
            found = misfits_but_devices(kind.spec, state)
            if found:
                kind.reasons[name] = found
                kind.counts.update(found)
                continue
            group_kind = kind.kind_of(state.node)
            if kind.spec.claims or state.node.devices:
                devices = devices_for(kind.spec, state.node, state.held)
                group_kind = replace(group_kind, devices=replace(devices, keys=frozenset()))
            score = resource_score(self._settings, kind.requests, kind.more, state)
            kind.fitting[name] = group_kind, score
            group = kind.groups.setdefault(group_kind, _Group())
            group.size += 1
            heapq.heappush(group.best, (-score, self._order[name], name, self._versions[name]))
        kind.counts = +kind.counts
        kind.seen = len(self._changed)

    def _count(self, members: _Members) -> None:
        """Bring the tallies up to date, and the cells of the nodes that have pods which count."""
        changed: dict[str, None] = {}
        for watch in {tally.watch for tally in members.tallies}:
            group = self._pods.get(watch)
            if group is None:
                continue
            seen = members.seen.get(watch)
            names = dict.fromkeys(group.nodes if seen is None else group.changed[seen:])
            members.seen[watch] = len(group.changed)
            for name in names:
                state = self._states.get(name)
                for tally in members.tallies:
                    if tally.watch == watch:
                        tally.put(name, None if state is None else tally.share(state))
            changed |= names
        for name in self._changed[members.seen_nodes :]:
            if name in members.touched:
                changed[name] = None
        members.seen_nodes = len(self._changed)
        hosts = members.hosts
        for name in changed if hosts else ():
            cell = members.placed.pop(name, None)
            if cell is not None:
                members.cells[cell].size -= 1
                members.in_group[cell.kind] -= 1
            sums = tuple(tally.parts.get(name, ("", 0))[1] for tally in hosts)
            if not any(sums):
                members.touched.pop(name, None)
                continue
            members.touched[name] = sums
            found = members.fit.fitting.get(name)
            if found is not None:
                kind, score = found
                cell = members.placed[name] = _Cell(kind, sums)
                members.in_group[kind] += 1
                there = members.cells.setdefault(cell, _Group())
                there.size += 1
                entry = -score, self._order[name], name, self._versions[name]
                heapq.heappush(there.best, entry)

    # Choices

    def _cells(self, members: _Members) -> tuple[dict[_Cell, _Best], Counter[str]]:
        """Return the cells that pods may go to, and how often each reason keeps them off a node."""
        kind, found = members.fit, dict[_Cell, _Best]()
        reasons = Counter(kind.counts)
        least = least_of(members.tallies)
        none = (0,) * len(members.hosts)
        sized = [
            (_Cell(each, none), group, group.size - members.in_group[each], members.touched)
            for each, group in kind.groups.items()
        ]
        sized += [(cell, group, group.size, {}) for cell, group in members.cells.items()]
        for cell, group, size, without in sized:
            refused = members.refusal(cell, least) if size and members.tallies else ""
            refused = refused or cell.kind.devices.refused
            if refused:
                reasons[refused] += size
            elif size:
                score, order, name = self._first(group, without, members, cell)
                found[cell] = _Best(size, score, order, name)
        if any(each.startswith(FAULT) for each in reasons):
            found.clear()  # one node whose claims can't be judged ends the attempt
        return found, reasons

    def _in_turn(
        self, members: _Members, cells: Mapping[_Cell, _Best], percentage: int
    ) -> dict[_Cell, _Best]:
        """Return the cells of the nodes that come next, zone by zone, as far as Kubernetes looks.

        Source: kubernetes v1.37 pkg/scheduler/schedule_one.go (findNodesThatPassFilters), backend/cache
        (node_tree.go: a node of each zone in turn).
        """
        if self._turn[0] != self._nodes_version:
            zones: dict[str, list[str]] = {}
            for name, state in self._states.items():
                zones.setdefault(state.node.metadata.labels.get(ZONE, ""), []).append(name)
            in_turn = chain.from_iterable(zip_longest(*zones.values()))
            self._turn = self._nodes_version, [name for name in in_turn if name is not None]
        names = self._turn[1]
        left = nodes_to_score(len(names), percentage)
        none = (0,) * len(members.hosts)
        found: dict[_Cell, _Best] = {}
        start = self._next % len(names)
        for name in chain(names[start:], names[:start]):
            if not left:
                break
            self._next += 1
            fit = members.fit.fitting.get(name)
            cell = _Cell(fit[0], members.touched.get(name, none)) if fit else None
            if fit is None or cell is None or cell not in cells:
                continue
            left -= 1
            here, size = (fit[1], self._order[name], name), 0
            if best := found.get(cell):
                size, other = best.size, (best.score, best.order, best.name)
                here = min(here, other, key=lambda each: (-each[0], each[1]))
            found[cell] = _Best(size + 1, *here)
        return found

    def _first(
        self, group: _Group, without: Mapping[str, object], members: _Members, cell: _Cell
    ) -> tuple[int, int, str]:
        """Return score, order and name of a cell's best node.

        Args:
            group: the cell's, or that of all nodes of its kind.
            without: nodes of the group that are not in the cell.
            members: whose cell it is.
            cell: the cell.
        """
        heap, aside = group.best, []
        while True:
            score, order, name, version = heap[0]
            is_valid = version == self._versions[name]
            if is_valid and group is members.cells.get(cell):
                is_valid = members.placed.get(name) == cell
            if is_valid and name not in without:
                break
            if is_valid:
                aside.append(heap[0])
            heapq.heappop(heap)
        for entry in aside:
            heapq.heappush(heap, entry)
        return -score, order, name


class ByDemands(Generic[T]):
    """What is worked out once for pods that ask for the same.

    Args:
        make: works it out, for one of them.
        more: returns what else must be equal.
    """

    def __init__(
        self, make: Callable[[PodSpec], T], more: Callable[[PodSpec], Hashable] = lambda _spec: None
    ) -> None:
        self._make, self._more = make, more
        self._by_demands: dict[Hashable, T] = {}
        self._by_spec: dict[int, tuple[PodSpec, T]] = {}
        """By the identity of a spec; the spec is kept so that no other gets its number."""

    def of(self, spec: PodSpec) -> T:
        known = self._by_spec.get(id(spec))
        if known is None:
            key = demands(spec), self._more(spec)
            if key not in self._by_demands:
                self._by_demands[key] = self._make(spec)
            known = self._by_spec[id(spec)] = spec, self._by_demands[key]
        return known[1]


def demands(spec: PodSpec) -> Hashable:
    """Return a key that is equal for pods which fit on the same nodes."""
    return (
        tuple(sorted(pod_requests(spec).items())),
        tuple(sorted(unasked(spec).items())),
        tuple(sorted(spec.node_selector.items())),
        repr(spec.required_node_terms),
        repr(spec.preferred_node_terms),
        spec.tolerations,
        spec.claims,
    )

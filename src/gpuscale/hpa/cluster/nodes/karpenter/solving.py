"""Where pods would go: nodes that are there, nodes bought for other pods of the same solve, new nodes.

Source: Karpenter 1.15 pkg/controllers/provisioning/scheduling (scheduler.go, queue.go, existingnode.go).
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpuscale.base.objects.pods import NodeSelectorTerm, Pod
from gpuscale.base.objects.requests import plus
from gpuscale.base.objects.taints import Taint
from gpuscale.hpa.cluster.nodes.karpenter.asking import Ask, PodClass, PodClasses
from gpuscale.hpa.cluster.nodes.karpenter.claims import (
    ClaimState,
    Daemon,
    Shape,
    Template,
    by_weight,
    room_of,
    shape_of,
)
from gpuscale.hpa.cluster.nodes.karpenter.requirements import (
    HOSTNAME,
    NODE_POOL,
    Requirements,
    all_of,
    exactly,
    suits,
    values_of,
)
from gpuscale.hpa.cluster.nodes.karpenter.topology import (
    Bearing,
    Ground,
    Place,
    Topology,
    repels,
    who,
)
from gpuscale.hpa.cluster.nodes.policy import PoolNode
from gpuscale.hpa.cluster.nodes.pools import INSTANCE_TYPE, NodePool, Offering
from gpuscale.hpa.cluster.scheduling.resources import NANO, pod_requests

_CORDONED = Taint("node.kubernetes.io/unschedulable")


@dataclass(eq=False)
class Existing:
    """A node that is there, or on its way."""

    node: PoolNode
    shape: Shape | None
    """None where its pool no longer has its type."""
    free: dict[str, int]
    overdrawn: bool
    """It has less than nothing left of something, and takes no pod."""
    taints: tuple[Taint, ...]
    rests: bool
    """Its pods came or went too lately for it to take pods of nodes that are consolidated."""

    @property
    def name(self) -> str:
        return self.node.state.name

    @property
    def initialized(self) -> bool:
        return self.node.ready

    @cached_property
    def labels(self) -> dict[str, str]:
        """Return its labels, with those that Karpenter puts on each node of its own."""
        known = {NODE_POOL: self.node.pool, **self.node.offering.labels}
        if self.node.instance_type:
            known[INSTANCE_TYPE] = self.node.instance_type
        return {**known, **self.node.state.node.metadata.labels}

    @cached_property
    def requirements(self) -> Requirements:
        """Return what its labels promise."""
        return exactly({**self.labels, HOSTNAME: self.host})

    @property
    def host(self) -> str:
        return self.labels.get(HOSTNAME, self.name)

    @property
    def is_there(self) -> bool:
        """Return whether it has joined the cluster."""
        return self.node.joined_ms is not None or self.node.ready

    def keep_free(self, daemons: Iterable[Daemon], pods: Iterable[Pod]) -> None:
        """Keep the room of pods that DaemonSets will still make here.

        Args:
            daemons: all DaemonSets.
            pods: that are here.
        """
        coming: dict[str, int] = {}
        for each in daemons:
            if each.runs_on(self.labels, self.taints):
                coming = plus(coming, each.requests)
        for pod in pods if coming else ():
            owner = pod.metadata.owner
            if owner is not None and owner.kind == "DaemonSet":
                for name, amount in pod_requests(pod.spec).items():
                    coming[name] = coming.get(name, 0) - amount
        for name, amount in coming.items():
            if amount > 0:
                self.free[name] = self.free.get(name, 0) - amount
        self.overdrawn = min(self.free.values()) < 0

    def takes(self, ask: Ask) -> bool:
        """Return whether a pod may go here, as far as its room allows."""
        if self.taints and ask.untolerated(self.taints):
            return False
        return not ask.requirements or suits(ask.requirements, self.labels)


class Snapshot:
    """Pools and nodes at one moment, prepared for several solves.

    Args:
        pools: of Karpenter.
        nodes: of these pools that are not being removed.
        is_sold_out: says of a type's name and an offering whether it can't be had now.
        rests: says of a node whether its pods came or went too lately.
        leaving: further nodes of these pools that are still there.
        pods: node to the pods on it.
        daemons: a pod of each DaemonSet.
    """

    def __init__(
        self,
        pools: Sequence[NodePool],
        nodes: Iterable[PoolNode],
        is_sold_out: Callable[[str, Offering], bool],
        rests: Callable[[PoolNode], bool],
        leaving: Sequence[PoolNode],
        pods: Mapping[str, Sequence[Pod]],
        daemons: Iterable[Pod] = (),
    ) -> None:
        self.pools = {pool.name: pool for pool in pools}
        shapes = {
            pool.name: {kind.name: shape_of(kind, is_sold_out) for kind in pool.instance_types}
            for pool in pools
        }
        known = {key for pool in pools for kind in pool.instance_types for key in kind.labels}
        self.classes = PodClasses(
            tolerate_preferences=any(
                taint.effect == "PreferNoSchedule" for pool in pools for taint in pool.taints
            )
        )
        served = [_daemon(pod) for pod in daemons if not pod.spec.claims]
        templates = [
            Template(pool, shapes[pool.name].values(), known, served) for pool in by_weight(pools)
        ]
        self.templates = [each for each in templates if each.shapes]
        self._shapes = [shape for of_pool in shapes.values() for shape in of_pool.values()]
        self._pods = pods
        ordered = sorted(nodes, key=lambda node: (not node.ready, node.state.name))
        self.nodes = [
            _existing(node, shapes.get(node.pool, {}), rests=rests(node)) for node in ordered
        ]
        self.leaving = [_existing(node, shapes.get(node.pool, {}), rests=False) for node in leaving]
        for each in self.nodes if served else ():
            each.keep_free(served, pods.get(each.name, ()))
        self.sizes = Counter(node.pool for node in leaving)
        self.sizes.update(each.node.pool for each in self.nodes)
        self.left = {
            pool.name: {name: amount.nano for name, amount in pool.limits.items()} for pool in pools
        }
        """Of each pool's limits beside its nodes."""
        for each in self.nodes:
            self._charge(self.left, each, -1)
        self.overfull = {
            name for name, left in self.left.items() if any(amount < 0 for amount in left.values())
        }
        """Pools whose nodes exceed their limits, so that not even a replacement is created."""

    @cached_property
    def has_repelling_pods(self) -> bool:
        """Return whether a pod that is there keeps others away."""
        return any(
            repels(term)
            for each in (*self.nodes, *self.leaving)
            for pod in self._pods.get(each.name, ())
            for term in pod.spec.affinity
        )

    @cached_property
    def ground(self) -> Ground:
        """Return the nodes and their pods as rules about other pods see them."""
        places = [
            Place(
                # One that has not joined has no labels yet.
                {**each.labels, HOSTNAME: each.host} if each.is_there else {},
                {**each.labels, HOSTNAME: each.host},
                each.node.state.node.taints,
                self._pods.get(each.name, ()),
            )
            for each in (*self.nodes, *self.leaving)
        ]
        return Ground(places, len(self.nodes), self._domains)

    def _domains(self) -> dict[str, dict[str, list[tuple[Taint, ...]]]]:
        """Return the labels' values that the pools could make, of any type, with the pools' taints."""
        found: dict[str, dict[str, list[tuple[Taint, ...]]]] = {}
        for pool in self.pools.values():
            own = (*map(values_of, pool.requirements), *exactly(pool.labels).values())
            parts = [all_of((*own, *shape.requirements.values())) for shape in self._shapes]
            parts.append({key: each for key, each in all_of(own).items() if not each.others})
            for part in parts:
                for key, values in part.items():
                    of_key = found.setdefault(key, {})
                    for value in values.values:
                        of_key.setdefault(value, []).append(pool.taints)
        return found

    def _charge(self, left: dict[str, dict[str, int]], node: Existing, sign: int) -> None:
        limits = left.get(node.node.pool)
        if not limits:
            return
        capacity = node.shape.capacity if node.shape is not None else node.free
        for name in limits:
            limits[name] += sign * (NANO if name == "nodes" else capacity.get(name, 0))

    def left_without(self, nodes: Iterable[int]) -> dict[str, dict[str, int]]:
        """Return what is left of the pools' limits once these nodes are gone."""
        left = {name: dict(limits) for name, limits in self.left.items()}
        for index in nodes:
            self._charge(left, self.nodes[index], 1)
        return left

    def next_fitting(self, ask: Ask) -> bool:
        """Look for one more node with room; return whether there is one, at the end of `ask.found`."""
        for index in range(ask.scanned, len(self.nodes)):
            node = self.nodes[index]
            if not node.overdrawn and _has(node.free, ask) and node.takes(ask):
                ask.found.append(index)
                ask.scanned = index + 1
                return True
        ask.scanned = len(self.nodes)
        return False


def _existing(node: PoolNode, shapes: Mapping[str, Shape], *, rests: bool) -> Existing:
    state = node.state
    free = room_of(state.node.allocatable)
    for name, amount in state.used.items():
        if name in free:
            free[name] -= amount
    taints = state.node.taints
    if state.node.unschedulable:
        taints = (*taints, _CORDONED)
    overdrawn = min(free.values()) < 0
    return Existing(node, shapes.get(node.instance_type), free, overdrawn, taints, rests)


def _daemon(pod: Pod) -> Daemon:
    spec = pod.spec
    selected = exactly(spec.node_selector).values()
    terms = spec.required_node_terms or (NodeSelectorTerm(),)
    return Daemon(
        pod_requests(spec),
        [all_of((*selected, *map(values_of, term.labels))) for term in terms],
        spec.tolerations,
    )


def _has(free: Mapping[str, int], ask: Ask) -> bool:
    for name, amount in ask.requests:  # noqa: SIM110 - `all` takes twice as long
        if free.get(name, 0) < amount:
            return False
    return True


@dataclass(slots=True, eq=False)
class Claim:
    """A node to buy."""

    state: ClaimState
    pods: list[Pod]
    turn: int
    """Where it stands among claims with as many pods: smaller comes first."""
    host: str
    """Its name until it has one."""


@dataclass(slots=True, eq=False)
class _Queue:
    """The claims that may still take a pod of one kind, in the order in which they are tried."""

    seen: int = 0
    """How many of the claims it has taken in."""
    entries: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of pods, turn, and the claim's place; what is out of date sorts too early, never too late."""


@dataclass(slots=True, eq=False)
class _Walk:
    """How far the search for room on existing nodes has come for pods of one kind."""

    position: int = 0
    """In the nodes that had room; what is behind it has refused for good, or is set aside."""
    aside: list[int] = field(default_factory=list)
    """Places of nodes that other pods keep them off, for now."""


class Solve:
    """Places pods; nodes and claims only fill up.

    Args:
        snapshot: what is there.
        without: places of nodes that are taken away.
        consolidating: nodes that rest take only pods that have no node, or lose theirs anyway.
    """

    def __init__(
        self, snapshot: Snapshot, without: Iterable[int] = (), *, consolidating: bool = False
    ) -> None:
        self.claims: list[Claim] = []
        self.placed: dict[int, list[Pod]] = {}
        """Place of an existing node to the pods that would go there."""
        self.errors: dict[str, str] = {}
        """Key of a pod that would go nowhere to the reason."""
        self._snapshot = snapshot
        self._without = frozenset(without)
        self._consolidating = consolidating
        self._left = snapshot.left_without(self._without)
        self._free: dict[int, dict[str, int]] = {}
        """Of the existing nodes that took pods."""
        self._walks: dict[tuple[Hashable, bool], _Walk] = {}
        self._queues: dict[Hashable, _Queue] = {}
        self._turn = 0
        self._bought: Counter[str] = Counter()
        self._found = 0
        """How many pods have a place."""
        self._refused: dict[tuple[PodClass, Hashable, bool], int] = {}
        """How many had one when a pod of a kind had none: until there are more, none like it has."""
        self._topology: Topology | None = None
        """None where no pod has a rule about others."""

    def place(self, pods: Iterable[Pod], moved: Iterable[Pod] = ()) -> None:
        """Find a place for each pod, the largest first.

        Args:
            pods: those that wait, or lose their node anyway.
            moved: those of nodes that are taken away.
        """
        kinds = self._snapshot.classes.of
        by_size: dict[tuple[int, int], list[_Entry]] = {}
        for listed, is_moved in ((pods, False), (moved, True)):
            for pod in listed:
                kind = kinds(pod.spec)
                by_size.setdefault(kind.size, []).append((pod, kind, is_moved))
        self._topology = self._rules_of(entry for entries in by_size.values() for entry in entries)
        failed: deque[_Entry] = deque()
        for size in sorted(by_size):
            failed.extend(
                entry for entry in sorted(by_size[size], key=_oldest) if not self._try(*entry)
            )
        # What failed goes to the end of the queue: company that it asks for may have come meanwhile.
        without_success = 0
        while self._topology is not None and without_success < len(failed):
            entry = failed.popleft()
            if self._try(*entry):
                without_success = 0
            else:
                failed.append(entry)
                without_success += 1
        reasons: dict[Hashable, str] = {}
        for pod, kind, _ in failed:
            alike = kind, self._who(pod)
            if alike not in reasons:
                reasons[alike] = self._why_not(kind, pod)
            self.errors[pod.metadata.key] = reasons[alike]

    def _rules_of(self, entries: Iterable["_Entry"]) -> Topology | None:
        """Return the groups of the pods' rules; None where neither they nor pods that are there have some."""
        listed = list(entries)
        with_rules = [
            (pod, kind) for pod, kind, _ in listed if pod.spec.spread or pod.spec.affinity
        ]
        if not listed or not (with_rules or self._snapshot.has_repelling_pods):
            return None
        keys = {pod.metadata.key for pod, _, _ in listed}
        topology = Topology(self._snapshot.ground, self._without, keys)
        alike = {(kind, who(pod)): pod for pod, kind in reversed(with_rules) if kind.asks}
        for (kind, of), pod in reversed(alike.items()):
            topology.bearing(kind.asks[0], pod, of)
        return None if topology.is_empty else topology

    def _who(self, pod: Pod) -> Hashable:
        """Return what is equal for pods that rules about other pods treat alike."""
        return None if self._topology is None else who(pod)

    def _try(self, pod: Pod, kind: PodClass, is_moved: bool) -> bool:
        """Place a pod, if it has to be without what it only prefers."""
        of = self._who(pod)
        if self._refused.get((kind, of, is_moved)) == self._found:
            return False
        for ask in kind.asks:
            bearing = None if self._topology is None else self._topology.bearing(ask, pod, of)
            if (
                self._on_existing(ask, of, bearing, pod, is_moved)
                or self._on_claim(ask, of, bearing, pod)
                or self._on_new(ask, bearing, pod)
            ):
                self._found += 1
                return True
        self._refused[kind, of, is_moved] = self._found
        return False

    def _on_existing(
        self, ask: Ask, of: Hashable, bearing: Bearing | None, pod: Pod, is_moved: bool
    ) -> bool:
        snapshot, found = self._snapshot, ask.found
        walk = self._walks.setdefault(((ask, of), is_moved), _Walk())
        for at, index in enumerate(walk.aside):
            if not self._is_open(index, ask, bearing):
                walk.aside[at] = -1
            elif bearing is None or bearing.takes(self._domain_of(index)):
                self._put(index, ask, bearing, pod)
                walk.aside = [each for each in walk.aside if each >= 0]
                return True
        walk.aside = [each for each in walk.aside if each >= 0]
        while walk.position < len(found) or snapshot.next_fitting(ask):
            index = found[walk.position]
            rests = is_moved and self._consolidating and snapshot.nodes[index].rests
            if index not in self._without and not rests and self._is_open(index, ask, bearing):
                if bearing is None or bearing.takes(self._domain_of(index)):
                    self._put(index, ask, bearing, pod)
                    return True
                walk.aside.append(index)
            walk.position += 1
        return False

    def _is_open(self, index: int, ask: Ask, bearing: Bearing | None) -> bool:
        """Return whether nothing is against a node that would be so for good."""
        free = self._free.get(index)
        if free is None:
            free = self._free[index] = dict(self._snapshot.nodes[index].free)
        return _has(free, ask) and (
            bearing is None or bearing.takes_host(self._snapshot.nodes[index].host)
        )

    def _domain_of(self, index: int) -> Callable[[str], str | None]:
        existing = self._snapshot.nodes[index]
        return lambda key: existing.host if key == HOSTNAME else existing.labels.get(key)

    def _put(self, index: int, ask: Ask, bearing: Bearing | None, pod: Pod) -> None:
        free = self._free[index]
        for name, amount in ask.requests:
            free[name] -= amount
        self.placed.setdefault(index, []).append(pod)
        if self._topology is not None and bearing is not None:
            existing = self._snapshot.nodes[index]
            self._topology.record(
                bearing, existing.taints, lambda: existing.requirements, existing.host
            )

    def _on_claim(self, ask: Ask, of: Hashable, bearing: Bearing | None, pod: Pod) -> bool:
        queue = self._queues.setdefault((ask, of), _Queue())
        entries = queue.entries
        for place in range(queue.seen, len(self.claims)):
            claim = self.claims[place]
            if claim.state.with_pod(ask) is not None:  # what refuses a pod now does so for good
                heapq.heappush(entries, (len(claim.pods), claim.turn, place))
        queue.seen = len(self.claims)
        aside: list[tuple[int, int, int]] = []
        is_placed = False
        while entries and not is_placed:
            count, turn, place = entries[0]
            claim = self.claims[place]
            if (count, turn) != (len(claim.pods), claim.turn):
                heapq.heapreplace(entries, (len(claim.pods), claim.turn, place))
                continue
            after = self._after(claim.state, ask, bearing, claim.host)
            if after is None:
                heapq.heappop(entries)
                if (
                    bearing is not None
                    and bearing.takes_host(claim.host)
                    and claim.state.with_pod(ask) is not None
                ):
                    aside.append((count, turn, place))
                continue
            claim.state = after
            claim.pods.append(pod)
            # A stable sort by the number of pods puts it before those that had as many already.
            self._turn += 1
            claim.turn = -self._turn
            heapq.heapreplace(entries, (len(claim.pods), claim.turn, place))
            self._count(claim, bearing)
            is_placed = True
        for entry in aside:
            heapq.heappush(entries, entry)
        return is_placed

    def _after(
        self, state: ClaimState, ask: Ask, bearing: Bearing | None, host: str
    ) -> ClaimState | None:
        """Return a claim with one pod more; None where it can't hold it."""
        if bearing is None or bearing.is_free:
            return state.with_pod(ask)
        base = state.with_ask(ask)
        domains = None if base is None else bearing.narrowed(base, host)
        return None if domains is None else state.with_pod(ask, domains)

    def _count(self, claim: Claim, bearing: Bearing | None) -> None:
        """Let the groups know of the last pod of a claim."""
        if self._topology is not None and bearing is not None:
            state = claim.state
            taints = state.template.pool.taints
            self._topology.record(bearing, taints, lambda: state.requirements, claim.host)

    def _on_new(self, ask: Ask, bearing: Bearing | None, pod: Pod) -> bool:
        for template in self._snapshot.templates:
            begun, host = self._begun(template), self._next_host
            state = None if isinstance(begun, str) else self._after(begun, ask, bearing, host)
            if state is None:
                continue
            self._turn += 1
            self.claims.append(Claim(state, [pod], self._turn, host))
            self._count(self.claims[-1], bearing)
            self._bought[template.pool.name] += 1
            # The largest that it may become is charged, since nobody knows yet what will be had.
            limits = self._left[template.pool.name]
            for name in limits:
                limits[name] -= max(each.capacity.get(name, 0) for each in state.shapes)
            return True
        return False

    @property
    def _next_host(self) -> str:
        return f"hostname-placeholder-{len(self.claims) + 1:04}"

    def _begun(self, template: Template) -> ClaimState | str:
        """Return an empty claim of a pool, or why its limits allow none."""
        pool, limits = template.pool, self._left[template.pool.name]
        is_full = self._snapshot.sizes[pool.name] + self._bought[pool.name] >= pool.max_nodes
        if is_full or limits.get("nodes") == 0:
            return f"node limits have been exhausted for nodepool (NodePool={pool.name})"
        shapes = template.shapes
        if limits:
            shapes = tuple(
                each
                for each in shapes
                if all(each.capacity.get(name, 0) <= left for name, left in limits.items())
            )
        if not shapes:
            return f"all available instance types exceed limits for nodepool (NodePool={pool.name})"
        return template.empty(shapes)

    def _why_not(self, kind: PodClass, pod: Pod) -> str:
        if not kind.asks:
            return kind.ignored
        if not self._snapshot.templates:
            return "nodepool requirements filtered out all available instance types"
        ask = kind.asks[-1]
        bearing = None if self._topology is None else self._topology.bearing(ask, pod, who(pod))
        return "; ".join(
            each if isinstance(each, str) else self._refusal(each, ask, bearing)
            for each in map(self._begun, self._snapshot.templates)
        )

    def _refusal(self, begun: ClaimState, ask: Ask, bearing: Bearing | None) -> str:
        base = begun.with_ask(ask)
        if bearing is None or base is None:
            return begun.refusal(ask)
        host = self._next_host
        domains = bearing.narrowed(base, host)
        return begun.refusal(ask, bearing.refusal(base, host) if domains is None else domains)


_Entry = tuple[Pod, PodClass, bool]
"""A pod, its class, and whether it loses its node by what is being looked at."""


def _oldest(entry: _Entry) -> tuple[int, str, str]:
    """Order pods of one size: the API server keeps whole seconds, and then the UID decides there."""
    meta = entry[0].metadata
    return meta.creation_ms // 1000, meta.name, meta.namespace

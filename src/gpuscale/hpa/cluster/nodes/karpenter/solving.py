"""Where pods would go: nodes that are there, nodes bought for other pods of the same solve, new nodes.

Source: Karpenter 1.15 pkg/controllers/provisioning/scheduling (scheduler.go, queue.go, existingnode.go).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.nodes import Taint
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.karpenter.asking import MATCH_FIELDS, Ask, PodClass, PodClasses
from gpuscale.hpa.cluster.nodes.karpenter.claims import (
    ClaimState,
    Shape,
    Template,
    by_weight,
    room_of,
    shape_of,
)
from gpuscale.hpa.cluster.nodes.karpenter.requirements import NODE_POOL, suits
from gpuscale.hpa.cluster.nodes.policy import PoolNode
from gpuscale.hpa.cluster.nodes.pools import INSTANCE_TYPE, NodePool, Offering
from gpuscale.hpa.cluster.scheduling.resources import NANO

_CORDONED = Taint("node.kubernetes.io/unschedulable")


@dataclass(slots=True, eq=False)
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

    @property
    def labels(self) -> dict[str, str]:
        """Return its labels, with those that Karpenter puts on each node of its own."""
        known = {NODE_POOL: self.node.pool, **self.node.offering.labels}
        if self.node.instance_type:
            known[INSTANCE_TYPE] = self.node.instance_type
        return {**known, **self.node.state.node.metadata.labels}

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
    """

    def __init__(
        self,
        pools: Sequence[NodePool],
        nodes: Iterable[PoolNode],
        is_sold_out: Callable[[str, Offering], bool],
        rests: Callable[[PoolNode], bool],
        leaving: Sequence[PoolNode],
    ) -> None:
        self.pools = {pool.name: pool for pool in pools}
        shapes = {
            pool.name: {kind.name: shape_of(kind, is_sold_out) for kind in pool.instance_types}
            for pool in pools
        }
        known = {key for pool in pools for kind in pool.instance_types for key in kind.labels}
        templates = [Template(pool, shapes[pool.name].values(), known) for pool in by_weight(pools)]
        self.templates = [each for each in templates if each.shapes]
        self.classes = PodClasses(
            tolerate_preferences=any(
                taint.effect == "PreferNoSchedule" for pool in pools for taint in pool.taints
            )
        )
        ordered = sorted(nodes, key=lambda node: (not node.ready, node.state.name))
        self.nodes = [
            _existing(node, shapes.get(node.pool, {}), rests=rests(node)) for node in ordered
        ]
        self.leaving = [_existing(node, shapes.get(node.pool, {}), rests=False) for node in leaving]
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


@dataclass(slots=True, eq=False)
class _Queue:
    """The claims that may still take a pod of one kind, in the order in which they are tried."""

    seen: int = 0
    """How many of the claims it has taken in."""
    entries: list[tuple[int, int, int]] = field(default_factory=list)
    """Number of pods, turn, and the claim's place; what is out of date sorts too early, never too late."""


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
        self._from: dict[tuple[Ask, bool], int] = {}
        """Where in `found` the search goes on: what refused one pod refuses all like it."""
        self._queues: dict[Ask, _Queue] = {}
        self._turn = 0
        self._bought: Counter[str] = Counter()

    def place(self, pods: Iterable[Pod], moved: Iterable[Pod] = ()) -> None:
        """Find a place for each pod, the largest first.

        Args:
            pods: those that wait, or lose their node anyway.
            moved: those of nodes that are taken away.
        """
        kinds = self._snapshot.classes.of
        by_size: dict[tuple[int, int], list[tuple[Pod, PodClass, bool]]] = {}
        for listed, is_moved in ((pods, False), (moved, True)):
            for pod in listed:
                kind = kinds(pod.spec)
                by_size.setdefault(kind.size, []).append((pod, kind, is_moved))
        failed: list[tuple[PodClass, Pod]] = []
        for size in sorted(by_size):
            for pod, kind, is_moved in sorted(by_size[size], key=_oldest):
                if not any(
                    self._on_existing(ask, pod, is_moved)
                    or self._on_claim(ask, pod)
                    or self._on_new(ask, pod)
                    for ask in kind.asks
                ):
                    failed.append((kind, pod))
        # Karpenter tries them once more in the end, and says what it found then.
        reasons = {kind: self._why_not(kind) for kind, _ in failed}
        self.errors.update({pod.metadata.key: reasons[kind] for kind, pod in failed})

    def _on_existing(self, ask: Ask, pod: Pod, is_moved: bool) -> bool:
        snapshot, found = self._snapshot, ask.found
        start = ask, is_moved
        position = self._from.get(start, 0)
        try:
            while position < len(found) or snapshot.next_fitting(ask):
                index = found[position]
                if index not in self._without and not (
                    is_moved and self._consolidating and snapshot.nodes[index].rests
                ):
                    free = self._free.get(index)
                    if free is None:
                        free = self._free[index] = dict(snapshot.nodes[index].free)
                    if _has(free, ask):
                        for name, amount in ask.requests:
                            free[name] -= amount
                        self.placed.setdefault(index, []).append(pod)
                        return True
                position += 1
            return False
        finally:
            self._from[start] = position

    def _on_claim(self, ask: Ask, pod: Pod) -> bool:
        queue = self._queues.get(ask)
        if queue is None:
            queue = self._queues[ask] = _Queue()
        entries = queue.entries
        for place in range(queue.seen, len(self.claims)):
            claim = self.claims[place]
            if claim.state.with_pod(ask) is not None:  # what refuses a pod now does so for good
                heapq.heappush(entries, (len(claim.pods), claim.turn, place))
        queue.seen = len(self.claims)
        while entries:
            count, turn, place = entries[0]
            claim = self.claims[place]
            if (count, turn) != (len(claim.pods), claim.turn):
                heapq.heapreplace(entries, (len(claim.pods), claim.turn, place))
                continue
            after = claim.state.with_pod(ask)
            if after is None:
                heapq.heappop(entries)
                continue
            claim.state = after
            claim.pods.append(pod)
            # A stable sort by the number of pods puts it before those that had as many already.
            self._turn += 1
            claim.turn = -self._turn
            heapq.heapreplace(entries, (len(claim.pods), claim.turn, place))
            return True
        return False

    def _on_new(self, ask: Ask, pod: Pod) -> bool:
        for template in self._snapshot.templates:
            begun = self._begun(template)
            state = None if isinstance(begun, str) else begun.with_pod(ask)
            if state is None:
                continue
            self._turn += 1
            self.claims.append(Claim(state, [pod], self._turn))
            self._bought[template.pool.name] += 1
            # The largest that it may become is charged, since nobody knows yet what will be had.
            limits = self._left[template.pool.name]
            for name in limits:
                limits[name] -= max(each.capacity.get(name, 0) for each in state.shapes)
            return True
        return False

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

    def _why_not(self, kind: PodClass) -> str:
        if not kind.asks:
            return MATCH_FIELDS
        if not self._snapshot.templates:
            return "nodepool requirements filtered out all available instance types"
        begun = map(self._begun, self._snapshot.templates)
        return "; ".join(
            each if isinstance(each, str) else each.refusal(kind.asks[-1]) for each in begun
        )


def _oldest(entry: tuple[Pod, PodClass, bool]) -> tuple[int, str, str]:
    """Order pods of one size: the API server keeps whole seconds, and then the UID decides there."""
    meta = entry[0].metadata
    return meta.creation_ms // 1000, meta.name, meta.namespace

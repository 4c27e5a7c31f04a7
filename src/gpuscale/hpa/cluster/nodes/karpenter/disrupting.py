"""Which nodes may go, and what would take their place: emptiness, drift and consolidation.

Source: Karpenter 1.15 pkg/controllers/disruption (helpers.go, types.go, emptiness.go, drift.go,
consolidation.go, multinodeconsolidation.go, singlenodeconsolidation.go, balanced.go, validation.go),
pkg/controllers/state/statenode.go, pkg/utils/disruption, pkg/utils/pdb, pkg/apis/v1/nodepool.go.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpuscale.base.cron import next_time_ms
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.objects.taints import Taint, tolerates
from gpuscale.hpa.cluster.nodes.karpenter.claims import ClaimState, Shape
from gpuscale.hpa.cluster.nodes.karpenter.requirements import Values, suits, values_of
from gpuscale.hpa.cluster.nodes.karpenter.solving import Existing, Snapshot, Solve
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    DisruptionBudget,
    NodePool,
    Offering,
)

DISRUPTED = Taint("karpenter.sh/disrupted")
"""What nodes get that are taken away."""
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
EMPTY, DRIFTED, UNDERUTILIZED = "Empty", "Drifted", "Underutilized"
_COSTS = ("karpenter.sh/disruption-cost", "controller.kubernetes.io/pod-deletion-cost")
_MOST_TOGETHER = 100
"""Nodes that are consolidated at once."""
_CHOICE_FOR_SPOT = 15
"""Cheaper instance types that a spot node must have to be replaced by a spot node."""
_WORK = 300_000
"""Pods that a search over single nodes places at most; Karpenter stops after 3 minutes."""
_THRESHOLD = 0.5
"""Of the policy Balanced: what share of a pool's cost a share of its disruption must save."""
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(slots=True, eq=False)
class Candidate:
    """A node that may be disrupted."""

    place: int
    """Among the snapshot's nodes."""
    existing: Existing
    pool: NodePool
    price: float
    cost: float
    """1, and what evicting its pods counts for."""
    pods: list[Pod]
    """That would move."""

    @property
    def name(self) -> str:
        return self.existing.name

    @property
    def ratio(self) -> float:
        """Return the price an hour for each unit of disruption; the highest goes first."""
        return self.price / self.cost


@dataclass(slots=True, eq=False)
class Command:
    """Nodes to remove, and claims to buy before."""

    reason: str
    candidates: list[Candidate]
    replacements: list[ClaimState] = field(default_factory=list)
    pods: list[list[Pod]] = field(default_factory=list)
    """Of each replacement."""
    nominated: frozenset[str] = frozenset()
    """Existing nodes that would get the pods."""

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.candidates]


class Site:
    """What the disruption methods look at.

    Args:
        request: the facts of a scan.
        snapshot: of the nodes that are not being removed.
        losing: nodes that are being removed already.
        nominated: nodes that pods were promised.
        spot_to_spot: the feature gate SpotToSpotConsolidation.
    """

    def __init__(
        self,
        request: NodeRequest,
        snapshot: Snapshot,
        losing: Iterable[PoolNode],
        nominated: frozenset[str],
        *,
        spot_to_spot: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.why_not: dict[str, str] = {}
        """Name of a node to why it is left alone."""
        self.blocked: set[str] = set()
        """Those of them that may not be disrupted at all."""
        self._request = request
        self._waiting = request.unschedulable
        self._nominated = nominated
        self._disrupting: Counter[str] = Counter()
        """How many nodes of a pool are being removed."""
        self.losing: list[Pod] = []
        """Pods of nodes that are being removed, which need another."""
        for node in losing:
            self._disrupting[node.pool] += node.ready
            self.losing += filter(self.may_move, request.pods.get(node.state.name, ()))
        self._spot_to_spot = spot_to_spot

    @cached_property
    def candidates(self) -> list[Candidate]:
        """All nodes that nothing forbids to disrupt."""
        found: list[Candidate] = []
        for place, existing in enumerate(self.snapshot.nodes):
            blocked = self._node_block(existing)
            pods = self._request.pods.get(existing.name, ())
            blocked = blocked or (self._pod_block(pods) if pods else "")
            pool = self.snapshot.pools.get(existing.node.pool)
            if pool is None:
                continue
            if blocked:
                self.why_not[existing.name] = blocked
                self.blocked.add(existing.name)
                continue
            moving = [pod for pod in pods if is_reschedulable(pod)]
            cost = 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in moving)
            found.append(Candidate(place, existing, pool, _price(existing), cost, moving))
        return found

    def _node_block(self, existing: Existing) -> str:
        node = existing.node
        if not node.ready:
            joined = "" if node.joined_ms is not None else " nor registered"
            return f"Node isn't initialized{joined}"
        if existing.name in self._nominated:
            return "Node is nominated for a pending pod"
        if node.state.node.metadata.annotations.get(DO_NOT_DISRUPT) == "true":
            return f'Disruption is blocked through the "{DO_NOT_DISRUPT}" annotation'
        return ""

    def _pod_block(self, pods: Sequence[Pod]) -> str:
        for pod in pods:
            if pod.metadata.annotations and _is_active(pod) and self._is_protected(pod):
                return f'Pod has "{DO_NOT_DISRUPT}" annotation (Pod={pod.metadata.key})'
        if not self._request.budgets:
            return ""
        for pod in pods:
            budgets = self._budgets_of(pod)
            listed = " ".join(each.metadata.key for each in budgets)
            if len(budgets) > 1:
                return (
                    f"Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{listed}])"
                )
            if budgets and budgets[0].disruptions_allowed == 0:
                return f"Pdb prevents pod evictions (PodDisruptionBudget=[{listed}])"
        return ""

    def _budgets_of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """Return the budgets that an eviction of the pod would ask."""
        if not _is_active(pod) or self._is_protected(pod) or _owner(pod) == "Node":
            return []
        if any(tolerates(each, DISRUPTED) for each in pod.spec.tolerations):
            return []
        return [
            each
            for each in self._request.budgets
            if each.metadata.namespace == pod.metadata.namespace
            and each.selector.matches(pod.metadata.labels)
        ]

    def _is_protected(self, pod: Pod) -> bool:
        value = pod.metadata.annotations.get(DO_NOT_DISRUPT)
        if value is None or value == "true":
            return value == "true"
        try:
            length_ms = parse_duration_ms(value)
        except ValueError:
            return False
        start_ms = pod.status.start_ms
        return length_ms > 0 and (start_ms is None or self._request.now_ms - start_ms < length_ms)

    def may_move(self, pod: Pod) -> bool:
        """Return whether room is bought for a pod before its node goes: it can be evicted some time."""
        if not is_reschedulable(pod) or (_is_active(pod) and self._is_protected(pod)):
            return False
        if not self._request.budgets:
            return True
        budgets = self._budgets_of(pod)
        return len(budgets) < 2 and not any(map(_blocks_for_ever, budgets))

    def allowed(self, reason: str) -> dict[str, int]:
        """Return how many nodes of each pool may be disrupted now for a reason."""
        totals, disrupting = self._counts
        now_ms = self._request.now_ms
        return {
            name: max(
                0,
                _allowed(pool.disruption.budgets, totals[name], reason, now_ms) - disrupting[name],
            )
            for name, pool in self.snapshot.pools.items()
        }

    @cached_property
    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """How many initialized nodes each pool has, and how many of them go or are not Ready."""
        there = [each.node for each in self.snapshot.nodes if each.initialized]
        totals = self._disrupting + Counter(node.pool for node in there)
        unready = Counter(node.pool for node in there if not node.state.node.ready)
        return totals, self._disrupting + unready

    def empty(self) -> list[Candidate]:
        """Return the candidates that no pod would be missed on, where they may be consolidated."""
        return [
            each for each in self.candidates if each.cost <= 1.0 and self._is_consolidatable(each)
        ]

    def underutilized(self) -> list[Candidate]:
        """Return the candidates whose pods might do with less."""
        found: list[Candidate] = []
        for each in self.candidates:
            if each.cost <= 1.0:
                continue
            if each.existing.shape is None:
                self.why_not[each.name] = (
                    f'Instance Type "{each.existing.node.instance_type}" not found'
                )
            elif each.pool.disruption.consolidate_after_ms is None:
                self.why_not[each.name] = f'NodePool "{each.pool.name}" has consolidation disabled'
            elif each.pool.disruption.consolidation_policy == "WhenEmpty":
                self.why_not[each.name] = (
                    f'NodePool "{each.pool.name}" has consolidation policy WhenEmpty, but node is not empty'
                )
            elif self._is_consolidatable(each):
                found.append(each)
        return found

    def _is_consolidatable(self, candidate: Candidate) -> bool:
        wait_ms = candidate.pool.disruption.consolidate_after_ms
        if wait_ms is None:
            return False
        return self._request.now_ms - quiet_since_ms(candidate.existing.node) >= wait_ms

    def emptiness(self) -> Command | None:
        """Return the command that removes empty nodes, as many as their budgets allow."""
        allowed = self.allowed(EMPTY)
        chosen = [each for each in _best_first(self.empty()) if self._take(allowed, each.pool.name)]
        return Command(EMPTY, chosen) if chosen else None

    def _take(self, allowed: dict[str, int], pool: str) -> bool:
        allowed[pool] -= 1
        return allowed[pool] >= 0

    def drift(self, since_ms: Mapping[str, int]) -> Command | None:
        """Return the command for one node that its pool would not make any more.

        Args:
            since_ms: name of a drifted node to when that was seen.
        """
        allowed = self.allowed(DRIFTED)
        drifted = [each for each in self.candidates if each.name in since_ms]
        drifted.sort(key=lambda each: (bool(each.pods), since_ms[each.name], each.name))
        for each in drifted:
            if not allowed[each.pool.name]:
                continue
            solve, unplaced = self._simulate([each], consolidating=False)
            if unplaced:
                self.why_not[each.name] = unplaced
                continue
            return self._command(DRIFTED, [each], solve)
        return None

    def multi_node(self) -> Command | None:
        """Return the command that replaces or removes as many nodes together as a search finds."""
        allowed = self.allowed(UNDERUTILIZED)
        candidates = [
            each
            for each in _best_first(self.underutilized())
            if self._take(allowed, each.pool.name)
        ]
        least, most = 1, min(len(candidates) - 1, _MOST_TOGETHER)
        found: Command | None = None
        # Of the prefixes of the list; a failure in the middle counts as too many.
        while least <= most:
            middle = (least + most) // 2
            command = self._consolidation(candidates[: middle + 1])
            if command is not None and command.replacements:
                command = _without_same_type(command)
            if command is not None and self._is_balanced(command):
                found, least = command, middle + 1
            else:
                most = middle - 1
        return found

    def single_node(self) -> Command | None:
        """Return the command for the first node that can go or be replaced by a cheaper one."""
        allowed = self.allowed(UNDERUTILIZED)
        by_pool: dict[str, list[Candidate]] = {}
        for each in _best_first(self.underutilized()):
            by_pool.setdefault(each.pool.name, []).append(each)
        work = 0
        # Pools take turns.
        turns = (
            (row, name) for name, listed in sorted(by_pool.items()) for row in range(len(listed))
        )
        for row, name in sorted(turns):
            candidate = by_pool[name][row]
            if not allowed[name] or work > _WORK or not self._could_be_balanced(candidate):
                continue
            work += len(self._waiting) + len(self.losing) + len(candidate.pods)
            command = self._consolidation([candidate])
            if command is not None and self._is_balanced(command):
                return command
        return None

    def _simulate(
        self, candidates: Sequence[Candidate], *, consolidating: bool
    ) -> tuple[Solve, str]:
        """Return where the pods would go without these nodes, and why some of them would not."""
        places = [each.place for each in candidates]
        solve = Solve(self.snapshot, places, consolidating=consolidating)
        moved = [pod for each in candidates for pod in each.pods if self.may_move(pod)]
        solve.place([*self._waiting, *self.losing], moved)
        keys = {pod.metadata.key for pod in moved}
        bound = keys.union(pod.metadata.key for pod in self.losing)
        errors = {key: why for key, why in solve.errors.items() if key in bound}
        for place, pods in solve.placed.items():
            existing = self.snapshot.nodes[place]
            if not existing.initialized:
                # What is not there yet may not come.
                there = f"nodeclaim/{existing.name}, node/{existing.name}"
                where = f"would schedule against uninitialized {there}"
                errors.update({key: where for pod in pods if (key := pod.metadata.key) in keys})
        if not errors:
            return solve, ""
        listed = "".join(f"{key} => {why} " for key, why in sorted(errors.items())[:5])
        more = f" and {len(errors) - 5} other(s)" if len(errors) > 4 else ""
        return solve, f"Not all pods would schedule, {listed}{more}"

    def _command(self, reason: str, candidates: Sequence[Candidate], solve: Solve) -> Command:
        return Command(
            reason,
            list(candidates),
            [each.state for each in solve.claims],
            [each.pods for each in solve.claims],
            frozenset(self.snapshot.nodes[place].name for place in solve.placed),
        )

    def _consolidation(self, candidates: Sequence[Candidate]) -> Command | None:
        """Return what is saved by removing these nodes together; None where nothing is."""
        solve, unplaced = self._simulate(candidates, consolidating=True)
        why_not = self.why_not if len(candidates) == 1 else {}
        name = candidates[0].name
        if unplaced:
            why_not[name] = unplaced
            return None
        command = self._command(UNDERUTILIZED, candidates, solve)
        if not solve.claims:
            return command
        if len(solve.claims) > 1:
            why_not[name] = f"Can't remove without creating {len(solve.claims)} candidates"
            return None
        price = sum(each.price for each in candidates)
        claim = solve.claims[0].state
        capacity = claim.requirements.get(CAPACITY_TYPE, Values(CAPACITY_TYPE, others=True))
        allows_spot = capacity.has("spot")
        all_spot = all(each.existing.node.offering.capacity_type == "spot" for each in candidates)
        if all_spot and allows_spot:
            if not self._spot_to_spot:
                why_not[name] = (
                    "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
                )
                return None
            claim = _only_spot(claim)
        shapes = tuple(
            each for each in claim.cheapest_first() if each.worst_price(claim.requirements) < price
        )
        if not shapes:
            why_not[name] = "Can't replace with a cheaper node"
            return None
        if all_spot and allows_spot and len(candidates) == 1:
            if len(shapes) < _CHOICE_FOR_SPOT:
                why_not[name] = (
                    f"SpotToSpotConsolidation requires {_CHOICE_FOR_SPOT} cheaper instance type options than "
                    f"the current candidate to consolidate, got {len(shapes)}"
                )
                return None
            shapes = shapes[:_CHOICE_FOR_SPOT]
        if allows_spot and capacity.has("on-demand"):
            # The price was judged by spot; where there is none, an on-demand node might cost more.
            claim = _only_spot(claim, shapes)
        command.replacements = [_with_shapes(claim, shapes)]
        return command

    @cached_property
    def _totals(self) -> dict[str, tuple[float, float]]:
        """What each pool's nodes cost an hour, and to disrupt."""
        costs = {each.name: each.cost for each in self.candidates}
        totals: dict[str, tuple[float, float]] = {}
        for each in (*self.snapshot.nodes, *self.snapshot.leaving):
            money, disruption = totals.get(each.node.pool, (0.0, 0.0))
            cost = costs.get(each.name)
            if cost is None:
                pods = self._request.pods.get(each.name, ())
                counted = (pod for pod in pods if _owner(pod) != "DaemonSet")
                cost = 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in counted)
            totals[each.node.pool] = money + _price(each), disruption + cost
        return totals

    def _is_balanced(self, command: Command) -> bool:
        """Return whether each pool with the policy Balanced saves enough for what it is disrupted."""
        by_pool: dict[str, list[Candidate]] = {}
        for each in command.candidates:
            by_pool.setdefault(each.pool.name, []).append(each)
        source = sum(each.price for each in command.candidates)
        prices = [
            shape.cheapest(claim.requirements)
            for claim in command.replacements
            for shape in claim.shapes[:1]
        ]
        # What can't be had counts for nothing.
        saving = source - sum(price for price in prices if price < math.inf)
        return all(
            self._is_worth_it(
                name,
                saving
                if len(by_pool) == 1 or source <= 0
                else saving * sum(each.price for each in listed) / source,
                sum(each.cost for each in listed),
            )
            for name, listed in by_pool.items()
        )

    def _could_be_balanced(self, candidate: Candidate) -> bool:
        """Return whether removing a node without another in its place would be worth it."""
        money, _ = self._totals[candidate.pool.name]
        return money <= 0 or self._is_worth_it(candidate.pool.name, candidate.price, candidate.cost)

    def _is_worth_it(self, pool: str, saving: float, cost: float) -> bool:
        if self.snapshot.pools[pool].disruption.consolidation_policy != "Balanced":
            return True
        money, disruption = self._totals[pool]
        if money <= 0 or disruption <= 0 or saving <= 0:
            return False
        return (saving / money) / (cost / disruption) >= _THRESHOLD

    def exceeds_limits(self, command: Command) -> bool:
        """Return whether a replacement can't be created, since its pool is beyond its limits already."""
        return any(
            each.template.pool.name in self.snapshot.overfull for each in command.replacements
        )

    def still_valid(self, command: Command) -> Command | None:
        """Return the command as it holds some time later; None where it does not."""
        names = set(command.names)
        current = self.empty() if command.reason == EMPTY else self.underutilized()
        current = [each for each in current if each.name in names]
        allowed = self.allowed(command.reason)
        within = [each for each in current if self._take(allowed, each.pool.name)]
        if command.reason == EMPTY:
            return Command(EMPTY, within) if within else None
        if len(within) != len(names):
            return None
        solve, unplaced = self._simulate(within, consolidating=True)
        if unplaced or len(solve.claims) != len(command.replacements):
            return None
        for wanted, found in zip(command.replacements, solve.claims, strict=True):
            names = {each.name for each in wanted.shapes}
            if not names <= {each.name for each in found.state.shapes}:
                return None
        return command


def site_of(
    request: NodeRequest,
    *,
    marked: Collection[str] = (),
    nominated: frozenset[str] = frozenset(),
    sold_out: Collection[tuple[str, Offering]] = (),
    spot_to_spot: bool = False,
) -> Site:
    """Return what provisioning and disruption look at.

    Args:
        request: the facts of a scan.
        marked: names of nodes that are to go, beside those that are leaving.
        nominated: names of nodes that pods were promised.
        sold_out: types and offerings that can't be had now.
        spot_to_spot: the feature gate SpotToSpotConsolidation.
    """
    after_ms = {pool.name: pool.disruption.consolidate_after_ms or 0 for pool in request.pools}
    active: list[PoolNode] = []
    losing: list[PoolNode] = []
    for node in request.nodes:
        if node.pool in after_ms:
            (losing if node.leaving or node.state.name in marked else active).append(node)

    def rests(node: PoolNode) -> bool:
        wait_ms = after_ms[node.pool]
        return bool(wait_ms) and node.ready and request.now_ms - quiet_since_ms(node) < wait_ms

    snapshot = Snapshot(
        request.pools,
        active,
        lambda kind, offering: (kind, offering) in sold_out,
        rests,
        losing,
        request.pods,
        request.daemons,
    )
    return Site(request, snapshot, losing, nominated, spot_to_spot=spot_to_spot)


def quiet_since_ms(node: PoolNode) -> int:
    """Return since when no pod came to a node or left it."""
    known = (node.changed_ms, node.ready_ms, node.joined_ms, node.ordered_ms)
    return next(time_ms for time_ms in known if time_ms is not None)


def drifted(node: PoolNode, pool: NodePool) -> bool:
    """Return whether a pool would no longer make such a node: of that type, with these labels."""
    names = {kind.name for kind in pool.instance_types}
    if node.instance_type and node.instance_type not in names:
        return True
    if not pool.requirements:
        return False
    labels = {**node.offering.labels, **node.state.node.metadata.labels}
    if node.instance_type:
        labels.setdefault(INSTANCE_TYPE, node.instance_type)
    return not suits({value.key: value for value in map(values_of, pool.requirements)}, labels)


def is_reschedulable(pod: Pod) -> bool:
    """Return whether a pod goes elsewhere once its node is gone."""
    return _is_active(pod) and _owner(pod) not in ("DaemonSet", "Node")


def eviction_cost(pod: Pod) -> float:
    """Return what evicting a pod counts for, 1 as a rule."""
    cost = 1.0
    annotations = pod.metadata.annotations
    if not annotations and not pod.spec.priority:
        return cost
    for key in _COSTS:
        if key in annotations:
            cost += _int32(annotations[key]) / 2**27
            break
    return max(-10.0, min(10.0, cost + pod.spec.priority / 2**25))


def _int32(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if -(2**31) <= number < 2**31 else 0


def _is_active(pod: Pod) -> bool:
    phase = pod.status.phase  # by identity: a hash of an enum's member is slow
    ended = phase is PodPhase.SUCCEEDED or phase is PodPhase.FAILED
    return not ended and pod.metadata.deletion_ms is None


def _owner(pod: Pod) -> str:
    owner = pod.metadata.owner
    return owner.kind if owner is not None else ""


def _price(existing: Existing) -> float:
    offering = existing.node.offering
    if existing.shape is None:
        return 0.0
    return existing.shape.price(offering.zone, offering.capacity_type)


def _blocks_for_ever(budget: PodDisruptionBudget) -> bool:
    return budget.max_unavailable in {0, "0%"} or budget.min_available == "100%"


def _best_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort by price for disruption; Karpenter leaves those alike to chance, here the name decides."""
    return sorted(candidates, key=lambda each: (-each.ratio, each.name))


def _allowed(budgets: Sequence[DisruptionBudget], total: int, reason: str, now_ms: int) -> int:
    """Return the smallest number of nodes that a budget that holds now allows for a reason."""
    found = [
        math.ceil(int(each.nodes[:-1]) * total / 100)
        if each.nodes.endswith("%")
        else int(each.nodes)
        for each in budgets
        if (not each.reasons or reason in each.reasons) and _holds(each, now_ms)
    ]
    return min(found, default=2**31 - 1)


def _holds(budget: DisruptionBudget, now_ms: int) -> bool:
    """Return whether a budget's schedule came within its duration."""
    if not budget.schedule:
        return True
    expression = _MACROS.get(budget.schedule, budget.schedule)
    return next_time_ms(expression, "UTC", now_ms - budget.duration_ms) <= now_ms


def _only_spot(claim: ClaimState, shapes: tuple[Shape, ...] | None = None) -> ClaimState:
    """Return a claim that is launched on spot capacity or not at all."""
    spot = Values(CAPACITY_TYPE, frozenset(("spot",)))
    requirements = {**claim.requirements, CAPACITY_TYPE: spot}
    kept = claim.shapes if shapes is None else shapes
    kept = tuple(each for each in kept if each.choices(requirements))
    return ClaimState(claim.template, requirements, kept, claim.requests)


def _with_shapes(claim: ClaimState, shapes: tuple[Shape, ...]) -> ClaimState:
    return ClaimState(claim.template, claim.requirements, shapes, claim.requests)


def _without_same_type(command: Command) -> Command | None:
    """Leave out what costs as much as a removed node of a type that the replacement might become.

    That node could as well stay. None where nothing is left.
    """
    prices: dict[str, float] = {}
    for each in command.candidates:
        name = each.existing.node.instance_type
        prices[name] = min(each.price, prices.get(name, math.inf))
    (claim,) = command.replacements
    most = min((prices.get(each.name, math.inf) for each in claim.shapes), default=math.inf)
    shapes = tuple(each for each in claim.shapes if each.worst_price(claim.requirements) < most)
    if not shapes:
        return None
    command.replacements = [_with_shapes(claim, shapes)]
    return command

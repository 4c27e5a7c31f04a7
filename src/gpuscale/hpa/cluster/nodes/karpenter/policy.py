"""Karpenter's controllers as one policy: batches, purchases, disruption in its order and at its times.

Source: Karpenter 1.15 pkg/controllers/provisioning (batcher.go, controller.go, provisioner.go),
pkg/controllers/disruption (controller.go, queue.go), pkg/controllers/nodeclaim (expiration, lifecycle
liveness.go); the time for which a stock-out is remembered is karpenter-provider-aws pkg/cache.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.karpenter.claims import ClaimState
from gpuscale.hpa.cluster.nodes.karpenter.disrupting import (
    DISRUPTED,
    DRIFTED,
    Command,
    Site,
    drifted,
    site_of,
)
from gpuscale.hpa.cluster.nodes.karpenter.solving import Solve
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import (
    Action,
    LeftAlone,
    LookAgain,
    NotTriggered,
    Offering,
    ScaleDown,
    ScaleUp,
    Uncordon,
)

BATCH_IDLE_MS = 1_000
"""`BATCH_IDLE_DURATION`: a batch closes so long after its last pod,"""
BATCH_MAX_MS = 10_000
"""`BATCH_MAX_DURATION`: or so long after its first."""
POLL_MS = 10_000
"""Between two looks at what may be disrupted, and between two batches for a pod that still waits."""
VALIDATION_MS = 15_000
"""For how long a command must hold before it is carried out."""
REGISTRATION_MS = 900_000
"""For how long a node may take to join."""
REPLACEMENT_MS = 600_000
"""For how long a command waits for its replacements."""
SOLD_OUT_MS = 180_000
"""For how long what could not be had is not asked for again."""
TERMINATION_MS = 5_000
"""From the end of a node's last pod until the node is gone, as was measured with a cloud without machines."""
_AT_ONCE_MS = 1
"""From a command to the next look: with one node a time, one went every 25 s."""
_NOMINATED_MS = 2 * BATCH_MAX_MS


@dataclass(slots=True, eq=False)
class _Purchase:
    """A replacement that was asked for and has not been seen yet."""

    pool: str
    types: tuple[str, ...]
    command: "_Running"


@dataclass(slots=True, eq=False)
class _Running:
    """A command whose replacements are on their way."""

    command: Command
    began_ms: int
    missing: int
    """Replacements that have not been seen yet."""
    replacements: set[str] = field(default_factory=set)
    failed: bool = False
    """One of them was not to be had."""


class Karpenter:
    """The node policy of Karpenter.

    Args:
        spot_to_spot: the feature gate SpotToSpotConsolidation.
    """

    on_unschedulable = True
    """It is also asked when the scheduler has found no node for a pod."""

    def __init__(self, *, spot_to_spot: bool = False) -> None:
        self.pods_left_out: dict[str, str] = {}
        """Key of a pod that the last batch bought no node for to the reason, in Karpenter's words."""
        self.nodes_left_alone: dict[str, str] = {}
        """Name of a node to why it is not disrupted, in Karpenter's words, as of the last look."""
        self._spot_to_spot = spot_to_spot
        self._batch_ms: tuple[int, int] | None = None
        """First and last trigger of the open batch."""
        self._triggered_ms: dict[str, int] = {}
        """A pod that wants a node to when it last opened or prolonged a batch."""
        self._poll_ms: int | None = None
        self._validating: tuple[Command, int, int] | None = None
        """A command, when it is looked at again, and the place of its method."""
        self._running: list[_Running] = []
        self._purchases: list[_Purchase] = []
        self._known: frozenset[str] = frozenset()
        """The nodes that the scan before was told of."""
        self._removed: set[str] = set()
        """Nodes that are to go, and are still there."""
        self._nominated_ms: dict[str, int] = {}
        """Name of a node to the end of a promise to pods."""
        self._sold_out_ms: dict[tuple[str, Offering], int] = {}
        self._reserved: dict[tuple[str, Offering], int] = {}
        """Type and offering to how many nodes more a reservation gives."""
        self._drifted_ms: dict[str, int] = {}
        self._asked_ms: set[int] = set()
        """When it will be asked again for a reason of its own."""

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return the nodes to buy and to remove now, and when to ask again."""
        now_ms = request.now_ms
        self._notice(request)
        overdue, expiry_ms = self._overdue(request)
        finished, given_up = self._finish(request)
        gone = [*finished, *overdue]
        self._reserved = dict(request.reserved)
        marked = {name for each in self._running for name in each.command.names} | self._removed
        marked.update(name for name, _ in gone)
        site = site_of(
            request,
            marked=marked,
            nominated=frozenset(self._nominated_ms),
            sold_out={*self._sold_out_ms, *self._given()},
            spot_to_spot=self._spot_to_spot,
        )
        waiting_ms = self._close_batch(request, site)
        sizes = Counter(node.pool for node in request.nodes)
        new: list[ScaleUp] = []
        told: list[Action] = [*given_up]
        if waiting_ms is not None and waiting_ms <= now_ms:
            self._batch_ms = waiting_ms = None
            new = self._buy(site, request.unschedulable, sizes, now_ms)
            told += [NotTriggered(*left, "FailedScheduling") for left in self.pods_left_out.items()]
        left_alone = self.nodes_left_alone
        if self._poll_ms is None:
            self._poll_ms = now_ms
        if new:
            # Until the nodes that were just asked for are known, nothing is disrupted.
            self._poll_ms = max(self._poll_ms, now_ms + 1000)
        elif (command := self._disrupt(site, now_ms)) is not None:
            new, removed = self._carry_out(site, command, sizes, now_ms)
            gone += removed
        by_reason: dict[tuple[str, bool], list[str]] = {}
        for node, why in self.nodes_left_alone.items():
            if left_alone.get(node) != why:
                by_reason.setdefault((why, node in site.blocked), []).append(node)
        told += [
            LeftAlone(tuple(nodes), why, "DisruptionBlocked" if blocked else "Unconsolidatable")
            for (why, blocked), nodes in by_reason.items()
        ]
        next_ms = self._validating[1] if self._validating is not None else self._poll_ms
        times = (next_ms, expiry_ms, waiting_ms)
        again = self._look_again(min(each for each in times if each is not None), now_ms)
        return [*new, *self._removals(gone, request, sizes), *told, *again]

    def _given(self) -> list[tuple[str, Offering]]:
        """Return the reserved offerings of which nothing is left."""
        return [key for key, left in self._reserved.items() if not left]

    def _notice(self, request: NodeRequest) -> None:
        """Take in what became of purchases and removals since the last scan."""
        now_ms = request.now_ms
        names = frozenset(node.state.name for node in request.nodes)
        for failure in request.failures:
            key = failure.instance_type, failure.offering
            self._sold_out_ms[key] = failure.time_ms + SOLD_OUT_MS
        for node in request.nodes:
            if node.state.name not in self._known:
                self._settle(node)
        for purchase in self._purchases:
            # What was asked for is there at the next scan, on its way, or was not to be had.
            purchase.command.failed = True
        self._purchases = []
        self._known = names
        self._removed &= names
        self._nominated_ms = {
            name: until for name, until in self._nominated_ms.items() if until > now_ms
        }
        self._sold_out_ms = {
            key: until for key, until in self._sold_out_ms.items() if until > now_ms
        }
        pools = {pool.name: pool for pool in request.pools}
        self._drifted_ms = {
            name: self._drifted_ms.get(name, now_ms)
            for node in request.nodes
            if (pool := pools.get(node.pool)) is not None
            and node.ready
            and drifted(node, pool)
            and (name := node.state.name)
        }

    def _settle(self, node: PoolNode) -> None:
        """Match a new node with the purchase that asked for it."""
        for purchase in self._purchases:
            if purchase.pool == node.pool and node.instance_type in purchase.types:
                self._purchases.remove(purchase)
                purchase.command.missing -= 1
                purchase.command.replacements.add(node.state.name)
                return

    def _finish(self, request: NodeRequest) -> tuple[list[tuple[str, str]], list[Uncordon]]:
        """Return the nodes whose replacements are initialized, and those of commands that failed."""
        if not self._running:
            return [], []
        ready = {node.state.name for node in request.nodes if node.ready}
        gone: list[tuple[str, str]] = []
        given_up: list[Uncordon] = []
        there = {node.state.name for node in request.nodes if not node.leaving} - self._removed
        kept: list[_Running] = []
        for each in self._running:
            is_late = request.now_ms - each.began_ms > REPLACEMENT_MS
            if each.failed or is_late or not each.replacements <= self._known:
                staying = tuple(name for name in each.command.names if name in there)
                why = "command reached timeout" if is_late else "replacement was deleted"
                given_up += [Uncordon(staying, why)] if staying else []
            elif each.missing or not each.replacements <= ready:
                kept.append(each)
            else:
                gone += [(name, each.command.reason) for name in each.command.names]
        self._running = kept
        return gone, given_up

    def _removals(
        self, gone: Iterable[tuple[str, str]], request: NodeRequest, sizes: Counter[str]
    ) -> list[Action]:
        """Return the removals of those nodes that are still there, each once."""
        if not gone:
            return []
        staying = {node.state.name: node.pool for node in request.nodes if not node.leaving}
        actions: list[Action] = []
        for name, reason in gone:
            if name in staying and name not in self._removed:
                self._removed.add(name)
                pool = staying[name]
                why = f"Disrupting Node: {reason}"
                actions.append(
                    ScaleDown(pool, name, sizes[pool], why, DISRUPTED, end_ms=TERMINATION_MS)
                )
                sizes[pool] -= 1
        return actions

    def _overdue(self, request: NodeRequest) -> tuple[list[tuple[str, str]], int | None]:
        """Return the nodes that expired, whatever stands against it, and those that never joined.

        And when the next one expires.
        """
        after = {pool.name: pool.disruption.expire_after_ms for pool in request.pools}
        gone: list[tuple[str, str]] = []
        now_ms, next_ms = request.now_ms, None
        for node in request.nodes:
            after_ms, ordered_ms = after.get(node.pool), node.ordered_ms
            if after_ms is not None:
                if ordered_ms + after_ms <= now_ms:
                    gone.append((node.state.name, "Expired"))
                elif next_ms is None or ordered_ms + after_ms < next_ms:
                    next_ms = ordered_ms + after_ms
            if node.joined_ms is None and not node.ready and now_ms - ordered_ms >= REGISTRATION_MS:
                gone.append((node.state.name, "Registration timeout"))
        return gone, next_ms

    def _close_batch(self, request: NodeRequest, site: Site) -> int | None:
        """Return when the open batch closes; None where no pod waits."""
        now_ms = request.now_ms
        wanting = [pod.metadata.key for pod in request.unschedulable]
        wanting += [f"losing {pod.metadata.key}" for pod in site.losing]
        previous, self._triggered_ms = self._triggered_ms, {}
        for key in wanting:
            last_ms = previous.get(key)
            if last_ms is None or now_ms - last_ms >= POLL_MS:
                last_ms = now_ms
                self._batch_ms = (self._batch_ms or (now_ms, now_ms))[0], now_ms
            self._triggered_ms[key] = last_ms
        if self._batch_ms is not None:
            first_ms, last_ms = self._batch_ms
            return min(last_ms + BATCH_IDLE_MS, first_ms + BATCH_MAX_MS)
        return min(self._triggered_ms.values()) + POLL_MS if self._triggered_ms else None

    def _buy(
        self, site: Site, waiting: Sequence[Pod], sizes: Counter[str], now_ms: int
    ) -> list[ScaleUp]:
        """Buy nodes for the pods that neither nodes nor those on their way have room for."""
        solve = Solve(site.snapshot)
        solve.place([*waiting, *site.losing])
        self.pods_left_out = solve.errors
        for place in solve.placed:
            self._nominated_ms[site.snapshot.nodes[place].name] = now_ms + _NOMINATED_MS
        return [self._purchase(claim.state, claim.pods, sizes, None) for claim in solve.claims]

    def _purchase(
        self, claim: ClaimState, pods: Iterable[Pod], sizes: Counter[str], command: _Running | None
    ) -> ScaleUp:
        """Ask for one node: any of the claim's types, of the first kind of capacity that it allows."""
        pool = claim.template.pool.name
        types, offerings = claim.offers(self._given())
        for key in product(types, offerings):
            # Until it is launched, a claim keeps a place in each reservation that would do.
            if self._reserved.get(key):
                self._reserved[key] -= 1
        if command is not None:
            self._purchases.append(_Purchase(pool, types, command))
        keys = tuple(pod.metadata.key for pod in pods)
        sizes[pool] += 1
        replaced = tuple(command.command.names) if command is not None else ()
        return ScaleUp(pool, sizes[pool] - 1, sizes[pool], keys, types, offerings, replaced)

    def _disrupt(self, site: Site, now_ms: int) -> Command | None:
        """Return what the first method does that finds something; consolidation waits before it acts."""
        begin = 0
        if self._validating is not None:
            command, due_ms, begin = self._validating
            if now_ms < due_ms:
                return None
            self._validating = None
            if (valid := site.still_valid(command)) is not None:
                return valid
            begin += 1
        elif self._poll_ms is not None and now_ms < self._poll_ms:
            return None
        methods: tuple[Callable[[], Command | None], ...] = (
            site.emptiness,
            lambda: site.drift(self._drifted_ms),
            site.multi_node,
            site.single_node,
        )
        self._poll_ms = now_ms + POLL_MS
        for place, method in enumerate(methods[begin:], begin):
            if (found := method()) is not None:
                if found.reason == DRIFTED:
                    return found
                self._validating = found, now_ms + VALIDATION_MS, place
                break
        self.nodes_left_alone = site.why_not
        return None

    def _carry_out(
        self, site: Site, command: Command, sizes: Counter[str], now_ms: int
    ) -> tuple[list[ScaleUp], list[tuple[str, str]]]:
        """Return what to buy for a command, and the nodes that can go without waiting for that."""
        self._poll_ms = now_ms + _AT_ONCE_MS
        for name in command.nominated:
            self._nominated_ms[name] = now_ms + _NOMINATED_MS
        if not command.replacements:
            return [], [(name, command.reason) for name in command.names]
        if site.exceeds_limits(command) or not all(
            each.offers()[0] for each in command.replacements
        ):
            # Karpenter asks for spot capacity where both kinds will do, also of types that have none.
            self._poll_ms = now_ms + POLL_MS
            return [], []
        running = _Running(command, now_ms, len(command.replacements))
        self._running.append(running)
        bought = [
            self._purchase(claim, pods, sizes, running)
            for claim, pods in zip(command.replacements, command.pods, strict=True)
        ]
        return bought, []

    def _look_again(self, at_ms: int, now_ms: int) -> list[Action]:
        """Ask for another scan, where none was asked for before that time."""
        self._asked_ms = {time_ms for time_ms in self._asked_ms if time_ms > now_ms}
        if at_ms <= now_ms or any(time_ms <= at_ms for time_ms in self._asked_ms):
            return []
        self._asked_ms.add(at_ms)
        return [LookAgain(at_ms)]

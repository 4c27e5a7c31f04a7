"""The cloud provider and its node autoscaler: nodes arrive after a delay, and go when they are empty."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.devices import NodeDevices
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.gpu_resources import counts_gpus
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.taints import Taint
from gpuscale.base.streams import name_suffix, stream
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    CapacityBuffer,
    LaunchFailure,
    LeftAlone,
    LookAgain,
    NodePolicy,
    NodeRequest,
    NotTriggered,
    Offering,
    PoolNode,
    ProvisioningCondition,
    ProvisioningRequest,
    ScaleDown,
    ScaleUp,
    Uncordon,
)
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.machines import CloudPool, Machine, Rental
from gpuscale.lab.sim.control.supply import OVER_QUOTA, Reservation, Stock
from gpuscale.lab.sim.engine import Engine, EventStage
from gpuscale.lab.sim.pod_index import FINISHED, is_daemon

_DRAIN_LOOK_MS = 1_000
"""How often a node that is leaving is looked at: pods that a budget held back are evicted then."""
_LEAVING = Taint("ToBeDeletedByClusterAutoscaler")
_REPLACED = Taint("karpenter.sh/disrupted")


class Cloud:
    """The node pools of a cluster.

    Args:
        cluster: nodes join it and leave it.
        engine: calls back when a node is there.
        pools: in order of preference for growing.
        settings: the autoscaler's.
        policy: decides which pools grow and which nodes go.
        budgets: PodDisruptionBudgets, which evictions keep to.
        unschedulable: the pods that fit nowhere.
        joined: called with each new node.
        usable: called with the name of each node whose GPUs can be scheduled on from now.
        cordoned: called with the name of each node that takes no more pods, or takes them again.
        evict: ends a pod, whose controller makes another.
        left: called with the name of each node that went.
        room: returns what is asked for without pods.
        daemons: a pod of each DaemonSet.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        pools: Sequence[CloudPool],
        settings: AutoscalerSettings,
        policy: NodePolicy,
        *,
        budgets: Sequence[PodDisruptionBudget] = (),
        unschedulable: Callable[[], list[Pod]],
        joined: Callable[[str, CloudPool, Machine], None],
        usable: Callable[[str], None],
        cordoned: Callable[[str, bool], None],
        evict: Callable[[str], None],
        left: Callable[[str], None],
        room: Callable[[], tuple[tuple[ProvisioningRequest, ...], tuple[CapacityBuffer, ...]]],
        daemons: tuple[Pod, ...] = (),
    ) -> None:
        self.pools = {item.pool.name: item for item in pools}
        self.rentals: list[Rental] = []
        self._start_ms = engine.now_ms
        self._cluster = cluster
        self._engine = engine
        self._settings = settings
        self._budgets = tuple(budgets)
        self._unschedulable = unschedulable
        self._joined = joined
        self._usable = usable
        self._cordoned = cordoned
        self._evict = evict
        self._left = left
        self._room = room
        self._daemons = daemons
        self._policy = policy
        self._stocks = {
            name: Stock(item.supply, cluster.seed, name) for name, item in self.pools.items()
        }
        self._told: dict[tuple[str, str], str] = {}
        """Kind and key of a pod or node to what was last said of it."""
        self._failures: list[LaunchFailure] = []
        """Since the last scan."""
        self._ready: Counter[str] = Counter()
        """How many nodes of a pool can be scheduled on."""
        self._rented: Counter[str] = Counter()
        """How many nodes of a pool are paid for."""
        self._gpus: Counter[str] = Counter()
        """How many GPUs those have."""
        self._had: Counter[tuple[str, str, Offering]] = Counter()
        """How many of them are of an instance type and had in one way."""
        self._nodes: dict[str, Rental] = {}
        """The rental of each node that is there, or on its way."""
        self._named = 0

    def start(self) -> None:
        """Bring every pool to the size that it starts with, with ready nodes."""
        for item in self.pools.values():
            machine = item.machine
            for _ in range(max(item.pool.min_nodes, item.initial_nodes)):
                rental = self._rent(item, machine, machine.shape.offerings[0])
                self._join(rental)
                self._use(rental)

    def begin(self, start_ms: int) -> None:
        """Count the scenario's times from `start_ms`."""
        self._start_ms = start_ms
        for item in self.pools.values():
            for reservation in item.supply.reservations:
                if reservation.until_ms is not None:
                    notice_ms = max(0, reservation.until_ms - item.supply.notice_ms)
                    self._engine.at(
                        start_ms + notice_ms,
                        EventStage.CLOUD,
                        partial(self._take_back, item, reservation),
                    )

    def sizes(self, pool: str) -> tuple[int, int]:
        """Return a pool's number of ready nodes, and the number including those on their way."""
        return self._ready[pool], self._rented[pool]

    def pool_of(self, node: str) -> CloudPool:
        return self.pools[self._nodes[node].pool]

    def rental(self, node: str) -> Rental | None:
        """Return how a node is paid for; None where it is none of this cloud's."""
        return self._nodes.get(node)

    def machine_of(self, node: str) -> Machine:
        return self._nodes[node].machine

    def starts(self, node: str) -> bool:
        """Return whether a node's GPUs can't be scheduled on yet."""
        return self._nodes[node].ready_ms is None

    def pods_wait(self, now_ms: int) -> None:
        """Let a policy that wants to know at once look at pods that fit nowhere."""
        if getattr(self._policy, "on_unschedulable", False):
            self._engine.at(now_ms, EventStage.NODE_AUTOSCALER, self.scan)

    def scan(self, now_ms: int) -> None:
        """Run the node autoscaler once."""
        nodes = tuple(self._pool_nodes())
        request = NodeRequest(
            tuple(item.pool for item in self.pools.values()),
            nodes,
            tuple(self._unschedulable()),
            now_ms,
            self._settings,
            _PodsByNode(self._cluster),
            tuple(self.current_budgets()),
            tuple(self._failures),
            *self._room(),
            self._daemons,
            self._reserved(now_ms),
        )
        self._failures.clear()
        for action in self._policy.scan(request):
            match action:
                case LookAgain(at_ms):
                    self._engine.at(at_ms, EventStage.NODE_AUTOSCALER, self.scan)
                case ScaleUp():
                    self._check_growth(action)
                    self._grow(action, now_ms)
                case ScaleDown():
                    self._check_removal(action)
                    self._shrink(action, now_ms)
                case Uncordon(names, message, kind):
                    for name in names:
                        self._open(self._nodes[name], _REPLACED)
                        self._cluster.event(now_ms, kind, f"Node/{name}", message, type_="Warning")
                case ProvisioningCondition(key, is_found, reason):
                    namespace, _, name = key.rpartition("/")
                    self._cluster.event(
                        now_ms,
                        reason,
                        f"ProvisioningRequest/{name}",
                        f"condition Provisioned is {is_found}",
                        type_="Normal" if is_found else "Warning",
                        namespace=namespace,
                    )
                case NotTriggered(pod, message, kind) if pod in self._cluster.pods:
                    self._tell(kind, "Pod", pod, message, now_ms)
                case LeftAlone(names, message, kind):
                    for name in names:
                        self._tell(kind, "Node", name, message, now_ms)

    # Nodes that others make

    def adopt(self, name: str, item: CloudPool, machine: Machine, offering: Offering) -> None:
        """Take on a node that is there, still without its GPUs; it is paid for since it was asked for."""
        now_ms, pool = self._engine.now_ms, item.pool.name
        ordered_ms = max(self._start_ms, now_ms - round(machine.provisioning.mean * 1000))
        rental = Rental(pool, name, machine, offering, ordered_ms)
        self._take_on(rental)
        after = self._rented[pool]
        self._cluster.event(
            now_ms,
            "TriggeredScaleUp",
            f"NodePool/{pool}",
            f"node {name} of {machine.shape.name} was made",
            before=after - 1,
            after=after,
        )
        self._join(rental)

    def offer_gpus(self, name: str) -> None:
        """Let an adopted node's GPUs be scheduled on, if they can't be already."""
        if self._nodes[name].ready_ms is None:
            self._use(self._nodes[name])

    def lose(self, name: str, kind: str = "ScaleDown", reason: str = "node was removed") -> None:
        """Let go of a node that is gone, and say why."""
        rental, now_ms = self._nodes[name], self._engine.now_ms
        before = self._rented[rental.pool]
        self._remove(rental, now_ms)
        self._cluster.event(
            now_ms,
            kind,
            f"Node/{name}",
            reason,
            before=before,
            after=before - 1,
        )

    # What the policy sees

    def _pool_nodes(self) -> Iterator[PoolNode]:
        busy = self._cluster.index.busy.get  # quicker than a Counter's default for missing keys
        states = self._cluster.node_states()
        for name, rental in self._nodes.items():
            is_ready = rental.ready_ms is not None
            if is_ready:
                state, empty = states[name], not busy(name)
            else:
                machine = rental.machine
                node = self.pools[rental.pool].pool.node(
                    name, rental.from_ms, machine.shape, rental.offering
                )
                state, empty = NodeState(node), False
            yield PoolNode(
                rental.pool,
                state,
                is_ready,
                empty,
                rental.machine.shape.name,
                rental.offering,
                rental.from_ms,
                rental.joined_ms,
                rental.ready_ms,
                self._cluster.index.changed_ms.get(name),
                rental.leaving,
            )

    def _reserved(self, now_ms: int) -> Mapping[tuple[str, Offering], int]:
        """Return how many nodes more the reservations of all pools give."""
        left: Counter[tuple[str, Offering]] = Counter()
        for name, stock in self._stocks.items():
            had = partial(self._had_of, name)
            for key, count in stock.reserved(now_ms - self._start_ms, had):
                left[key] += count
        return left

    def _had_of(self, pool: str, instance_type: str, offering: Offering) -> int:
        return self._had[pool, instance_type, offering]

    def current_budgets(self) -> Iterator[PodDisruptionBudget]:
        """Yield the budgets with how many pods they let go now."""
        for budget in self._budgets:
            yield replace(budget, disruptions_allowed=self._allowed(budget))

    def _allowed(self, budget: PodDisruptionBudget) -> int:
        """Return how many of a budget's pods may be evicted now."""
        namespace = budget.metadata.namespace
        staying = [
            pod
            for pod in self._cluster.selected(namespace, budget.selector)
            if pod.status.phase not in FINISHED and pod.metadata.deletion_ms is None
        ]
        healthy = sum(1 for pod in staying if pod.status.ready)
        expected = sum(
            item.replicas * count
            for item in self._cluster.deployments.values()
            for template, count in item.templates
            if item.metadata.namespace == namespace and budget.selector.matches(template.labels)
        ) or len(staying)
        return budget.allowed(healthy, expected)

    def _tell(self, kind: str, of: str, key: str, message: str, now_ms: int) -> None:
        """Report why no node comes for a pod, or a node stays, once for each reason."""
        if self._told.get((of, key)) == message:
            return
        self._told[of, key] = message
        namespace, _, name = key.rpartition("/")
        self._cluster.event(now_ms, kind, f"{of}/{name}", message, namespace=namespace)

    def _check_growth(self, action: ScaleUp) -> None:
        """Refuse a size that the pool can't have, as a user's policy may ask for it."""
        found = f"the node policy returned {action}, expected"
        if action.pool not in self.pools:
            raise UsageError(f"{found} one of the pools {', '.join(self.pools)}")
        pool = self.pools[action.pool].pool
        size = self.sizes(action.pool)[1]
        if action.from_nodes != size or not size < action.to_nodes <= pool.max_nodes:
            raise UsageError(
                f"{found} from_nodes {size} and to_nodes above it, at most {pool.max_nodes}"
            )
        known = {each.name for each in pool.instance_types}
        if not known.issuperset(action.instance_types):
            raise UsageError(f"{found} some of the instance types {', '.join(sorted(known))}")

    def _check_removal(self, action: ScaleDown) -> None:
        rental = self._nodes.get(action.node)
        if rental is None or rental.pool != action.pool or rental.leaving:
            raise UsageError(
                f"the node policy returned {action}, expected a node of that pool that isn't leaving"
            )

    # Nodes that come

    def _grow(self, action: ScaleUp, now_ms: int) -> None:
        item = self.pools[action.pool]
        for replaced in action.replaces:
            if replaced in self._cluster.nodes:
                self._close(self._nodes[replaced], _REPLACED)
        count = action.to_nodes - action.from_nodes
        got, code = 0, ""
        kinds: Counter[str] = Counter()
        for _ in range(count):
            found, code = self._best(item, action, now_ms)
            if found is None:
                break
            self._arrive_later(self._rent(item, *found), item)
            kinds[" ".join(filter(None, (found[0].shape.name, found[1].capacity_type)))] += 1
            got += 1
        about = f"NodePool/{action.pool}"
        if got:
            after = action.from_nodes + got
            change = f"{{{action.pool} {action.from_nodes}->{after} (max: {item.pool.max_nodes})}}"
            if len(item.machines) > 1:
                change += ", " + ", ".join(f"{number} {kind}" for kind, number in kinds.items())
            self._cluster.event(
                now_ms,
                "TriggeredScaleUp",
                about,
                f"pod triggered scale-up: [{change}]",
                before=action.from_nodes,
                after=after,
                pods=action.pods,
            )
        if got < count:
            self._cluster.event(
                now_ms,
                "FailedToScaleUpGroup",
                about,
                f"Scale-up failed for group {action.pool}: {code}; {count - got} of {count} nodes",
                before=action.from_nodes,
                after=action.from_nodes + got,
                type_="Warning",
            )

    def _best(
        self, item: CloudPool, action: ScaleUp, now_ms: int
    ) -> tuple[tuple[Machine, Offering] | None, str]:
        """Return the cheapest machine that will do and can be had, or the cloud's code for refusing."""
        wanted = [
            (machine, offering)
            for machine in item.machines
            if not action.instance_types or machine.shape.name in action.instance_types
            for offering in machine.shape.offerings
            if not action.offerings or offering in action.offerings
        ]
        wanted.sort(key=lambda each: each[1].price_per_hour or 0.0)
        pool, code = item.pool.name, ""
        quota, since_ms = item.supply.quota_gpus, now_ms - self._start_ms
        for machine, offering in wanted:
            had = self._had[pool, machine.shape.name, offering]
            refusal = self._stocks[pool].refusal(since_ms, machine.shape.name, offering, had)
            if not refusal and quota is not None and self._gpus[pool] + machine.gpus > quota:
                refusal = OVER_QUOTA
            if not refusal:
                return (machine, offering), ""
            code = code or refusal
            failure = LaunchFailure(pool, machine.shape.name, offering, now_ms, refusal)
            if failure not in self._failures:
                self._failures.append(failure)
        return None, code

    def _rent(self, item: CloudPool, machine: Machine, offering: Offering) -> Rental:
        name = ""
        while not name or name in self._nodes:
            # Where a name is taken, the next is drawn.
            self._named += 1
            suffix = name_suffix(self._cluster.seed, "node", item.pool.name, str(self._named))
            name = f"{item.pool.name}-{suffix}"
        rental = Rental(item.pool.name, name, machine, offering, self._engine.now_ms)
        self._take_on(rental)
        return rental

    def _take_on(self, rental: Rental) -> None:
        self.rentals.append(rental)
        self._nodes[rental.node] = rental
        self._count(rental, 1)

    def _count(self, rental: Rental, step: int) -> None:
        self._rented[rental.pool] += step
        self._gpus[rental.pool] += step * rental.gpus
        self._had[rental.pool, rental.machine.shape.name, rental.offering] += step

    def _arrive_later(self, rental: Rental, item: CloudPool) -> None:
        seed, node = self._cluster.seed, rental.node
        machine = rental.machine
        share = stream(seed, "provisioning", node).random()
        coming_ms = round(machine.provisioning.at(share) * 1000)
        gpus_ms = 0
        if machine.gpu_start.mean:
            gpus_ms = round(machine.gpu_start.at(stream(seed, "gpu start", node).random()) * 1000)
        gone_ms = None
        if item.supply.interrupted_after is not None and rental.offering.capacity_type == "spot":
            share = stream(seed, "interruption", node).random()
            gone_ms = round(item.supply.interrupted_after.at(share) * 1000)

        def use(now_ms: int) -> None:
            if node in self._nodes:
                self._use(rental)

        def join(now_ms: int) -> None:
            if node not in self._nodes:
                return
            self._join(rental)
            if gpus_ms:
                self._engine.after(gpus_ms, EventStage.CLOUD, use)
            else:
                self._use(rental)
            if gone_ms is not None:
                self._engine.after(
                    gone_ms, EventStage.CLOUD, lambda now: self._interrupt(rental, item, now)
                )

        self._engine.after(coming_ms, EventStage.CLOUD, join)

    def _join(self, rental: Rental) -> None:
        item, now_ms, name = self.pools[rental.pool], self._engine.now_ms, rental.node
        node = item.pool.node(name, now_ms, rental.machine.shape, rental.offering)
        offered = {key: most for key, most in node.allocatable.items() if not counts_gpus(key)}
        rental.joined_ms = now_ms
        if node.devices:  # their driver publishes them when it has started, as a plugin does
            node = replace(node, devices=NodeDevices((), node.devices.classes))
        self._cluster.add_node(
            replace(node, allocatable=offered),
            rental.gpus,
            rental.machine.offers,
            rental.machine.gpu_of,
        )
        self._cluster.event(
            now_ms, "NodeReady", f"Node/{name}", f"Node {name} status is now: NodeReady"
        )
        self._joined(name, item, rental.machine)

    def _use(self, rental: Rental) -> None:
        """Let the node's GPUs be scheduled on."""
        node, shape = self._cluster.nodes[rental.node], rental.machine.shape
        self._cluster.set_node(
            replace(node, allocatable=shape.allocatable, devices=shape.devices(rental.node))
        )
        rental.ready_ms = self._engine.now_ms
        self._ready[rental.pool] += 1
        self._usable(rental.node)

    # Nodes that go

    def _take_back(self, item: CloudPool, reservation: Reservation, now_ms: int) -> None:
        """Take back the nodes of a reservation that ends."""
        for rental in tuple(self._nodes.values()):
            is_of_it = (rental.machine.shape.name, rental.offering) == (
                reservation.instance_type,
                reservation.offering,
            )
            if rental.pool == item.pool.name and is_of_it:
                self._interrupt(rental, item, now_ms)

    def _interrupt(self, rental: Rental, item: CloudPool, now_ms: int) -> None:
        """Take a node back: its pods are told, and whatever is on it ends with it."""
        if rental.node not in self._nodes:
            return
        notice_ms = item.supply.notice_ms
        is_spot = rental.offering.capacity_type == "spot"
        kind = "SpotInterrupted" if is_spot else "ReservationEnds"
        message = f"the cloud takes {rental.node} back in {notice_ms / 1000:g} s"
        self._cluster.event(now_ms, kind, f"Node/{rental.node}", message, type_="Warning")
        self._engine.after(notice_ms, EventStage.CLOUD, lambda now: self._remove(rental, now))
        if not rental.leaving:
            self._leave(rental, ScaleDown(rental.pool, rental.node, 0), now_ms)

    def _shrink(self, action: ScaleDown, now_ms: int) -> None:
        rental = self._nodes[action.node]
        staying = sum(
            1 for each in self._nodes.values() if each.pool == action.pool and not each.leaving
        )
        self._cluster.event(
            now_ms,
            "ScaleDown",
            f"Node/{action.node}",
            action.reason,
            before=staying,
            after=staying - 1,
        )
        if rental.joined_ms is None:
            self._remove(rental, now_ms)
        else:
            self._leave(rental, action, now_ms)

    def _leave(self, rental: Rental, action: ScaleDown, now_ms: int) -> None:
        """Let no more pods on a node, end those that are there, and then remove it."""
        rental.leaving = True
        is_empty = not self._cluster.index.busy[rental.node]
        if is_empty and not action.delay_ms and not action.end_ms:
            self._remove(rental, now_ms)
            return
        self._close(rental, action.taint or _LEAVING)
        until_ms = None if action.give_up_ms is None else now_ms + action.give_up_ms

        def drain(now_ms: int) -> None:
            self._drain(rental, action, until_ms, now_ms)

        self._engine.after(action.delay_ms, EventStage.CLOUD, drain)

    def _close(self, rental: Rental, taint: Taint) -> None:
        """Keep new pods off a node."""
        node = self._cluster.nodes[rental.node]
        if taint not in node.taints:
            self._cluster.set_node(replace(node, taints=(*node.taints, taint)))
            self._cordoned(rental.node, True)

    def _open(self, rental: Rental, taint: Taint) -> None:
        """Let pods on a node again."""
        node = self._cluster.nodes[rental.node]
        kept = tuple(each for each in node.taints if each != taint)
        self._cluster.set_node(replace(node, taints=kept))
        self._cordoned(rental.node, False)

    def _stay(self, rental: Rental, taint: Taint, now_ms: int) -> None:
        """Keep a node whose pods may not go."""
        rental.leaving = False
        self._open(rental, taint)
        self._cluster.event(
            now_ms,
            "ScaleDownFailed",
            f"Node/{rental.node}",
            "failed to drain the node, aborting ScaleDown",
            type_="Warning",
        )

    def _drain(self, rental: Rental, action: ScaleDown, until_ms: int | None, now_ms: int) -> None:
        if rental.node not in self._nodes:
            return
        pods = [
            pod
            for pod in self._cluster.pods_on(rental.node)
            if pod.status.phase not in FINISHED and not is_daemon(pod)
        ]
        if not pods:
            self._engine.after(
                action.end_ms, EventStage.CLOUD, lambda now: self._remove(rental, now)
            )
            return
        for pod in pods:
            if pod.metadata.deletion_ms is None and self._may_go(pod):
                self._evict(pod.metadata.key)
        held = any(
            self._cluster.pods[pod.metadata.key].metadata.deletion_ms is None
            for pod in pods
            if pod.metadata.key in self._cluster.pods
        )
        if held and until_ms is not None and now_ms >= until_ms:
            self._stay(rental, action.taint or _LEAVING, now_ms)
            return
        self._engine.after(
            _DRAIN_LOOK_MS,
            EventStage.CLOUD,
            lambda now: self._drain(rental, action, until_ms, now),
        )

    def _may_go(self, pod: Pod) -> bool:
        return all(
            self._allowed(budget) > 0
            for budget in self._budgets
            if budget.metadata.namespace == pod.metadata.namespace
            and budget.selector.matches(pod.metadata.labels)
        )

    def _remove(self, rental: Rental, now_ms: int) -> None:
        if self._nodes.pop(rental.node, None) is None:
            return
        rental.to_ms = now_ms
        self._told.pop(("Node", rental.node), None)
        self._count(rental, -1)
        if rental.ready_ms is not None:
            self._ready[rental.pool] -= 1
        if rental.joined_ms is not None:
            self._cluster.remove_node(rental.node)
            self._left(rental.node)


class _PodsByNode(Mapping[str, Sequence[Pod]]):
    """The unfinished pods of each node, looked up when they are asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getitem__(self, node: str) -> Sequence[Pod]:
        if node not in self._cluster.nodes:
            raise KeyError(node)
        pods = self._cluster.pods_on(node)
        return [pod for pod in pods if pod.status.phase not in FINISHED]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cluster.nodes)

    def __len__(self) -> int:
        return len(self._cluster.nodes)

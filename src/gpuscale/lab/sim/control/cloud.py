"""The cloud provider and its node autoscaler: nodes arrive after a delay, and are removed on request."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.agent.gpu import GpuModel
from gpuscale.base.errors import UsageError
from gpuscale.base.objects.pods import Pod
from gpuscale.base.streams import name_suffix, stream
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    LookAgain,
    NodePolicy,
    NodePool,
    NodeRequest,
    PoolNode,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.lab.queueing.times import Times
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.engine import Engine, EventStage


@dataclass(frozen=True, slots=True)
class CloudPool:
    """A node pool, and the properties of its nodes."""

    pool: NodePool
    gpu_model: GpuModel
    gpus: int
    provisioning: Times
    """In seconds; each node draws its own."""
    price_per_hour: float | None
    """In the currency of the setup; None where none was given."""
    provider: str = ""
    """By the name that the scenario has."""

    @property
    def provisioning_ms(self) -> int:
        """Return the mean time from the order of a node to its arrival."""
        return round(self.provisioning.mean * 1000)


@dataclass(slots=True)
class Rental:
    """The billed time of one node, from its order to its removal."""

    pool: str
    node: str
    gpus: int
    price_per_hour: float | None
    from_ms: int
    to_ms: int | None = None
    ready_ms: int | None = None
    """When its GPUs could be scheduled on."""

    def starting_hours(self, now_ms: int) -> float:
        """Return the paid hours before the node was usable."""
        ends = [time_ms for time_ms in (self.ready_ms, self.to_ms) if time_ms is not None]
        return (min(ends, default=now_ms) - self.from_ms) / 3_600_000

    def hours(self, now_ms: int) -> float:
        """Return the paid hours."""
        return ((self.to_ms if self.to_ms is not None else now_ms) - self.from_ms) / 3_600_000


class Cloud:
    """The node pools of a cluster.

    Args:
        cluster: nodes join it and leave it.
        engine: calls back when a node is there.
        pools: in order of preference for growing.
        settings: the autoscaler's.
        policy: decides which pools grow and which nodes go.
        unschedulable: the pods that fit nowhere.
        joined: called with the name and pool of each new node.
        left: called with the name of each node that went.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        pools: Sequence[CloudPool],
        settings: AutoscalerSettings,
        policy: NodePolicy,
        *,
        unschedulable: Callable[[], list[Pod]],
        joined: Callable[[str, CloudPool], None],
        left: Callable[[str], None],
    ) -> None:
        self.pools = {item.pool.name: item for item in pools}
        self.rentals: list[Rental] = []
        self._cluster = cluster
        self._engine = engine
        self._settings = settings
        self._unschedulable = unschedulable
        self._joined = joined
        self._left = left
        self._policy = policy
        self._pool_of: dict[str, str] = {}
        self._coming: dict[str, str] = {}
        self._ready: Counter[str] = Counter()
        """How many nodes of a pool are there."""
        self._on_way: Counter[str] = Counter()
        self._renting: dict[str, Rental] = {}
        """The rental of each node that is there, or on its way."""
        self._named = 0

    def start(self) -> None:
        """Bring every pool to its minimum size at once, with ready nodes."""
        for item in self.pools.values():
            for _ in range(item.pool.min_nodes):
                self._arrive(self._rent(item), item)

    def sizes(self, pool: str) -> tuple[int, int]:
        """Return a pool's number of ready nodes, and the number including those on their way."""
        ready, coming = self._ready[pool], self._on_way[pool]
        return ready, ready + coming

    def pool_of(self, node: str) -> CloudPool:
        return self.pools[self._pool_of[node]]

    def scan(self, now_ms: int) -> None:
        """Run the node autoscaler once."""
        nodes = self._nodes()
        request = NodeRequest(
            tuple(item.pool for item in self.pools.values()),
            tuple(nodes),
            tuple(self._unschedulable()),
            now_ms,
            self._settings,
        )
        actions = self._policy.scan(request)
        removable = {node.state.name: node.pool for node in nodes if node.empty} if actions else {}
        for action in actions:
            if isinstance(action, LookAgain):
                self._engine.at(action.at_ms, EventStage.NODE_AUTOSCALER, self.scan)
                continue
            self._check(action, removable)
            if isinstance(action, ScaleUp):
                self._grow(action, now_ms)
            else:
                self._shrink(action, now_ms)

    def _check(self, action: ScaleUp | ScaleDown, removable: Mapping[str, str]) -> None:
        """Refuse a size that the pool can't have, as a user's policy may ask for it."""
        found = f"the node policy returned {action}, expected"
        if action.pool not in self.pools:
            raise UsageError(f"{found} one of the pools {', '.join(self.pools)}")
        if isinstance(action, ScaleDown):
            if removable.get(action.node) != action.pool:
                raise UsageError(f"{found} an empty node of that pool")
            return
        size, most = self.sizes(action.pool)[1], self.pools[action.pool].pool.max_nodes
        if action.from_nodes != size or not size < action.to_nodes <= most:
            raise UsageError(f"{found} from_nodes {size} and to_nodes above it, at most {most}")

    def _nodes(self) -> list[PoolNode]:
        busy = self._cluster.index.busy.get  # quicker than a Counter's default for missing keys
        present = [
            PoolNode(self._pool_of[name], state, ready=True, empty=not busy(name))
            for name, state in self._cluster.node_states().items()
        ]
        coming = [
            PoolNode(pool, NodeState(self.pools[pool].pool.node(name)), ready=False, empty=False)
            for name, pool in self._coming.items()
        ]
        return present + coming

    def _grow(self, action: ScaleUp, now_ms: int) -> None:
        item = self.pools[action.pool]
        for _ in range(action.to_nodes - action.from_nodes):
            name = self._rent(item)
            self._coming[name] = action.pool
            self._on_way[action.pool] += 1
            self._arrive_later(name, item)
        change = (
            f"{{{action.pool} {action.from_nodes}->{action.to_nodes} (max: {item.pool.max_nodes})}}"
        )
        self._cluster.event(
            now_ms,
            "TriggeredScaleUp",
            f"NodePool/{action.pool}",
            f"pod triggered scale-up: [{change}]",
            before=action.from_nodes,
            after=action.to_nodes,
            pods=action.pods,
        )

    def _arrive_later(self, name: str, item: CloudPool) -> None:
        share = stream(self._cluster.seed, "provisioning", name).random()
        time_ms = round(item.provisioning.at(share) * 1000)
        self._engine.after(time_ms, EventStage.CLOUD, lambda now: self._arrive(name, item))

    def _shrink(self, action: ScaleDown, now_ms: int) -> None:
        self._renting.pop(action.node).to_ms = now_ms
        self._ready[self._pool_of.pop(action.node)] -= 1
        self._cluster.remove_node(action.node)
        self._left(action.node)
        self._cluster.event(
            now_ms,
            "ScaleDown",
            f"Node/{action.node}",
            "node removed by cluster autoscaler",
            before=action.from_nodes,
            after=action.from_nodes - 1,
        )

    def _rent(self, item: CloudPool) -> str:
        name = ""
        while not name or name in self._renting:
            # Where a name is taken, the next is drawn.
            self._named += 1
            suffix = name_suffix(self._cluster.seed, "node", item.pool.name, str(self._named))
            name = f"{item.pool.name}-{suffix}"
        rental = Rental(item.pool.name, name, item.gpus, item.price_per_hour, self._engine.now_ms)
        self.rentals.append(rental)
        self._renting[name] = rental
        return name

    def _arrive(self, name: str, item: CloudPool) -> None:
        now_ms = self._engine.now_ms
        if self._coming.pop(name, None) is not None:
            self._on_way[item.pool.name] -= 1
        self._renting[name].ready_ms = now_ms
        self._pool_of[name] = item.pool.name
        self._ready[item.pool.name] += 1
        self._cluster.add_node(item.pool.node(name, now_ms), item.gpus)
        self._cluster.event(
            now_ms, "NodeReady", f"Node/{name}", f"Node {name} status is now: NodeReady"
        )
        self._joined(name, item)

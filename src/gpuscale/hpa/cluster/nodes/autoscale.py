"""One pass of the node autoscaler: pods that fit nowhere ask for nodes, empty nodes go.

It follows the Cluster Autoscaler's loop: the GPU wait gate, the check against nodes already on their
way, first-fit packing onto the pool's template, at most one pool grown per pass; then empty nodes whose
time has come. Nodes with pods on them are never removed here.

Source: kubernetes/autoscaler cluster-autoscaler core/static_autoscaler.go, core/scaleup, core/scaledown,
estimator/binpacking_estimator.go. Known differences: pools are tried in the order given instead of by an
expander, and nodes that are merely underused stay.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import (
    Action,
    AutoscalerSettings,
    NodePool,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.scheduling.fit import NodeState, misfits
from gpuscale.hpa.cluster.scheduling.resources import gpu_count


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """What the autoscaler remembers between passes."""

    unneeded_since_ms: Mapping[str, int] = field(default_factory=dict)
    last_scale_up_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass wants done, and what to remember."""

    actions: tuple[Action, ...]
    state: AutoscalerState


def autoscale(
    pools: Sequence[NodePool],
    nodes: Sequence[PoolNode],
    unschedulable: Sequence[Pod],
    state: AutoscalerState,
    now_ms: int,
    settings: AutoscalerSettings = AutoscalerSettings(),  # noqa: B008 - frozen
) -> Pass:
    """Return what to do now: at most one pool to grow, otherwise the empty nodes whose time has come.

    Args:
        pools: in order of preference.
        nodes: of all pools, those on their way included.
        unschedulable: pods that the scheduler found no node for, oldest first.
        state: what the pass before returned.
        now_ms: milliseconds since the epoch.
        settings: the autoscaler's flags.
    """
    unneeded = {
        node.state.name: state.unneeded_since_ms.get(node.state.name, now_ms)
        for node in nodes
        if node.empty and node.ready
    }
    ages = [now_ms - pod.metadata.creation_ms for pod in unschedulable if gpu_count(pod.spec)]
    if ages and max(ages) < settings.gpu_pod_age_ms:
        # While the oldest pending GPU pod is too young, the whole pass waits, removals included.
        return Pass((), AutoscalerState(unneeded, state.last_scale_up_ms))
    # Each pod that fits is placed on existing or ordered nodes; the others need new nodes.
    room = [node.state for node in nodes]
    homeless = [pod for pod in unschedulable if not _take_place(room, pod)]
    for pool in pools:
        size = sum(1 for node in nodes if node.pool == pool.name)
        added, helped = _pack(pool, pool.max_nodes - size, homeless)
        if added:
            growth = ScaleUp(pool.name, size, size + added, helped)
            return Pass((growth,), AutoscalerState(unneeded, now_ms))
    removals = _shrink(pools, nodes, unneeded, state.last_scale_up_ms, now_ms, settings)
    gone = {action.node for action in removals}
    kept = {name: since for name, since in unneeded.items() if name not in gone}
    return Pass(removals, AutoscalerState(kept, state.last_scale_up_ms))


def _take_place(room: list[NodeState], pod: Pod) -> bool:
    for index, state in enumerate(room):
        if not misfits(pod.spec, state):
            room[index] = state.with_pod(pod.spec)
            return True
    return False


def _pack(pool: NodePool, limit: int, pods: Sequence[Pod]) -> tuple[int, tuple[str, ...]]:
    """Return how many new nodes the pods fill, at most `limit`, and which pods those are."""
    opened: list[NodeState] = []
    helped: list[str] = []
    template = NodeState(pool.node(f"{pool.name}-template"))
    for pod in pods:
        if _take_place(opened, pod):
            helped.append(pod.metadata.key)
        elif len(opened) < limit and not misfits(pod.spec, template):
            opened.append(template.with_pod(pod.spec))
            helped.append(pod.metadata.key)
    return len(opened), tuple(helped)


def _shrink(
    pools: Sequence[NodePool],
    nodes: Sequence[PoolNode],
    unneeded: Mapping[str, int],
    last_scale_up_ms: int | None,
    now_ms: int,
    settings: AutoscalerSettings,
) -> tuple[ScaleDown, ...]:
    if last_scale_up_ms is not None and now_ms - last_scale_up_ms < settings.delay_after_add_ms:
        return ()
    latest_ms = now_ms - settings.unneeded_time_ms
    ripe = {name for name, since_ms in unneeded.items() if since_ms <= latest_ms}
    if not ripe:
        return ()
    sizes = Counter(node.pool for node in nodes)
    removals: list[ScaleDown] = []
    for pool in pools:
        size = sizes[pool.name]
        if size <= pool.min_nodes:
            continue
        of_pool = (node.state.name for node in nodes if node.pool == pool.name)
        longest_first = sorted(filter(ripe.__contains__, of_pool), key=unneeded.__getitem__)
        for count, name in enumerate(longest_first[: size - pool.min_nodes]):
            removals.append(ScaleDown(pool.name, name, size - count))
    return tuple(removals)


class ClusterAutoscaler:
    """The loop of the Cluster Autoscaler."""

    def __init__(self) -> None:
        self._state = AutoscalerState()

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return at most one pool to grow, otherwise the empty nodes whose time has come."""
        outcome = autoscale(
            request.pools,
            request.nodes,
            request.unschedulable,
            self._state,
            request.now_ms,
            request.settings,
        )
        self._state = outcome.state
        return outcome.actions

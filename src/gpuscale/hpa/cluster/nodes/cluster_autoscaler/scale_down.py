"""Which nodes are not needed, since when, and which of them go now.

Source: cluster-autoscaler/core/scaledown/{planner/planner,eligibility/eligibility,unneeded/nodes,
unremovable/nodes,budgets/budgets,resource/limits}.go, simulator/cluster.go,
processors/nodes/pre_filtering_processor.go, processors/scaledowncandidates (1.35). Limits of time that a
simulation may take have no counterpart. `scale-down-non-empty-candidates-count` and the
`scale-down-candidates-pool-*` flags are read by upstream and used nowhere since 1.26.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.hpa.cluster.nodes.cluster_autoscaler.drainability import (
    RemainingBudgets,
    pods_to_move,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import Registry
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.scale_up import (
    GIB,
    ClusterSize,
    cores_of,
    memory_of,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import Snapshot, Trial
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.usage import Usage
from gpuscale.hpa.cluster.nodes.policy import NodeRequest, PoolNode
from gpuscale.hpa.cluster.nodes.pools import AutoscalerSettings, ScaleDown

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


@dataclass(slots=True)
class _Unneeded:
    """A node that could go."""

    since_ms: int
    is_empty: bool
    """No pod on it needs another node."""
    is_risky: bool
    """Its pods can't all be evicted at once."""


class Planner:
    """Unneeded nodes, and what is remembered of the others, from pass to pass."""

    def __init__(self) -> None:
        self.unneeded: dict[str, _Unneeded] = {}
        self._unremovable_until: dict[str, int] = {}
        self._updated_ms: int | None = None
        self._interval_ms: int | None = None
        """The shortest time between two passes so far."""

    def forget(self) -> None:
        """Let no node be unneeded any more."""
        self.unneeded = {}

    def update(
        self, request: NodeRequest, registry: Registry, snapshot: Snapshot, usage: Usage
    ) -> None:
        """Find the nodes that are not needed now, and keep since when.

        Args:
            request: of the pass.
            registry: the pools' state.
            snapshot: with the pending pods that fit; only nodes that are there may take pods here.
            usage: of the nodes.
        """
        settings, now_ms = request.settings, request.now_ms
        if self._updated_ms is not None and now_ms > self._updated_ms:
            passed_ms = now_ms - self._updated_ms
            self._interval_ms = min(passed_ms, self._interval_ms or settings.unneeded_time_ms or 1)
        self._updated_ms = now_ms
        self._unremovable_until = {
            name: until_ms
            for name, until_ms in self._unremovable_until.items()
            if until_ms > now_ms and name in snapshot.index
        }
        budgets = RemainingBudgets(request.budgets)
        found: dict[str, _Unneeded] = {}
        for node in self._candidates(request, registry, snapshot, usage):
            if len(found) >= self._limit(settings):
                break
            name = node.state.name
            index = snapshot.index[name]
            pods = [*usage.pods(name), *snapshot.placed.get(index, ())]
            verdict = pods_to_move(pods, budgets, now_ms, settings)
            trial = Trial()
            for pod in verdict.pods:
                snapshot.company.take(pod, index)
            if verdict.blocked_by or any(
                snapshot.place(pod, trial, but=index) is None for pod in verdict.pods
            ):
                snapshot.drop(trial)
                for pod in verdict.pods:
                    snapshot.company.put(pod, index)
                recheck_ms = settings.unremovable_node_recheck_timeout_ms
                self._unremovable_until[name] = now_ms + recheck_ms
                continue
            snapshot.keep(trial)
            snapshot.close([index])
            all_at_once = budgets.take(verdict.pods)
            before = self.unneeded.get(name)
            since_ms = before.since_ms if before else now_ms
            found[name] = _Unneeded(since_ms, not verdict.pods, not all_at_once)
        self.unneeded = found

    def _candidates(
        self, request: NodeRequest, registry: Registry, snapshot: Snapshot, usage: Usage
    ) -> list[PoolNode]:
        """Return the nodes that are used little enough: empty ones first, then those of the pass before."""
        found = []
        for pool in request.pools:
            state = registry.pools[pool.name]
            if state.size <= pool.min_nodes:
                continue
            unready = state.unready if request.settings.scale_down_unready_enabled else ()
            for node in (*state.ready, *unready):
                name, annotations = node.state.name, node.state.node.metadata.annotations
                if (
                    node.leaving
                    or name in self._unremovable_until
                    or annotations.get(SCALE_DOWN_DISABLED) == "true"
                    # Where a node's pods are not known, neither is whether they fit elsewhere.
                    or not (node.empty or name in request.pods)
                ):
                    continue
                placed = snapshot.placed.get(snapshot.index[name], ())
                if usage.is_underused(node, [*map(snapshot.kinds.requests, placed)]):
                    is_empty = node.empty and not placed
                    found.append(((not is_empty, name not in self.unneeded), node))
        return [node for _, node in sorted(found, key=lambda item: item[0])]

    def _limit(self, settings: AutoscalerSettings) -> int:
        """Return how many unneeded nodes are enough: no more could be removed in time."""
        parallel = settings.max_scale_down_parallelism
        unneeded_ms = settings.unneeded_time_ms
        interval_ms = self._interval_ms or max(unneeded_ms, 1)
        rounds = max(unneeded_ms, interval_ms) // interval_ms
        return min(len(self.unneeded) + 2 * parallel, parallel * rounds + parallel)

    def removals(
        self,
        request: NodeRequest,
        registry: Registry,
        size: Callable[[], ClusterSize],
        sizes: Counter[str],
        going: Mapping[str, bool],
    ) -> tuple[ScaleDown, ...]:
        """Return the nodes that go now: those that were not needed for long enough, within all limits.

        Args:
            request: of the pass.
            registry: the pools' state.
            size: of the cluster.
            sizes: of the pools, those included that go; lowered for each that is returned.
            going: nodes that are being removed already, and whether they had to be drained.
        """
        settings, now_ms = request.settings, request.now_ms
        pools = {pool.name: pool for pool in request.pools}
        nodes = {node.state.name: node for node in request.nodes}
        unready = {node.state.name for state in registry.pools.values() for node in state.unready}
        left = sizes.copy()
        left.subtract(nodes[name].pool for name in going)
        has_floor = settings.cores_total[0] or settings.memory_total[0]
        cores, memory = (size().cores, size().memory_nano) if has_floor else (0, 0)
        ripe: list[tuple[str, _Unneeded]] = []
        by_age = sorted(self.unneeded.items(), key=lambda item: item[1].since_ms)
        for name, state in sorted(by_age, key=lambda item: not item[1].is_empty):
            wait_ms = (
                settings.scale_down_unready_time_ms
                if name in unready
                else settings.unneeded_time_ms
            )
            pool = pools[nodes[name].pool]
            allocatable = nodes[name].state.node.allocatable
            its_cores, its_memory = cores_of(allocatable), memory_of(allocatable)
            if (
                state.since_ms + wait_ms <= now_ms
                and left[pool.name] > pool.min_nodes
                and (
                    not has_floor
                    or (
                        cores - its_cores >= settings.cores_total[0]
                        and memory - its_memory >= settings.memory_total[0] * GIB
                    )
                )
            ):
                left[pool.name] -= 1
                cores, memory = cores - its_cores, memory - its_memory
                ripe.append((name, state))
        parallel = settings.max_scale_down_parallelism - len(going)
        drains = settings.max_drain_parallelism - sum(going.values())
        empty = _grouped([name for name, state in ripe if state.is_empty], nodes)
        drained = _grouped(
            [
                name
                for risky in (False, True)
                for name, s in ripe
                if not s.is_empty and s.is_risky is risky
            ],
            nodes,
        )
        empty = empty[: max(0, parallel)]
        drained = drained[: max(0, min(parallel - len(empty), drains))]
        actions = []
        for name in (*empty, *drained):
            pool_name = nodes[name].pool
            delay_ms = settings.node_delete_delay_after_taint_ms
            give_up_ms = delay_ms + settings.max_pod_eviction_time_ms
            actions.append(
                ScaleDown(
                    pool_name, name, sizes[pool_name], delay_ms=delay_ms, give_up_ms=give_up_ms
                )
            )
            sizes[pool_name] -= 1
        return tuple(actions)


def _grouped(names: Sequence[str], nodes: Mapping[str, PoolNode]) -> list[str]:
    """Return nodes pool by pool, in the order in which the pools come."""
    by_pool: dict[str, list[str]] = {}
    for name in names:
        by_pool.setdefault(nodes[name].pool, []).append(name)
    return [name for of_pool in by_pool.values() for name in of_pool]

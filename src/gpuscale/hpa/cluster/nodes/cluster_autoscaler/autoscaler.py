"""One loop of the Cluster Autoscaler: pods that fit nowhere ask for nodes, nodes that nobody needs go.

Source: cluster-autoscaler/core/static_autoscaler.go (RunOnce), core/podlistprocessor (1.35).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.company import have_repelling
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.drainability import is_daemon, is_mirror
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import GPU_RESOURCES, Registry
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.requests import ProvisioningRequests, made_pods
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.scale_down import Planner
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.scale_up import (
    ClusterSize,
    Growth,
    cores_of,
    memory_of,
    scale_up,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import (
    HOSTNAME,
    PodKinds,
    Snapshot,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.templates import Templates
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.usage import Usage
from gpuscale.hpa.cluster.nodes.policy import NodeRequest
from gpuscale.hpa.cluster.nodes.pools import (
    Action,
    AutoscalerSettings,
    LaunchFailure,
    LookAgain,
    NotTriggered,
    ScaleDown,
    ScaleUp,
)
from gpuscale.hpa.cluster.scheduling import NodeState

POD_SCALE_UP_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"


class ClusterAutoscaler:
    """The loop of the Cluster Autoscaler."""

    def __init__(self) -> None:
        self.on_unschedulable = False
        """Whether it is to be asked when the scheduler has found no node for a pod."""
        self._due_ms = 0
        """When the next loop is due, with frequent loops."""
        self._waiting: frozenset[str] = frozenset()
        """The pods that were unschedulable when it was last asked."""
        self._failures: list[LaunchFailure] = []
        """Since the loop before."""
        self._told: dict[str, str] = {}
        """The pods for which no pool grew in the last pass, and why."""
        self._registry = Registry()
        self._templates = Templates()
        self._planner = Planner()
        self._usage = Usage()
        self._requests = ProvisioningRequests()
        self._hints: Mapping[str, str] = {}
        self._going: dict[str, bool] = {}
        """The nodes that it removes, and whether they had to be drained."""
        self._scale_up_ms: int | None = None
        self._delete_ms: int | None = None
        self._failure_ms: int | None = None
        self._scale_ups = 0

    def scan(self, request: NodeRequest) -> Sequence[Action]:
        """Return at most one growth, which similar pools may share, and the nodes whose time has come.

        A pod for which no pool grows is in it once for each reason.
        """
        settings, now_ms = request.settings, request.now_ms
        if settings.frequent_loops_enabled:
            if not self._is_time(request):
                self._failures += request.failures
                return ()
            request = replace(request, failures=(*self._failures, *request.failures))
            self._failures.clear()
        registry = self._registry
        usage = self._usage
        registry.update(request)
        usage.begin(request, registry.cloud.gpu_label)
        self._follow_removals(request)
        templates = self._templates.update(request, registry)
        if not settings.scale_up_from_zero and not any(
            state.ready for state in registry.pools.values()
        ):
            return ()
        sizes = Counter({name: state.size for name, state in registry.pools.items()})
        actions: list[Action] = [*self._late_nodes(request, sizes)]
        if not registry.is_cluster_healthy():
            self._planner.forget()
            return actions

        registered = [
            node for state in registry.pools.values() for node in (*state.ready, *state.unready)
        ]
        states = [usage.counted(node) for node in registered]
        upcoming = [
            _named(templates[name], f"{name}-upcoming-{number}")
            for name, state in registry.pools.items()
            for number in range(state.upcoming)
        ]
        repelling = have_repelling(request.unschedulable) or any(
            map(usage.is_repelling, registered)
        )
        snapshot = Snapshot(
            [*states, *upcoming], PodKinds(), self._hints, usage.pods, repelling=repelling
        )
        leaving = [index for index, node in enumerate(registered) if node.leaving]
        snapshot.close(leaving)

        @cache
        def size() -> ClusterSize:
            return _size_of([*states, *upcoming], set(leaving))

        helpless = self._pods_to_help(request, snapshot)
        may_remove = True
        refused: tuple[NotTriggered, ...] = ()
        if not helpless:
            pass
        elif 0 < settings.max_nodes_total <= _count_ready(registry):
            message = "pod didn't trigger scale-up: max total nodes in cluster reached"
            refused = tuple(NotTriggered(pod.metadata.key, message) for pod in helpless)
        elif are_new(helpless, now_ms, settings, snapshot.kinds):
            # More of them are probably to come, so neither is anything removed.
            may_remove = False
        else:
            growth = scale_up(
                request.pools,
                helpless,
                templates,
                registry,
                size(),
                now_ms,
                snapshot=snapshot,
                draw=self._scale_ups,
            )
            refused = growth.not_triggered
            may_remove = not self._grow(growth, sizes, actions, now_ms)
        # Kubernetes counts an event that repeats itself instead of keeping each.
        actions += [each for each in refused if self._told.get(each.pod) != each.message]
        self._told = {each.pod: each.message for each in refused}
        if settings.enable_provisioning_requests and may_remove:
            growth, conditions = self._requests.serve(
                request, snapshot, templates, registry, size(), draw=self._scale_ups
            )
            may_remove = not self._grow(growth, sizes, actions, now_ms)
            actions += conditions

        if settings.scale_down_enabled:
            # Pods of nodes that go may only move to nodes that are there.
            snapshot.close(range(len(states), len(states) + len(upcoming)))
            self._planner.update(request, registry, snapshot, usage)
            if may_remove and not self._is_cooling(now_ms, settings):
                removals = self._planner.removals(request, registry, size, sizes, self._going)
                for removal in removals:
                    self._going[removal.node] = not self._planner.unneeded[removal.node].is_empty
                    self._delete_ms = now_ms
                actions += removals
        self._hints = snapshot.hints
        if settings.enforce_node_group_min_size:
            actions += self._to_min_size(request, sizes)
        if settings.frequent_loops_enabled:
            # At once after a change, otherwise an interval after this loop.
            is_changed = any(isinstance(each, ScaleUp | ScaleDown) for each in actions)
            self._due_ms = now_ms if is_changed else now_ms + settings.scan_interval_ms
            actions.append(LookAgain(self._due_ms))
        return actions

    def _is_time(self, request: NodeRequest) -> bool:
        """Return whether a loop is due, or a pod has become unschedulable since it was last asked.

        Source: cluster-autoscaler/loop/trigger.go (1.35).
        """
        self.on_unschedulable = True
        before = self._waiting
        self._waiting = frozenset(pod.metadata.key for pod in request.unschedulable)
        return request.now_ms >= self._due_ms or not self._waiting <= before

    def _grow(
        self, growth: Growth, sizes: Counter[str], actions: list[Action], now_ms: int
    ) -> bool:
        """Take in what a scale-up came to, and return whether anything grows."""
        for action in growth.actions:
            sizes[action.pool] = action.to_nodes
        actions += growth.actions
        if growth.actions:
            self._scale_up_ms = now_ms
            self._scale_ups += 1
        return bool(growth.actions)

    def _follow_removals(self, request: NodeRequest) -> None:
        """Find out which removals are still under way, and which have failed."""
        leaving = {node.state.name: node.leaving for node in request.nodes}
        if not all(leaving.get(name, True) for name in self._going):
            self._failure_ms = request.now_ms
        # Nodes that leave by themselves, as spot nodes do, are none of its removals.
        self._going = {name: drained for name, drained in self._going.items() if leaving.get(name)}

    def _late_nodes(self, request: NodeRequest, sizes: Counter[str]) -> list[ScaleDown]:
        """Return the removal of nodes that did not come in time."""
        found = []
        for pool in request.pools:
            late = self._registry.pools[pool.name].long_unregistered
            spare = sizes[pool.name] - pool.min_nodes
            most = len(late) if request.settings.force_delete_unregistered_nodes else max(0, spare)
            for node in late[:most]:
                name = node.state.name
                reason = f"Removed unregistered node {name}"
                found.append(ScaleDown(pool.name, name, sizes[pool.name], reason))
                sizes[pool.name] -= 1
            del late[:most]
        return found

    def _pods_to_help(self, request: NodeRequest, snapshot: Snapshot) -> list[Pod]:
        """Return the pods that fit on no node that is there or on its way; the others are put there."""
        settings, now_ms = request.settings, request.now_ms
        pending = [
            pod
            for pod in self._requests.without_consumers(request)
            if pod.spec.priority >= settings.expendable_pods_priority_cutoff
        ]
        for name, is_drained in self._going.items():
            if is_drained:
                pending += [
                    pod
                    for pod in self._usage.pods(name)
                    if pod.metadata.deletion_ms is None and not (is_daemon(pod) or is_mirror(pod))
                ]
        if settings.capacity_buffer_pod_injection_enabled:
            pending += [
                pod
                for buffer in request.capacity_buffers
                for pod in made_pods(
                    buffer.metadata,
                    buffer.template,
                    f"capacity-buffer-{buffer.metadata.name}",
                    buffer.replicas,
                )
            ]
        self._requests.book(request, snapshot)
        helpless = [
            pod
            for pod in sorted(pending, key=lambda pod: -pod.spec.priority)
            if not snapshot.put(pod)
        ]
        return [
            pod
            for pod in helpless
            if not is_daemon(pod)
            and now_ms - pod.metadata.creation_ms >= _scale_up_delay_ms(pod, settings)
        ]

    def _is_cooling(self, now_ms: int, settings: AutoscalerSettings) -> bool:
        """Return whether it is too early to remove anything after the last change."""
        return any(
            last_ms is not None and last_ms + delay_ms > now_ms
            for last_ms, delay_ms in (
                (self._scale_up_ms, settings.delay_after_add_ms),
                (self._delete_ms, settings.scale_down_delay_after_delete_ms),
                (self._failure_ms, settings.scale_down_delay_after_failure_ms),
            )
        )

    def _to_min_size(self, request: NodeRequest, sizes: Counter[str]) -> list[ScaleUp]:
        found = []
        for pool in request.pools:
            size, registry = sizes[pool.name], self._registry
            is_open = not registry.is_backed_off(pool.name, request.now_ms)
            if size < pool.min_nodes and is_open and registry.is_healthy(pool.name):
                found.append(ScaleUp(pool.name, size, pool.min_nodes, ()))
                registry.register_scale_up(pool.name, pool.min_nodes - size, request.now_ms)
                self._scale_up_ms = request.now_ms
        return found


def are_new(
    pods: Sequence[Pod], now_ms: int, settings: AutoscalerSettings, kinds: PodKinds
) -> bool:
    """Return whether it is too early for new nodes: of all pods and of those with GPUs the oldest counts."""
    created = [pod.metadata.creation_ms for pod in pods]
    with_gpus = [
        pod.metadata.creation_ms for pod in pods if not GPU_NAMES.isdisjoint(kinds.requests(pod))
    ]
    return min(created) + settings.pod_age_ms > now_ms or (
        bool(with_gpus) and min(with_gpus) + settings.gpu_pod_age_ms > now_ms
    )


GPU_NAMES = frozenset(GPU_RESOURCES)


def _scale_up_delay_ms(pod: Pod, settings: AutoscalerSettings) -> int:
    """Return how old a pod must be; its annotation may ask for more than the flag."""
    text = pod.metadata.annotations.get(POD_SCALE_UP_DELAY)
    try:
        own_ms = parse_duration_ms(text) if text else 0
    except ValueError:
        own_ms = 0
    return max(own_ms, settings.new_pod_scale_up_delay_ms)


def _named(state: NodeState, name: str) -> NodeState:
    labels = {**state.node.metadata.labels, HOSTNAME: name}
    meta = replace(state.node.metadata, name=name, labels=labels)
    return replace(state, node=replace(state.node, metadata=meta))


def _count_ready(registry: Registry) -> int:
    return sum(len(state.ready) for state in registry.pools.values())


def _size_of(states: Sequence[NodeState], leaving: set[int]) -> ClusterSize:
    staying = [state.node.allocatable for at, state in enumerate(states) if at not in leaving]
    return ClusterSize(len(states), sum(map(cores_of, staying)), sum(map(memory_of, staying)))

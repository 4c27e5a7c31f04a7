"""The scheduler: each pending pod gets a node, others' place, or a reason.

A pod that fits nowhere is tried again whenever something changes. The back-off of kube-scheduler's queue, 1 s
doubling to 10 s, costs no time here: since 1.33 it takes pods out of it as soon as it has nothing else to do
(SchedulerPopFromBackoffQ; pkg/scheduler/backend/queue/active_queue.go), and an attempt takes no virtual time.
"""

from collections.abc import Callable, Iterable

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.base.objects.workloads import LWS_WORKER
from gpuscale.hpa.cluster.scheduling import Placer, SchedulerSettings, find_victims
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.groups import workers_selector
from gpuscale.lab.sim.pod_index import owner_of


class Scheduler:
    """Binds pods; reports each reason why a pod can't be bound once.

    Args:
        cluster: where the pods and nodes are.
        settings: of its profile.
        evict: ends a pod, by its key.
        budgets: returns what they allow now.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: SchedulerSettings,
        evict: Callable[[str], None],
        budgets: Callable[[], Iterable[PodDisruptionBudget]],
    ) -> None:
        self._cluster = cluster
        self._evict = evict
        self._budgets = budgets
        self._placer = Placer((), settings, self._selector_of)
        self._reasons: dict[str, str] = {}
        self._nominated: dict[str, str] = {}
        """Pods that wait for others to end, to the node on which they do."""
        self.found_none = False
        """Whether the last run tried a pod for the first time and found no node for it."""

    def run(self, now_ms: int) -> tuple[str, ...]:
        """Return the keys of the newly bound pods, in order."""
        cluster = self._cluster
        bound: list[str] = []
        self.found_none = False
        for key in [key for key in self._reasons if key not in cluster.pods]:
            del self._reasons[key]
            self._nominated.pop(key, None)
        if not cluster.index.waiting:
            return ()
        self._placer.update(cluster.node_states())
        # The order of the scheduling queue: by priority, then age.
        waiting = sorted(
            (pod for pod in cluster.unscheduled() if not pod.spec.scheduling_gates),
            key=lambda pod: (-pod.spec.priority, pod.metadata.creation_ms),
        )
        for pod in waiting:
            key = pod.metadata.key
            about, namespace = f"Pod/{pod.metadata.name}", pod.metadata.namespace
            placement = self._placer.place(pod)
            if placement.node is not None:
                cluster.bind(key, placement.node)
                self._reasons.pop(key, None)
                self._nominated.pop(key, None)
                message = f"Successfully assigned {key} to {placement.node}"
                cluster.event(now_ms, "Scheduled", about, message, namespace=namespace)
                bound.append(key)
                continue
            if self._reasons.get(key) != placement.message:
                self.found_none |= key not in self._reasons
                self._reasons[key] = placement.message
                cluster.event(
                    now_ms,
                    "FailedScheduling",
                    about,
                    placement.message,
                    namespace=namespace,
                    type_="Warning",
                )
            self._preempt(pod, now_ms)
        return tuple(bound)

    def _preempt(self, pod: Pod, now_ms: int) -> None:
        """End pods of lower priorities where that lets this one in, and keep their place for it."""
        placer, key = self._placer, pod.metadata.key
        if not placer.has_pods_below(pod.spec.priority):
            return
        state = placer.states.get(self._nominated.get(key, ""))
        waits = state is not None and any(
            each.metadata.deletion_ms is not None and each.spec.priority < pod.spec.priority
            for each in state.pods
        )
        if not waits:
            self._nominated.pop(key, None)
            found = find_victims(placer, pod, tuple(self._budgets()))
            if not found.choices:
                return
            choice = found.choices[0]
            self._nominated[key] = choice.node
            for victim in choice.victims:
                meta = victim.metadata
                message = f"Preempted by pod {key} on node {choice.node}"
                about = f"Pod/{meta.name}"
                if meta.deletion_ms is None:
                    self._cluster.event(
                        now_ms, "Preempted", about, message, namespace=meta.namespace
                    )
                    self._evict(meta.key)
        # Pods that come after it find its room taken.
        placer.reserve(self._nominated[key], pod)

    def _selector_of(self, pod: Pod) -> Selector:
        """Return what a pod's Services and its ReplicaSet or StatefulSet select by, which it is spread by.

        Source: kubernetes v1.37 pkg/scheduler/framework/plugins/helper/spread.go (DefaultSelector).
        """
        cluster, labels = self._cluster, pod.metadata.labels
        selected: dict[str, str] = {}
        for service in cluster.services.values():
            is_near = service.metadata.namespace == pod.metadata.namespace
            if is_near and service.selector.items() <= labels.items():
                selected |= service.selector
        requirements = selector_of_labels(selected).requirements
        owner = owner_of(pod)
        if owner and owner in cluster.controlled and owner[0] in ("ReplicaSet", "StatefulSet"):
            deployment = cluster.deployments[cluster.controlled[owner][1]]
            is_worker = labels.get(LWS_WORKER, "0") != "0"
            selector = workers_selector(pod) if is_worker else deployment.selector
            requirements += selector.requirements
        return Selector(requirements)

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit on no node, oldest first; not those that preempt others."""
        return [
            pod
            for pod in self._cluster.unscheduled()
            if pod.metadata.key in self._reasons and pod.metadata.key not in self._nominated
        ]

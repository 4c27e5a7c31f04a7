"""The scheduler: each pending pod gets a node, others' place, or a reason.

A pod that fits nowhere is tried again whenever something changes. The back-off of kube-scheduler's queue, 1 s
doubling to 10 s, costs no time here: since 1.33 it takes pods out of it as soon as it has nothing else to do
(SchedulerPopFromBackoffQ; pkg/scheduler/backend/queue/active_queue.go), and an attempt takes no virtual time.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.base.objects.workloads import LWS_WORKER
from gpuscale.hpa.cluster.scheduling import (
    TOO_FEW_PODS,
    Placer,
    SchedulerSettings,
    find_victims,
    place_gang,
)
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.groups import workers_selector
from gpuscale.lab.sim.pod_index import FINISHED, owner_of


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
        self._said: dict[str, str] = {}
        """PodGroup key to why it waits, as it was last reported."""
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
        gangs: dict[str, list[Pod]] = {}
        for pod in waiting if cluster.gangs else ():
            if gang := self._gang_of(pod):
                gangs.setdefault(gang, []).append(pod)
        placed = Counter(
            gang
            for pod in (cluster.pods.values() if gangs else ())
            if pod.spec.node_name
            and pod.status.phase not in FINISHED
            and (gang := self._gang_of(pod))
        )
        for pod in waiting:
            if gangs and (gang := self._gang_of(pod)):
                # The first of its pods brings the whole gang to its turn.
                if pod is gangs[gang][0]:
                    bound += self._place_gang(gang, gangs[gang], placed[gang], now_ms)
                continue
            placement = self._placer.place(pod)
            if placement.node is not None:
                self._bind(pod, placement.node, placement.devices, now_ms)
                bound.append(pod.metadata.key)
                continue
            self._refuse(pod, placement.message, now_ms)
            self._preempt(pod, now_ms)
        return tuple(bound)

    def _gang_of(self, pod: Pod) -> str:
        """Return the key of the PodGroup that a pod gets a node with; empty without one."""
        key = f"{pod.metadata.namespace}/{pod.spec.scheduling_group}"
        return key if key in self._cluster.gangs else ""

    def _place_gang(self, gang: str, pods: Sequence[Pod], there: int, now_ms: int) -> list[str]:
        """Bind enough pods of a gang, or none; return the keys of those that were bound."""
        least = self._cluster.gangs[gang]
        if len(pods) + there < least:
            self._tell_gang(gang, TOO_FEW_PODS, now_ms)
            return []
        found = place_gang(self._placer, pods, least, there)
        for pod in pods:
            key = pod.metadata.key
            if key in found.nodes:
                self._bind(pod, found.nodes[key], found.devices[key], now_ms)
            else:
                self._refuse(pod, found.messages[key], now_ms)
        part = f"group of which a part fits: {found.fitting} of {len(pods)} pods; "
        said = f"{part if found.fitting else ''}{found.message}"
        self._tell_gang(gang, said if found.message else "", now_ms)
        return list(found.nodes)

    def _tell_gang(self, gang: str, said: str, now_ms: int) -> None:
        """Report why a gang waits, once for each reason."""
        if self._said.get(gang, "") != said:
            self._said[gang] = said
            namespace, _, name = gang.partition("/")
            if said:
                self._cluster.event(
                    now_ms,
                    "Unschedulable",
                    f"PodGroup/{name}",
                    said,
                    namespace=namespace,
                    type_="Warning",
                )

    def _bind(self, pod: Pod, node: str, devices: frozenset[DeviceKey], now_ms: int) -> None:
        key, about = pod.metadata.key, f"Pod/{pod.metadata.name}"
        self._cluster.bind(key, node, devices)
        self._reasons.pop(key, None)
        self._nominated.pop(key, None)
        message = f"Successfully assigned {key} to {node}"
        namespace = pod.metadata.namespace
        self._cluster.event(now_ms, "Scheduled", about, message, namespace=namespace)

    def _refuse(self, pod: Pod, message: str, now_ms: int) -> None:
        key = pod.metadata.key
        if self._reasons.get(key) != message:
            self.found_none |= key not in self._reasons
            self._reasons[key] = message
            self._cluster.event(
                now_ms,
                "FailedScheduling",
                f"Pod/{pod.metadata.name}",
                message,
                namespace=pod.metadata.namespace,
                type_="Warning",
            )

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

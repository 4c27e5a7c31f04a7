"""The scheduler: each pending pod gets a node or a reason."""

from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.hpa.cluster.scheduling import Placer, SchedulerSettings
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.pod_index import owner_of


class Scheduler:
    """Binds pods; reports each reason why a pod can't be bound once.

    Args:
        cluster: where the pods and nodes are.
        settings: of its profile.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._cluster = cluster
        self._placer = Placer((), settings, self._selector_of)
        self._reasons: dict[str, str] = {}
        self.found_none = False
        """Whether the last run tried a pod for the first time and found no node for it."""

    def run(self, now_ms: int) -> tuple[str, ...]:
        """Return the keys of the newly bound pods, in order."""
        cluster = self._cluster
        bound: list[str] = []
        self.found_none = False
        for key in [key for key in self._reasons if key not in cluster.pods]:
            del self._reasons[key]
        if not cluster.index.waiting:
            return ()
        self._placer.update(cluster.node_states())
        # The order of the scheduling queue: by priority, then age.
        waiting = sorted(
            cluster.unscheduled(), key=lambda pod: (-pod.spec.priority, pod.metadata.creation_ms)
        )
        for pod in waiting:
            key = pod.metadata.key
            about, namespace = f"Pod/{pod.metadata.name}", pod.metadata.namespace
            placement = self._placer.place(pod)
            if placement.node is not None:
                cluster.bind(key, placement.node)
                self._reasons.pop(key, None)
                message = f"Successfully assigned {key} to {placement.node}"
                cluster.event(now_ms, "Scheduled", about, message, namespace=namespace)
                bound.append(key)
            elif self._reasons.get(key) != placement.message:
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
        return tuple(bound)

    def _selector_of(self, pod: Pod) -> Selector:
        """Return what a pod's Services and ReplicaSet select by, which pods are spread by.

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
        if owner and owner[0] == "ReplicaSet" and owner in cluster.controlled:
            deployment = cluster.deployments[cluster.controlled[owner][1]]
            requirements += deployment.selector.requirements
        return Selector(requirements)

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit on no node, oldest first."""
        return [pod for pod in self._cluster.unscheduled() if pod.metadata.key in self._reasons]

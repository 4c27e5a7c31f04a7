"""The scheduler: every waiting pod gets a node, or a reason."""

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.scheduling import Placer
from gpuscale.lab.sim.cluster import Cluster


class Scheduler:
    """Binds pods, and says once per pod and reason why one can't be bound."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reasons: dict[str, str] = {}

    def run(self, now_ms: int) -> tuple[str, ...]:
        """Return the keys of the pods that were bound, in the order they were."""
        cluster = self._cluster
        bound: list[str] = []
        self._forget()
        if not cluster.index.waiting:
            return ()
        placer = Placer(cluster.node_states().values())
        for pod in _in_queue_order(cluster.unscheduled()):
            key = pod.metadata.key
            placement = placer.place(pod.spec)
            if placement.node is None:
                self._explain(pod, placement.message, now_ms)
                continue
            cluster.bind(key, placement.node)
            self._reasons.pop(key, None)
            message = f"Successfully assigned {key} to {placement.node}"
            about, namespace = f"Pod/{pod.metadata.name}", pod.metadata.namespace
            cluster.event(now_ms, "Scheduled", about, message, namespace=namespace)
            bound.append(key)
        return tuple(bound)

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit nowhere, oldest first."""
        return [pod for pod in self._cluster.unscheduled() if pod.metadata.key in self._reasons]

    def _explain(self, pod: Pod, message: str, now_ms: int) -> None:
        key = pod.metadata.key
        if self._reasons.get(key) != message:
            self._reasons[key] = message
            self._cluster.event(
                now_ms,
                "FailedScheduling",
                f"Pod/{pod.metadata.name}",
                message,
                namespace=pod.metadata.namespace,
                type_="Warning",
            )

    def _forget(self) -> None:
        gone = [key for key in self._reasons if key not in self._cluster.pods]
        for key in gone:
            del self._reasons[key]


def _in_queue_order(pods: list[Pod]) -> list[Pod]:
    """Return pods as the scheduling queue gives them: by priority, then by age."""
    return sorted(pods, key=lambda pod: (-pod.spec.priority, pod.metadata.creation_ms))

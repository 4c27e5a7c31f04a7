"""The scheduler: each pending pod gets a node or a reason."""

from gpuscale.base.objects.pods import Pod
from gpuscale.hpa.cluster.scheduling import Placer
from gpuscale.lab.sim.cluster import Cluster


class Scheduler:
    """Binds pods; reports each reason why a pod can't be bound once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
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
        placer = Placer(cluster.node_states().values())
        # The order of the scheduling queue: by priority, then age.
        waiting = sorted(
            cluster.unscheduled(), key=lambda pod: (-pod.spec.priority, pod.metadata.creation_ms)
        )
        for pod in waiting:
            key = pod.metadata.key
            about, namespace = f"Pod/{pod.metadata.name}", pod.metadata.namespace
            placement = placer.place(pod.spec)
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

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit on no node, oldest first."""
        return [pod for pod in self._cluster.unscheduled() if pod.metadata.key in self._reasons]

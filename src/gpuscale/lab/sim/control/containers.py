"""The running containers of a simulated cluster: a GPU process for each pod, and kubelets' reports.

The simulated kubelet starts and ends them; in a rehearsal the API server's pods do.
"""

from dataclasses import dataclass
from itertools import count

from gpuscale.base.objects.pods import Pod
from gpuscale.lab.sim.cluster import Cluster

_FIRST_PID = 20_001


@dataclass(frozen=True, slots=True)
class Process:
    """The GPU process of a running container."""

    pid: int
    started_ms: int


class Containers:
    """The running containers of a cluster's pods.

    Args:
        cluster: gets the events.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.processes: dict[str, Process] = {}
        """Pod key to its process while one runs."""
        self._cluster = cluster
        self._pids = count(_FIRST_PID)

    def start(self, key: str, now_ms: int) -> None:
        """Start a pod's containers."""
        self.processes[key] = Process(next(self._pids), now_ms)
        self._report("Started", "Started", self._cluster.pods[key], now_ms)

    def report_stop(self, key: str, now_ms: int) -> None:
        """Report that a pod's containers are asked to stop."""
        self._report("Killing", "Stopping", self._cluster.pods[key], now_ms)

    def report_unready(self, key: str, now_ms: int) -> None:
        """Report that a pod's readiness probe fails, as its GPU is lost."""
        pod = self._cluster.pods[key]
        self._cluster.event(
            now_ms,
            "Unhealthy",
            f"Pod/{pod.metadata.name}",
            "Readiness probe failed: the GPU is lost",
            namespace=pod.metadata.namespace,
            type_="Warning",
        )

    def end(self, key: str) -> None:
        """Stop a pod's containers, if they run."""
        self.processes.pop(key, None)

    def end_orphans(self) -> None:
        """Stop the containers of pods that are gone, for instance with their node."""
        for key in self.processes.keys() - self._cluster.pods.keys():
            del self.processes[key]

    def _report(self, kind: str, verb: str, pod: Pod, now_ms: int) -> None:
        if pod.metadata.owner is not None and pod.metadata.owner.kind == "DaemonSet":
            return
        for container in pod.spec.containers:
            message = f"{verb} container {container.name}"
            about = f"Pod/{pod.metadata.name}"
            namespace = pod.metadata.namespace
            self._cluster.event(now_ms, kind, about, message, namespace=namespace)

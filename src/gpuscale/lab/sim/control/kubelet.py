"""The kubelets: they pull images, start containers, report Ready, and stop containers.

Each pod goes Pending → Running → Ready, or → Succeeded for a job, after the times its workload says.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gpuscale.base.objects.pods import Lifecycle, Pod, PodPhase, PodStatus
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.containers import Containers
from gpuscale.lab.sim.control.job_sets import JobSets
from gpuscale.lab.sim.engine import Engine, EventStage
from gpuscale.lab.sim.pod_index import FINISHED


class Kubelet:
    """Moves pods through their phases; one instance serves all nodes.

    Args:
        cluster: where the pods are.
        engine: calls back when a step is over.
        lifecycle_of: times of a pod.
        changed: called when something happened that controllers want to know.
        containers: started and ended here.
        job_sets: say which pods wait for each other before they compute.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        lifecycle_of: Callable[[Pod], Lifecycle],
        changed: Callable[[], None],
        containers: Containers,
        job_sets: JobSets,
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._lifecycle_of = lifecycle_of
        self._changed = changed
        self._containers = containers
        self._job_sets = job_sets
        self._held_back: set[str] = set()
        """Pods that would be ready with GPUs that work."""

    def take(self, key: str) -> None:
        """Start the life of a newly bound pod."""
        pod = self._cluster.pods[key]
        now_ms = self._engine.now_ms
        self._cluster.set_status(key, replace(pod.status, start_ms=now_ms, ready=False))
        lifecycle = self._lifecycle_of(pod)
        self._later(lifecycle.image_pull_ms, key, lambda now: self._start(key, lifecycle, now))

    def stop(self, key: str) -> None:
        """Stop a deleted pod; one that was never bound is gone at once."""
        pod = self._cluster.pods[key]
        if not pod.spec.node_name:
            self._cluster.remove_pod(key)
            return
        now_ms = self._engine.now_ms
        if pod.status.ready:
            status = replace(pod.status, ready=False, ready_transition_ms=now_ms)
            self._cluster.set_status(key, status)
        self._containers.report_stop(key, now_ms)
        stop_ms = self._lifecycle_of(pod).stop_ms
        self._engine.after(stop_ms, EventStage.KUBELET, lambda now: self._gone(key))

    def gpu_lost(self, pod: Pod) -> None:
        """Let the readiness probe of a pod fail that has lost its GPU."""
        if not pod.status.ready:
            return
        key, now_ms = pod.metadata.key, self._engine.now_ms
        status = replace(pod.status, ready=False, ready_transition_ms=now_ms)
        self._cluster.set_status(key, status)
        self._held_back.add(key)
        self._containers.report_unready(key, now_ms)

    def gpu_back(self, key: str) -> None:
        """Let a pod serve that only waited for its GPUs."""
        is_leaving = self._cluster.pods[key].metadata.deletion_ms is not None
        if key in self._held_back and self._cluster.devices.works(key) and not is_leaving:
            self._held_back.discard(key)
            self._ready(key, self._engine.now_ms)

    def _start(self, key: str, lifecycle: Lifecycle, now_ms: int) -> None:
        pod = self._cluster.pods[key]
        status = PodStatus(PodPhase.RUNNING, pod.status.start_ms, False, now_ms)
        self._cluster.set_status(key, status)
        self._containers.start(key, now_ms)
        self._later(lifecycle.startup_ms, key, lambda now: self._ready(key, now))
        if lifecycle.run_ms is None:
            return
        for each in self._job_sets.begun(pod, now_ms):
            end = partial(self._succeed, each, now_ms)
            self._later(lifecycle.run_ms, each, end)

    def _ready(self, key: str, now_ms: int) -> None:
        status = self._cluster.pods[key].status
        if not self._cluster.devices.works(key):
            self._held_back.add(key)
        elif status.phase is PodPhase.RUNNING:
            self._cluster.set_status(key, replace(status, ready=True, ready_transition_ms=now_ms))
            self._changed()

    def _succeed(self, key: str, since_ms: int, now_ms: int) -> None:
        pod = self._cluster.pods[key]
        if not self._job_sets.ends(pod, since_ms):
            return
        self._containers.end(key)
        status = replace(
            pod.status, phase=PodPhase.SUCCEEDED, ready=False, ready_transition_ms=now_ms
        )
        self._cluster.set_status(key, status)
        self._changed()

    def _gone(self, key: str) -> None:
        self._containers.end(key)
        self._held_back.discard(key)
        if key in self._cluster.pods:
            self._cluster.remove_pod(key)
            self._changed()

    def _later(self, delay_ms: int, key: str, step: Callable[[int], None]) -> None:
        """Schedule a step of a pod, to be skipped if it is gone, finished or being deleted by then."""

        def guarded(now_ms: int) -> None:
            pod = self._cluster.pods.get(key)
            if pod is None or pod.metadata.deletion_ms is not None or pod.status.phase in FINISHED:
                return
            step(now_ms)

        self._engine.after(delay_ms, EventStage.KUBELET, guarded)

"""Facts about pods that pods themselves don't hold: sequence numbers, times, manifests, Services."""

from collections import Counter
from collections.abc import Mapping

from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.objects.selectors import selector_of_labels
from gpuscale.base.objects.workloads import LWS_NAME, Service
from gpuscale.lab.kube_api.objects.endpoints import Endpoint
from gpuscale.lab.kube_api.objects.events import EventBook
from gpuscale.lab.kube_api.objects.pods import PodFacts
from gpuscale.lab.sim.pod_index import FINISHED
from gpuscale.lab.sim.scenario.setup import JobSetup
from gpuscale.lab.sim.world import World

_MAX_NUMBERS = 10_000


class PodBook:
    """Looks up facts about pods in the simulated cluster and its events.

    Args:
        world: of the run.
        events: that were reported in it.
        jobs: that it has, by key.
    """

    def __init__(self, world: World, events: EventBook, jobs: Mapping[str, JobSetup]) -> None:
        self._world = world
        self._events = events
        self._jobs = jobs
        self._numbers: dict[tuple[str, str], int] = {}
        self._counted: Counter[str] = Counter()

    def number(self, kind: str, name: str) -> int:
        """Return an object's sequence number within its kind, the same at each call."""
        key = (kind, name)
        if key not in self._numbers:
            self._counted[kind] += 1
            self._numbers[key] = self._counted[kind]
        return self._numbers[key]

    def forget(self) -> None:
        """Drop the numbers of deleted pods, once there are many."""
        pods = self._world.cluster.pods
        if len(self._numbers) > _MAX_NUMBERS + len(pods):
            self._numbers = {
                (kind, name): number
                for (kind, name), number in self._numbers.items()
                if kind != "Pod" or name in pods
            }

    def facts(self, pod: Pod) -> PodFacts:
        """Return the facts that a pod's JSON needs besides the pod."""
        meta = pod.metadata
        tried = None
        if not pod.spec.node_name:
            tried = self._events.latest("Pod", meta.namespace, meta.name, "FailedScheduling")
        return PodFacts(
            self._template_of(pod),
            self.number("Pod", meta.key),
            self.number("Node", pod.spec.node_name) if pod.spec.node_name else 0,
            pod.status.start_ms,
            self._started_ms(pod),
            "" if tried is None else tried.message,
            0 if tried is None else tried.first_ms,
        )

    def behind(self, service: Service) -> tuple[Endpoint, ...]:
        """Return the pods with an address that a Service selects."""
        selector = selector_of_labels(service.selector)
        pods = self._world.cluster.index.selected(service.metadata.namespace, selector)
        return tuple(
            Endpoint(
                pod.metadata.name,
                self.number("Pod", pod.metadata.key),
                pod.spec.node_name,
                pod.status.ready is True,
                pod.metadata.deletion_ms is not None,
                self._template_of(pod),
            )
            for pod in pods
            if pod.spec.node_name
            and pod.status.phase not in FINISHED
            and self._started_ms(pod) is not None
        )

    def _started_ms(self, pod: Pod) -> int | None:
        if pod.status.phase is PodPhase.PENDING:
            return None
        process = self._world.containers.processes.get(pod.metadata.key)
        if process is not None:
            return process.started_ms
        started = self._events.latest("Pod", pod.metadata.namespace, pod.metadata.name, "Started")
        return pod.status.start_ms if started is None else started.first_ms

    def _template_of(self, pod: Pod) -> str:
        """Return the manifest with a pod's template, as `Kind namespace/name`."""
        owner = pod.metadata.owner
        if owner is None:
            return ""
        key = f"{pod.metadata.namespace}/{owner.name}"
        if owner.kind == "StatefulSet":
            return f"LeaderWorkerSet {pod.metadata.namespace}/{pod.metadata.labels[LWS_NAME]}"
        if owner.kind == "ReplicaSet":
            return f"Deployment {key.rpartition('-')[0]}"
        if owner.kind == "Job" and key in self._jobs:
            return f"Job {self._jobs[key].manifest}"
        return f"{owner.kind} {key}"

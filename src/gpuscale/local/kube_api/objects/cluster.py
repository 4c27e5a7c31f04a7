"""All objects of the simulated cluster as facts, from which the store writes what has changed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gpuscale.local.kube_api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    EVENT,
    HPA,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    SERVICE,
    Kind,
)
from gpuscale.local.kube_api.objects.events import EventBook, event_body
from gpuscale.local.kube_api.objects.hpas import hpa_body, scaled_object_body
from gpuscale.local.kube_api.objects.nodes import namespace_body, node_body
from gpuscale.local.kube_api.objects.pods import PodFacts, pod_body
from gpuscale.local.kube_api.objects.run import Json, Run, manifests_by_key
from gpuscale.local.kube_api.objects.services import service_body
from gpuscale.local.kube_api.objects.workloads import (
    Counts,
    DeploymentFacts,
    JobFacts,
    daemon_set_body,
    deployment_body,
    is_available,
    job_body,
    replica_set_body,
)
from gpuscale.local.kube_api.store import Facts
from gpuscale.objects.meta import ObjectMeta
from gpuscale.objects.pods import Pod, PodPhase, PodTemplate
from gpuscale.objects.workloads import Deployment
from gpuscale.promapi.shapes import TimeAxis
from gpuscale.sim.autoscaler import HpaController
from gpuscale.sim.control.controllers import replica_set_name
from gpuscale.sim.events import Event
from gpuscale.sim.keda import ScaledStatus
from gpuscale.sim.pod_index import FINISHED
from gpuscale.sim.scenario.setup import JobSetup
from gpuscale.sim.world import World

_SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Those that every cluster has."""
_MAX_NUMBERS = 10_000
Owner = tuple[str, str, str]
"""Kind, namespace and name."""


class ClusterObjects:
    """The objects of a world.

    Args:
        world: of the run.
        controller: of its HPAs.
        axis: to the machine's time.
    """

    def __init__(self, world: World, controller: HpaController, axis: TimeAxis) -> None:
        setup = world.setup
        self.run = Run(
            world.start_ms,
            setup.seed,
            setup.pipeline.kubernetes_version,
            axis,
            manifests_by_key(setup.manifests),
        )
        self.events = EventBook(self._node_of)
        self.scaled_statuses: Mapping[str, ScaledStatus] = {}
        """Of the ScaledObjects, by key; KEDA's own, once it runs."""
        self._world = world
        self._controller = controller
        self._jobs: dict[str, JobSetup] = {each.job.metadata.key: each for each in setup.jobs}
        self._numbers: dict[tuple[str, str], int] = {}
        self._counted: Counter[str] = Counter()
        self._generations: dict[str, tuple[int, int]] = {}
        self._available: dict[str, tuple[bool, int]] = {}
        log = world.cluster.events
        for event in log.since(0):
            self.events.add(event)
        log.listen(self.events.add)
        log.count_repeats(self.events.add)

    def state(self) -> tuple[object, ...]:
        """Return what stays equal as long as no object can have changed."""
        cluster = self._world.cluster
        decisions = self._controller.decisions.values()
        statuses = self.scaled_statuses.values()
        return cluster.version, self.events.total, len(cluster.jobs), *decisions, *statuses

    def facts(self) -> Iterator[Facts]:
        """Yield every object as it is now."""
        self._forget()
        counts = self._counts()
        yield from self._namespaces()
        yield from self._nodes()
        yield from self._pods()
        yield from self._services()
        for deployment in self._world.cluster.deployments.values():
            yield from self._deployment(deployment, counts)
        yield from self._daemon_set(counts)
        yield from self._jobs_facts(counts)
        yield from self._hpas()
        for happening in self.events.all():
            namespace, name = happening.namespace_of_event, happening.event_name
            body = partial(event_body, self.run, happening)
            yield Facts(EVENT.resource, namespace, name, (happening,), body)

    # One kind after the other

    def _namespaces(self) -> Iterator[Facts]:
        cluster = self._world.cluster
        used = {
            item.metadata.namespace
            for table in (cluster.pods, cluster.deployments, cluster.services, cluster.hpas)
            for item in table.values()
        }
        for name in sorted({*_SYSTEM_NAMESPACES, *used}):
            yield Facts(NAMESPACE.resource, "", name, (), partial(namespace_body, self.run, name))

    def _nodes(self) -> Iterator[Facts]:
        for name, node in self._world.cluster.nodes.items():
            number = self._number("Node", name)
            yield _facts(NODE, node.metadata, (node, number), partial(node_body, self.run))

    def _pods(self) -> Iterator[Facts]:
        for pod in self._world.cluster.pods.values():
            known = (pod, self._pod_facts(pod))
            yield _facts(POD, pod.metadata, known, partial(pod_body, self.run))

    def _pod_facts(self, pod: Pod) -> PodFacts:
        meta = pod.metadata
        tried = None
        if not pod.spec.node_name:
            tried = self.events.latest("Pod", meta.namespace, meta.name, "FailedScheduling")
        return PodFacts(
            self._template_of(pod),
            self._number("Pod", meta.key),
            self._number("Node", pod.spec.node_name) if pod.spec.node_name else 0,
            pod.status.start_ms,
            self._started_ms(pod),
            "" if tried is None else tried.message,
            0 if tried is None else tried.first_ms,
        )

    def _started_ms(self, pod: Pod) -> int | None:
        if pod.status.phase is PodPhase.PENDING:
            return None
        process = self._world.containers.processes.get(pod.metadata.key)
        if process is not None:
            return process.started_ms
        started = self.events.latest("Pod", pod.metadata.namespace, pod.metadata.name, "Started")
        return pod.status.start_ms if started is None else started.first_ms

    def _template_of(self, pod: Pod) -> str:
        """Return the manifest that a pod's template is from, as `Kind namespace/name`."""
        owner = pod.metadata.owner
        if owner is None:
            return ""
        key = f"{pod.metadata.namespace}/{owner.name}"
        if owner.kind == "ReplicaSet":
            return f"Deployment {key.rpartition('-')[0]}"
        if owner.kind == "Job" and key in self._jobs:
            return f"Job {self._jobs[key].manifest}"
        return f"{owner.kind} {key}"

    def _services(self) -> Iterator[Facts]:
        for key, service in self._world.cluster.services.items():
            known = (service, self._number("Service", key))
            yield _facts(SERVICE, service.metadata, known, partial(service_body, self.run))

    def _deployment(self, deployment: Deployment, counts: dict[Owner, Counts]) -> Iterator[Facts]:
        meta = deployment.metadata
        name = replica_set_name(self._world.cluster, deployment)
        own = counts.get(("ReplicaSet", meta.namespace, name), Counts())
        available = is_available(deployment, own.ready)
        facts = DeploymentFacts(
            name,
            own,
            self._generation(deployment, name),
            self._since(meta.key, holds=available),
        )
        known = (deployment, facts)
        yield _facts(DEPLOYMENT, meta, known, partial(deployment_body, self.run))
        set_meta = ObjectMeta(name, meta.namespace)
        yield _facts(REPLICA_SET, set_meta, known, partial(replica_set_body, self.run))

    def _daemon_set(self, counts: dict[Owner, Counts]) -> Iterator[Facts]:
        pods = self._world.cluster.pods.values()
        template = next((pod for pod in pods if _owner(pod)[0] == "DaemonSet"), None)
        if template is None:
            return
        _, namespace, name = owner = _owner(template)
        labels = template.metadata.labels
        meta = ObjectMeta(name, namespace, labels, creation_ms=self.run.start_ms)
        of_pods = PodTemplate(labels, template.spec)
        known = (meta, of_pods, len(self._world.cluster.nodes), counts.get(owner, Counts()))
        shown = (meta, known[2], known[3])
        body = partial(daemon_set_body, self.run, *known)
        yield Facts(DAEMON_SET.resource, namespace, name, shown, body)

    def _jobs_facts(self, counts: dict[Owner, Counts]) -> Iterator[Facts]:
        cluster = self._world.cluster
        for key, job in cluster.jobs.items():
            meta = job.metadata
            own = counts.get(("Job", meta.namespace, meta.name), Counts())
            completed = self.events.latest("Job", meta.namespace, meta.name, "Completed")
            setup = self._jobs[key]
            facts = JobFacts(
                setup.manifest,
                Counts(own.all, own.ready, cluster.succeeded_pods[key]),
                self._world.start_ms + setup.at_ms,
                None if completed is None else completed.first_ms,
            )
            yield _facts(JOB, meta, (job, facts), partial(job_body, self.run))

    def _hpas(self) -> Iterator[Facts]:
        for key, hpa in self._world.cluster.hpas.items():
            known = (hpa, self._controller.decisions.get(key))
            yield _facts(HPA, hpa.metadata, known, partial(hpa_body, self.run))
        for scaled in self._world.setup.scaled_objects:
            shown = (scaled, self.scaled_statuses.get(scaled.key))
            body = partial(scaled_object_body, self.run)
            yield _facts(SCALED_OBJECT, scaled.metadata, shown, body)

    # What has to be counted or remembered

    def _counts(self) -> dict[Owner, Counts]:
        """Return the pods of each owner that count as its replicas."""
        alive: Counter[Owner] = Counter()
        ready: Counter[Owner] = Counter()
        for pod in self._world.cluster.pods.values():
            if pod.metadata.deletion_ms is None and pod.status.phase not in FINISHED:
                owner = _owner(pod)
                alive[owner] += 1
                ready[owner] += pod.status.ready is True
        return {owner: Counts(count, ready[owner]) for owner, count in alive.items()}

    def _node_of(self, key: str) -> str:
        pod = self._world.cluster.pods.get(key)
        return "" if pod is None else pod.spec.node_name

    def _number(self, kind: str, name: str) -> int:
        """Return a number of its own for an object, the same each time."""
        key = (kind, name)
        if key not in self._numbers:
            self._counted[kind] += 1
            self._numbers[key] = self._counted[kind]
        return self._numbers[key]

    def _forget(self) -> None:
        """Drop the numbers of pods that are gone, once there are many."""
        pods = self._world.cluster.pods
        if len(self._numbers) > _MAX_NUMBERS + len(pods):
            self._numbers = {
                (kind, name): number
                for (kind, name), number in self._numbers.items()
                if kind != "Pod" or name in pods
            }

    def _generation(self, deployment: Deployment, replica_set: str) -> int:
        """Return how often a Deployment's spec was written; what a write did to its pods is an event."""
        meta, replicas = deployment.metadata, deployment.replicas
        before, generation = self._generations.get(meta.key, (0, 0))
        if before != replicas:
            way = "up" if replicas > before else "down"
            message = f"Scaled {way} replica set {replica_set} from {before} to {replicas}"
            now_ms = self._world.engine.now_ms if generation else self.run.start_ms
            about = f"Deployment/{meta.name}"
            self.events.add(
                Event(now_ms, "ScalingReplicaSet", about, message, namespace=meta.namespace)
            )
        if before != replicas or not generation:
            generation += 1
        self._generations[meta.key] = (replicas, generation)
        return generation

    def _since(self, key: str, *, holds: bool) -> int:
        """Return since when a Deployment is available, or is not."""
        before, since_ms = self._available.get(key, (holds, self.run.start_ms))
        if before != holds:
            since_ms = self._world.engine.now_ms
        self._available[key] = (holds, since_ms)
        return since_ms


def _facts(
    kind: Kind, meta: ObjectMeta, known: tuple[Any, ...], body: Callable[..., Json]
) -> Facts:
    return Facts(kind.resource, meta.namespace, meta.name, known, partial(body, *known))


def _owner(pod: Pod) -> Owner:
    owner = pod.metadata.owner
    if owner is None:
        return "", pod.metadata.namespace, pod.metadata.name
    return owner.kind, pod.metadata.namespace, owner.name

"""The simulated cluster's objects, in the form from which the store finds changes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodTemplate
from gpuscale.base.objects.workloads import (
    LWS_GROUP,
    LWS_NAME,
    LWS_WORKER,
    Deployment,
    LeaderWorkerSet,
)
from gpuscale.lab.kube_api.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    EVENT,
    HPA,
    JOB,
    LEADER_WORKER_SET,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    SERVICE,
    STATEFUL_SET,
    ApiResource,
)
from gpuscale.lab.kube_api.objects.endpoints import slice_body, slice_name
from gpuscale.lab.kube_api.objects.events import EventBook, event_body
from gpuscale.lab.kube_api.objects.hpas import hpa_body, scaled_object_body
from gpuscale.lab.kube_api.objects.nodes import (
    LEASE_MS,
    LEASES,
    STATUS_MS,
    lease_body,
    namespace_body,
    node_body,
)
from gpuscale.lab.kube_api.objects.pod_book import PodBook
from gpuscale.lab.kube_api.objects.pods import pod_body
from gpuscale.lab.kube_api.objects.run import Json, Run, manifests_by_key
from gpuscale.lab.kube_api.objects.services import service_body
from gpuscale.lab.kube_api.objects.workloads import (
    DeploymentFacts,
    JobFacts,
    PodCounts,
    daemon_set_body,
    deployment_body,
    is_available,
    job_body,
    leader_worker_set_body,
    replica_set_body,
    stateful_set_body,
)
from gpuscale.lab.kube_api.store import ObjectFacts
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.control.controllers import replica_set_name
from gpuscale.lab.sim.events import SimulationEvent
from gpuscale.lab.sim.keda import ScaledStatus
from gpuscale.lab.sim.pod_index import FINISHED, is_daemon
from gpuscale.lab.sim.scenario.setup import JobSetup
from gpuscale.lab.sim.world import World
from gpuscale.series.promapi import TimeAxis

_SYSTEM_NAMESPACES = ("default", LEASES, "kube-public", "kube-system")
"""Those that every cluster has."""
Owner = tuple[str, str, str]
"""Kind, namespace and name."""


class WorldObjects:
    """The objects of a simulated cluster.

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
        self._book = PodBook(world, self.events, self._jobs)
        self._generations: dict[str, tuple[int, int]] = {}
        self._available: dict[str, tuple[bool, int]] = {}
        log = world.cluster.events
        for event in log.since(0):
            self.events.add(event)
        log.listen(self.events.add)
        log.count_repeats(self.events.add)

    def state(self) -> tuple[object, ...]:
        """Return a value that stays equal while no object can have changed."""
        cluster = self._world.cluster
        decisions = self._controller.decisions.values()
        statuses = self.scaled_statuses.values()
        beat_ms = self.run.beat_ms(0, self._world.engine.now_ms, LEASE_MS)
        return cluster.version, beat_ms, self.events.total, len(cluster.jobs), *decisions, *statuses

    def facts(self) -> Iterator[ObjectFacts]:
        """Yield all current objects."""
        run, book, cluster = self.run, self._book, self._world.cluster
        book.forget()
        counts = self._counts()
        used = {
            item.metadata.namespace
            for table in (cluster.pods, cluster.deployments, cluster.services, cluster.hpas)
            for item in table.values()
        }
        for name in sorted({*_SYSTEM_NAMESPACES, *used}):
            yield ObjectFacts(NAMESPACE.resource, "", name, (), partial(namespace_body, run, name))
        for name, node in cluster.nodes.items():
            beats = (node, book.number("Node", name), self._beat_ms(node, STATUS_MS))
            yield _facts(NODE, node.metadata, beats, partial(node_body, run))
            kept = (node, self._beat_ms(node, LEASE_MS))
            yield _facts(LEASE, ObjectMeta(name, LEASES), kept, partial(lease_body, run))
        for pod in cluster.pods.values():
            yield _facts(POD, pod.metadata, (pod, book.facts(pod)), partial(pod_body, run))
        for key, service in cluster.services.items():
            numbered = (service, book.number("Service", key))
            yield _facts(SERVICE, service.metadata, numbered, partial(service_body, run))
            if service.selector:
                meta = ObjectMeta(slice_name(run, service), service.metadata.namespace)
                behind = (service, book.behind(service))
                yield _facts(ENDPOINT_SLICE, meta, behind, partial(slice_body, run))
        for deployment in cluster.deployments.values():
            if isinstance(deployment, LeaderWorkerSet):
                yield from self._leader_worker_set(deployment, counts)
            else:
                yield from self._deployment(deployment, counts)
        yield from self._daemon_sets(counts)
        yield from self._jobs_facts(counts)
        for key, hpa in cluster.hpas.items():
            decided = (hpa, self._controller.decisions.get(key))
            yield _facts(HPA, hpa.metadata, decided, partial(hpa_body, run))
        for scaled in self._world.setup.scaled_objects:
            shown = (scaled, self.scaled_statuses.get(scaled.key))
            yield _facts(SCALED_OBJECT, scaled.metadata, shown, partial(scaled_object_body, run))
        for happening in self.events.all():
            namespace, name = happening.namespace_of_event, happening.event_name
            body = partial(event_body, run, happening)
            yield ObjectFacts(EVENT.resource, namespace, name, (happening,), body)

    # What takes more than its facts

    def _beat_ms(self, node: Node, every_ms: int) -> int:
        """Return the time of a node's last heartbeat; a node that is not ready sends none."""
        since_ms = node.metadata.creation_ms
        now_ms = self._world.engine.now_ms if node.ready else since_ms
        return self.run.beat_ms(since_ms, now_ms, every_ms)

    def _deployment(
        self, deployment: Deployment, counts: dict[Owner, PodCounts]
    ) -> Iterator[ObjectFacts]:
        meta = deployment.metadata
        name = replica_set_name(self._world.cluster, deployment)
        own = counts.get(("ReplicaSet", meta.namespace, name), PodCounts())
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

    def _leader_worker_set(
        self, item: LeaderWorkerSet, counts: dict[Owner, PodCounts]
    ) -> Iterator[ObjectFacts]:
        meta, run = item.metadata, self.run
        leaders = counts.get(("StatefulSet", meta.namespace, meta.name), PodCounts())
        known = (item, leaders.all, self._world.ready_pods(meta.key))
        yield _facts(LEADER_WORKER_SET, meta, known, partial(leader_worker_set_body, run))
        of_leaders = {LWS_NAME: meta.name, LWS_WORKER: "0"}
        of_groups = {
            f"{meta.name}-{index}": {LWS_NAME: meta.name, LWS_GROUP: str(index)}
            for index in self._world.cluster.worker_sets.get(meta.key, ())
        }
        for name, selected in {meta.name: of_leaders, **of_groups}.items():
            own = counts.get(("StatefulSet", meta.namespace, name), PodCounts())
            known_set = (item, name, own, selected)
            body = partial(stateful_set_body, run)
            yield _facts(STATEFUL_SET, ObjectMeta(name, meta.namespace), known_set, body)

    def _daemon_sets(self, counts: dict[Owner, PodCounts]) -> Iterator[ObjectFacts]:
        first: dict[Owner, Pod] = {}
        for pod in self._world.cluster.pods.values():
            if is_daemon(pod):
                first.setdefault(_owner(pod), pod)
        for owner, pod in first.items():
            (_, namespace, name), labels = owner, pod.metadata.labels
            meta = ObjectMeta(name, namespace, labels, creation_ms=self.run.start_ms)
            own = counts.get(owner, PodCounts())
            known = (meta, PodTemplate(labels, pod.spec), own.all, own)
            body = partial(daemon_set_body, self.run, *known)
            yield ObjectFacts(DAEMON_SET.resource, namespace, name, (meta, own), body)

    def _jobs_facts(self, counts: dict[Owner, PodCounts]) -> Iterator[ObjectFacts]:
        cluster = self._world.cluster
        for key, job in cluster.jobs.items():
            meta = job.metadata
            own = counts.get(("Job", meta.namespace, meta.name), PodCounts())
            completed = self.events.latest("Job", meta.namespace, meta.name, "Completed")
            setup = self._jobs[key]
            facts = JobFacts(
                setup.manifest,
                PodCounts(own.all, own.ready, cluster.succeeded_pods[key]),
                self._world.start_ms + setup.at_ms,
                None if completed is None else completed.first_ms,
                key in cluster.suspended,
            )
            yield _facts(JOB, meta, (job, facts), partial(job_body, self.run))

    # What has to be counted or remembered

    def _counts(self) -> dict[Owner, PodCounts]:
        """Return, for each owner, its live pods and how many of them are ready."""
        alive: Counter[Owner] = Counter()
        ready: Counter[Owner] = Counter()
        for pod in self._world.cluster.pods.values():
            if pod.metadata.deletion_ms is None and pod.status.phase not in FINISHED:
                owner = _owner(pod)
                alive[owner] += 1
                ready[owner] += pod.status.ready is True
        return {owner: PodCounts(count, ready[owner]) for owner, count in alive.items()}

    def _node_of(self, key: str) -> str:
        pod = self._world.cluster.pods.get(key)
        return "" if pod is None else pod.spec.node_name

    def _generation(self, deployment: Deployment, replica_set: str) -> int:
        """Return a Deployment's generation: how often its spec was written."""
        meta, replicas = deployment.metadata, deployment.replicas
        before, generation = self._generations.get(meta.key, (0, 0))
        if before != replicas:
            way = "up" if replicas > before else "down"
            message = f"Scaled {way} replica set {replica_set} from {before} to {replicas}"
            now_ms = self._world.engine.now_ms if generation else self.run.start_ms
            about = f"Deployment/{meta.name}"
            self.events.add(
                SimulationEvent(
                    now_ms, "ScalingReplicaSet", about, message, namespace=meta.namespace
                )
            )
        if before != replicas or not generation:
            generation += 1
        self._generations[meta.key] = (replicas, generation)
        return generation

    def _since(self, key: str, *, holds: bool) -> int:
        """Return since when a Deployment has been available, or unavailable."""
        before, since_ms = self._available.get(key, (holds, self.run.start_ms))
        if before != holds:
            since_ms = self._world.engine.now_ms
        self._available[key] = (holds, since_ms)
        return since_ms


def _facts(
    kind: ApiResource, meta: ObjectMeta, known: tuple[Any, ...], body: Callable[..., Json]
) -> ObjectFacts:
    return ObjectFacts(kind.resource, meta.namespace, meta.name, known, partial(body, *known))


def _owner(pod: Pod) -> Owner:
    owner = pod.metadata.owner
    if owner is None:
        return "", pod.metadata.namespace, pod.metadata.name
    return owner.kind, pod.metadata.namespace, owner.name

"""The simulated cluster's objects, updated from an API server, so that its pods hold simulated GPUs.

Whole lists are looked at, not single events, so that a watch that broke off leaves no trace. Times are
those at which a change was seen: the API server's own have whole seconds only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import MetricSpec
from gpuscale.base.objects.meta import OwnerReference
from gpuscale.base.objects.pods import Pod, PodPhase, PodStatus, read_pod
from gpuscale.base.objects.workloads import Deployment
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import MetricStatus
from gpuscale.hpa.kernel import ceil_int32
from gpuscale.kube import mapping_of, read_controller, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.lab.rehearse.site import RehearsalSite
from gpuscale.lab.sim.autoscaler import SyncFigures, shown_figures
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.controllers import replica_set_name
from gpuscale.lab.sim.pod_index import FINISHED

_PHASES = {phase.value: phase for phase in PodPhase}


@dataclass(frozen=True, slots=True)
class _Seen:
    """The last seen version of a pod."""

    uid: str
    version: str


class Mirror:
    """Updates a site's objects from the API server.

    Args:
        site: whose objects they are.
    """

    def __init__(self, site: RehearsalSite) -> None:
        self._site = site
        self._seen: dict[str, _Seen] = {}
        self._unplaced: set[str] = set()
        """Keys of the pods that have a node there, and no room on it here."""

    def see_pods(self, pods: Mapping[str, JsonObject], now_ms: int) -> None:
        """Update all pods of the rehearsal, given by `namespace/name`."""
        for key in tuple(self._seen):
            if key in pods and _uid(pods[key]) == self._seen[key].uid:
                continue
            del self._seen[key]
            self._unplaced.discard(key)
            self._site.stuck.discard(key)
            self._site.containers.end(key)
            if key in self._site.cluster.pods:
                self._site.cluster.remove_pod(key)
        for key, body in pods.items():
            seen = _Seen(_uid(body), text_of(_metadata(body).get("resourceVersion")))
            if seen != self._seen.get(key) or key in self._unplaced:
                self._take(key, body, now_ms, is_new=key not in self._seen)
                self._seen[key] = seen

    def see_deployments(self, bodies: Mapping[str, JsonObject]) -> None:
        for key, item in tuple(self._site.cluster.deployments.items()):
            replicas = mapping_of(bodies.get(key, {}).get("spec")).get("replicas")
            if isinstance(replicas, int) and replicas != item.replicas:
                self._site.set_replicas(key, replicas)

    def see_hpas(self, bodies: Mapping[str, JsonObject]) -> None:
        hpas = self._site.cluster.hpas
        for key in bodies.keys() & hpas.keys():
            figures = hpa_figures(bodies[key], hpas[key].metrics)
            if figures is not None:
                self._site.figures[key] = figures

    def see_jobs(self, bodies: Mapping[str, JsonObject]) -> None:
        done = {key for key, body in bodies.items() if _condition(body, "Complete") == "True"}
        self._site.cluster.completed_jobs |= done

    def _take(self, key: str, body: JsonObject, now_ms: int, *, is_new: bool) -> None:
        site, cluster, containers = self._site, self._site.cluster, self._site.containers
        if is_new:
            pod = read_pod(Fields(Document("the API server", 0, body, {}), body))
            owner = owner_of(body, cluster)
            meta = replace(pod.metadata, owner=owner, creation_ms=now_ms, deletion_ms=None)
            cluster.add_pod(Pod(meta, replace(pod.spec, node_name="")))
        elif key not in cluster.pods:
            return  # deleted with its node
        node = text_of(mapping_of(body.get("spec")).get("nodeName"))
        if node or _condition(body, "PodScheduled") != "False":
            site.stuck.discard(key)
        else:
            site.stuck.add(key)

        pod = cluster.pods[key]
        self._unplaced.discard(key)
        if node and not pod.spec.node_name:
            if cluster.devices.has_room(node, pod.spec):
                cluster.bind(key, node)
                cluster.set_status(key, replace(pod.status, start_ms=now_ms, ready=False))
            else:
                # Its node is gone here and not yet there, or its predecessor is about to be seen
                # as deleted.
                self._unplaced.add(key)

        pod = cluster.pods[key]
        if "deletionTimestamp" in _metadata(body) and pod.metadata.deletion_ms is None:
            cluster.mark_deleted(key, now_ms)
            if pod.status.phase is PodPhase.RUNNING:
                containers.report_stop(key, now_ms)

        pod = cluster.pods[key]
        status = _status(body, pod, now_ms)
        if key in self._unplaced and status.phase is PodPhase.RUNNING:
            return  # what runs here runs on a node of ours: its GPUs are what it works and is counted on
        if status == pod.status:
            return
        cluster.set_status(key, status)
        if status.phase is PodPhase.RUNNING and key not in containers.processes:
            containers.start(key, now_ms)
        elif status.phase in FINISHED:
            containers.end(key)


def owner_of(body: JsonObject, cluster: Cluster) -> OwnerReference | None:
    """Return a pod's owner, under the ReplicaSet name that the simulation uses."""
    controller = read_controller(body)
    if controller is None or controller.kind != "ReplicaSet":
        return None if controller is None else controller.owner
    namespace = text_of(_metadata(body).get("namespace"))
    name = controller.name.rpartition("-")[0]
    deployment: Deployment | None = cluster.deployments.get(f"{namespace}/{name}")
    if deployment is None:
        return controller.owner
    return OwnerReference("ReplicaSet", replica_set_name(cluster, deployment))


def hpa_figures(body: JsonObject, specs: Sequence[MetricSpec]) -> SyncFigures | None:
    """Return the figures in an HPA's status; None before its first sync.

    The controller lists what its metrics said in the order of the spec, and not what each asked for; that
    follows from value and target.
    """
    status = mapping_of(body.get("status"))
    desired, replicas = status.get("desiredReplicas"), status.get("currentReplicas")
    if not isinstance(desired, int) or not status.get("conditions"):
        return None
    listed = status.get("currentMetrics")
    count = replicas if isinstance(replicas, int) else 0
    statuses: list[MetricStatus] = []
    for spec, each in zip(specs, listed if isinstance(listed, list) else (), strict=False):
        said = mapping_of(each)
        kind = text_of(said.get("type"))
        current = mapping_of(mapping_of(said.get(kind[:1].lower() + kind[1:])).get("current"))
        average, value = (_milli(current.get(key)) for key in ("averageValue", "value"))
        milli, target = value, spec.target.value
        if average is not None:
            milli, target = average, spec.target.average_value
        asked = None
        if milli is not None and target is not None:
            asked = ceil_int32(milli / 1000 / float(target) * count)
        statuses.append(MetricStatus(len(statuses), spec.name, "", asked, value, average))
    return shown_figures(desired, statuses)


def _milli(value: object) -> int | None:
    text = text_of(value)
    return parse_quantity(text).milli_value() if text else None


def _status(body: JsonObject, pod: Pod, now_ms: int) -> PodStatus:
    before = pod.status
    phase = _PHASES.get(text_of(mapping_of(body.get("status")).get("phase")), before.phase)
    said = {"True": True, "False": False}.get(_condition(body, "Ready"))
    # A terminating pod gets no requests, whatever its Ready condition says.
    ready = False if pod.metadata.deletion_ms is not None else said
    if ready is None and before.ready is not None:
        ready = before.ready
    changed_ms = before.ready_transition_ms if ready == before.ready else now_ms
    return PodStatus(phase, before.start_ms, ready, changed_ms)


def _condition(body: JsonObject, kind: str) -> str:
    conditions = mapping_of(body.get("status")).get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if mapping_of(each).get("type") == kind:
            return text_of(mapping_of(each).get("status"))
    return ""


def _metadata(body: JsonObject) -> Mapping[str, object]:
    return mapping_of(body.get("metadata"))


def _uid(body: JsonObject) -> str:
    return text_of(_metadata(body).get("uid"))

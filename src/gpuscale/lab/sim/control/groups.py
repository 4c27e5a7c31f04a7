"""The groups of LeaderWorkerSets: a StatefulSet makes the leaders, one for each leader its workers.

Source: lws v0.9.0 pkg/controllers/pod_controller.go (workers, restarts), leaderworkerset_controller.go
(when a group is ready), pkg/webhooks/pod_webhook.go (labels, exclusive placement); kubernetes v1.37
pkg/controller/statefulset (names, Parallel), pkg/controller/garbagecollector (a leader's workers go after
it, or with it where the group restarts). Known difference: a leader comes back once all pods of its group
are gone; after a scale-in that is taken back, the real one comes when its predecessor is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1

from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Pod, PodAffinityTerm, PodPhase, PodSpec, PodTemplate
from gpuscale.base.objects.selectors import (
    Selector,
    selector_of_expressions,
    selector_of_labels,
)
from gpuscale.base.objects.workloads import (
    LWS_GROUP,
    LWS_KEY,
    LWS_NAME,
    LWS_PREFIX,
    LWS_WORKER,
    LeaderWorkerSet,
)
from gpuscale.hpa.cluster.scheduling import device_requests
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.pod_index import OwnerKey


def leaders_owner(item: LeaderWorkerSet) -> OwnerKey:
    """Return the owner of a set's leaders."""
    return "StatefulSet", item.metadata.namespace, item.metadata.name


def workers_selector(pod: Pod) -> Selector:
    """Return what the StatefulSet of a worker selects by."""
    return selector_of_labels(
        {name: pod.metadata.labels[name] for name in (LWS_NAME, LWS_GROUP, LWS_KEY)}
    )


class GroupMaker:
    """Makes and ends the pods of one LeaderWorkerSet until it has the groups that it wants.

    Args:
        cluster: where they are.
        item: the set as it is now.
        now_ms: the time.

    Attributes:
        created: keys of the pods that were made.
        deleted: keys of those that are to stop.
    """

    def __init__(self, cluster: Cluster, item: LeaderWorkerSet, now_ms: int) -> None:
        self.created: list[str] = []
        self.deleted: list[str] = []
        self._cluster = cluster
        self._item = item
        self._now_ms = now_ms

    def reconcile(self) -> None:
        cluster, item = self._cluster, self._item
        meta = item.metadata
        served = cluster.worker_sets.setdefault(meta.key, {})
        leaders = {
            int(pod.metadata.labels[LWS_GROUP]): pod
            for pod in cluster.index.owned_by(leaders_owner(item))
        }
        for index in sorted({*range(item.replicas), *leaders, *served}):
            name, leader = f"{meta.name}-{index}", leaders.get(index)
            keys = [f"{meta.namespace}/{name}-{number}" for number in range(1, item.size)]
            there = [cluster.pods[key] for key in keys if key in cluster.pods]
            live = [pod for pod in there if pod.metadata.deletion_ms is None]
            if leader is None:
                self._end(live)
                if there:
                    continue
                served.pop(index, None)
                if index >= item.replicas:
                    continue
                leader = self._make_leader(index, name)
            elif leader.metadata.deletion_ms is not None:
                continue
            elif index >= item.replicas:
                self._tell("SuccessfulDelete", "delete", name, meta.name)
                self._end([leader])
                continue
            if served.get(index) != leader.metadata.creation_ms:
                spec = self._workers_spec(leader)
                if spec is None:
                    continue
                served[index] = leader.metadata.creation_ms
            elif len(live) < len(keys) and self._restarts([leader, *there]):
                gone = next(key for key in keys if key not in {p.metadata.key for p in live})
                cluster.event(
                    self._now_ms,
                    "RecreateGroup",
                    f"LeaderWorkerSet/{meta.name}",
                    f"Worker pod {gone.partition('/')[2]} failed, deleted leader pod {name} to recreate "
                    f"group {index}",
                    namespace=meta.namespace,
                )
                self._end([leader, *live])
                continue
            else:
                spec = self._workers_spec(leader) or item.worker_template.spec
            self._make_workers(index, name, keys, spec)

    def _restarts(self, group: Sequence[Pod]) -> bool:
        """Return whether the loss of a worker restarts the whole group."""
        policy = self._item.restart_policy
        is_starting = any(pod.status.phase is PodPhase.PENDING for pod in group)
        return policy == "RecreateGroupOnPodRestart" or (
            policy == "RecreateGroupAfterStart" and not is_starting
        )

    def _workers_spec(self, leader: Pod) -> PodSpec | None:
        """Return what the workers of a leader are made from; None while they have to wait."""
        item, key = self._item, leader.metadata.labels[LWS_KEY]
        if item.startup_policy == "LeaderReady" and not leader.status.ready:
            return None
        spec, topology = item.worker_template.spec, item.exclusive_topology
        if not topology:
            return spec
        node = self._cluster.nodes.get(leader.spec.node_name)
        if node is None or topology not in node.metadata.labels:
            return None
        chosen = {**spec.node_selector, topology: node.metadata.labels[topology]}
        return replace(_alone(spec, topology, key), node_selector=chosen)

    def _make_leader(self, index: int, name: str) -> Pod:
        item, namespace = self._item, self._item.metadata.namespace
        key = sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest()
        spec, topology = item.template.spec, item.exclusive_topology
        template = replace(item.template, spec=_alone(spec, topology, key) if topology else spec)
        labels = {LWS_GROUP: str(index), LWS_KEY: key}
        return self._make(name, item.metadata.name, template, labels, {})

    def _make_workers(self, index: int, name: str, keys: Sequence[str], spec: PodSpec) -> None:
        item, cluster = self._item, self._cluster
        namespace = item.metadata.namespace
        owner = "StatefulSet", namespace, name
        if keys and owner not in cluster.controlled:
            cluster.control_group(leaders_owner(item), owner)
        template = replace(item.worker_template, spec=spec)
        of_group = cluster.pods[f"{namespace}/{name}"].metadata.labels[LWS_KEY]
        for number, key in enumerate(keys, 1):
            if key not in cluster.pods:
                labels = {LWS_GROUP: str(index), LWS_KEY: of_group, LWS_WORKER: str(number)}
                more = {f"{LWS_PREFIX}/leader-name": name}
                self._make(f"{name}-{number}", name, template, labels, more)

    def _make(
        self,
        name: str,
        owner: str,
        template: PodTemplate,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
    ) -> Pod:
        size = {f"{LWS_PREFIX}/size": str(self._item.size)}
        meta = ObjectMeta(
            name,
            self._item.metadata.namespace,
            {**template.labels, **labels},
            {**template.annotations, **size, **annotations},
            self._now_ms,
            None,
            OwnerReference("StatefulSet", owner),
        )
        pod = Pod(meta, template.spec)
        self._cluster.add_pod(pod)
        self.created.append(meta.key)
        self._tell("SuccessfulCreate", "create", name, owner)
        return pod

    def _tell(self, kind: str, verb: str, pod: str, owner: str) -> None:
        message = f"{verb} Pod {pod} in StatefulSet {owner} successful"
        namespace = self._item.metadata.namespace
        about = f"StatefulSet/{owner}"
        self._cluster.event(self._now_ms, kind, about, message, namespace=namespace)

    def _end(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self._cluster.mark_deleted(pod.metadata.key, self._now_ms)
            self.deleted.append(pod.metadata.key)


def _alone(spec: PodSpec, topology: str, key: str) -> PodSpec:
    """Return a spec of pods that are in one domain with their group, and with no other group."""
    same = selector_of_expressions({}, ((LWS_KEY, "In", (key,)),))
    other = selector_of_expressions({}, ((LWS_KEY, "Exists", ()), (LWS_KEY, "NotIn", (key,))))
    terms = (
        PodAffinityTerm(topology, same, is_anti=False),
        PodAffinityTerm(topology, other, is_anti=True),
    )
    return replace(spec, affinity=(*spec.affinity, *terms))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the groups of a set were at one version of its pods."""

    version: int = -1
    since_ms: Mapping[str, int] = field(default_factory=dict)
    """Index of each group of which all pods are ready, to since when."""
    held_gpus: int = 0
    """On nodes, in groups of which a part has no node."""
    pods: int = 0
    leaders: tuple[Pod, ...] = ()
    """Of the groups that are ready."""
    ready: tuple[Pod, ...] = ()
    """The pods of those groups."""


class Groups:
    """The groups of one LeaderWorkerSet, as far as they have come.

    Args:
        cluster: where they are.
        item: the set.
    """

    def __init__(self, cluster: Cluster, item: LeaderWorkerSet) -> None:
        self._cluster = cluster
        self._item = item
        self._owner = leaders_owner(item)
        self._seen = _Seen()

    def ready_since_ms(self, pod: Pod) -> int | None:
        """Return since when all pods of a pod's group are ready; None while one is not."""
        return self.now().since_ms.get(pod.metadata.labels[LWS_GROUP])

    def now(self) -> _Seen:
        """Return what the groups are now."""
        index = self._cluster.index
        version = index.owner_versions[self._owner]
        if self._seen.version == version:
            return self._seen
        groups: dict[str, list[Pod]] = {}
        owners = (self._owner, *index.together.get(self._owner, ()))
        for pod in (pod for owner in owners for pod in index.owned_by(owner)):
            if pod.metadata.deletion_ms is None:
                groups.setdefault(pod.metadata.labels[LWS_GROUP], []).append(pod)
        since: dict[str, int] = {}
        held, ready = 0, list[Pod]()
        for name, pods in groups.items():
            if len(pods) == self._item.size and all(pod.status.ready for pod in pods):
                since[name] = max(pod.status.ready_transition_ms or 0 for pod in pods)
                ready += pods
            elif pods[0].metadata.labels[LWS_WORKER] == "0" and (
                len(pods) < self._item.size or not all(pod.spec.node_name for pod in pods)
            ):
                bound = (pod.spec for pod in pods if pod.spec.node_name)
                held += sum(sum(device_requests(spec).values()) for spec in bound)
        leaders = tuple(pod for pod in ready if pod.metadata.labels[LWS_WORKER] == "0")
        count = sum(map(len, groups.values()))
        self._seen = _Seen(version, since, held, count, leaders, tuple(ready))
        return self._seen

"""The controllers that turn Deployments, LeaderWorkerSets and Jobs into pods.

Source: kubernetes pkg/controller/replicaset, pkg/controller/job.
"""

from dataclasses import dataclass
from functools import lru_cache

from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Pod, PodTemplate
from gpuscale.base.objects.workloads import Deployment, Job, LeaderWorkerSet
from gpuscale.base.streams import name_suffix
from gpuscale.hpa.cluster.victims import victims_first
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.groups import GroupMaker, leaders_owner
from gpuscale.lab.sim.pod_index import FINISHED, OwnerKey


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The results of one reconciliation."""

    created: tuple[str, ...]
    deleted: tuple[str, ...]
    """Pods to stop; the kubelet takes them away."""
    jobs: tuple[str, ...]
    """Keys of the Jobs that were looked at."""


def reconcile(cluster: Cluster, now_ms: int) -> Reconciled:
    """Create and delete pods until each workload has the number it wants.

    Only those are looked at whose own count or whose pods have changed since the last pass.
    """
    created: list[str] = []
    deleted: list[str] = []
    jobs: list[str] = []
    changed = cluster.index.changed_owners
    done: set[str] = set()
    for _, owner in sorted(
        (cluster.controlled[o][0], o) for o in changed if o in cluster.controlled
    ):
        key = cluster.controlled[owner][1]
        if owner[0] == "Job":
            jobs.append(key)
            created += _reconcile_job(cluster, cluster.jobs[key], now_ms)
            continue
        deployment, live = cluster.deployments[key], cluster.index.live[owner]
        if isinstance(deployment, LeaderWorkerSet):
            if key not in done:
                done.add(key)
                groups = GroupMaker(cluster, deployment, now_ms)
                groups.reconcile()
                created += groups.created
                deleted += groups.deleted
            continue
        meta, template = deployment.metadata, deployment.template
        maker = OwnerReference("ReplicaSet", replica_set_name(cluster, deployment))
        for _ in range(deployment.replicas - live):
            created.append(_create(cluster, meta, template, maker, now_ms))
        if live > deployment.replicas:
            deleted += _scale_in(cluster, deployment, live_pods(cluster, deployment), now_ms)
    changed.clear()
    return Reconciled(tuple(created), tuple(deleted), tuple(jobs))


def replica_set_name(cluster: Cluster, deployment: Deployment) -> str:
    """Return the ReplicaSet name of a Deployment's only revision."""
    name = deployment.metadata.name
    return f"{name}-{_template_suffix(cluster.seed, name)}"


@lru_cache(maxsize=16_384)
def _template_suffix(seed: int, name: str) -> str:
    return name_suffix(seed, "template", name, length=10)


def owner_of_replicas(cluster: Cluster, deployment: Deployment) -> OwnerKey:
    """Return the owner of the pods that stand for a workload's replicas: of a group, its leader."""
    if isinstance(deployment, LeaderWorkerSet):
        return leaders_owner(deployment)
    return "ReplicaSet", deployment.metadata.namespace, replica_set_name(cluster, deployment)


def live_pods(cluster: Cluster, deployment: Deployment) -> list[Pod]:
    """Return a Deployment's pods that are neither finished nor being deleted."""
    pods = cluster.index.owned_by(owner_of_replicas(cluster, deployment))
    return [p for p in pods if p.metadata.deletion_ms is None and p.status.phase not in FINISHED]


def status_replicas(cluster: Cluster, deployment: Deployment) -> int:
    """Return `status.replicas` of a workload.

    A StatefulSet counts pods until they are gone, a ReplicaSet until they are to go (kubernetes v1.37
    pkg/controller/statefulset/stateful_set_control.go, pkg/controller/replicaset).
    """
    owner = owner_of_replicas(cluster, deployment)
    if isinstance(deployment, LeaderWorkerSet):
        return len(cluster.index.owned_by(owner))
    return cluster.index.live[owner]


def _scale_in(cluster: Cluster, deployment: Deployment, pods: list[Pod], now_ms: int) -> list[str]:
    surplus = max(0, len(pods) - deployment.replicas)
    # Among pods of like age Kubernetes' choice is arbitrary; here it must not depend on their random names.
    latest_first = pods[::-1]
    leaving = victims_first(latest_first, pods, now_ms)[:surplus]
    owner = f"ReplicaSet/{replica_set_name(cluster, deployment)}"
    for pod in leaving:
        cluster.mark_deleted(pod.metadata.key, now_ms)
        message = f"Deleted pod: {pod.metadata.name}"
        namespace = pod.metadata.namespace
        cluster.event(now_ms, "SuccessfulDelete", owner, message, namespace=namespace)
    return [pod.metadata.key for pod in leaving]


def _reconcile_job(cluster: Cluster, job: Job, now_ms: int) -> list[str]:
    if job.metadata.key in cluster.completed_jobs or job.metadata.key in cluster.suspended:
        return []
    pods = cluster.owned_by("Job", job.metadata.namespace, job.metadata.name)
    succeeded = cluster.succeeded_pods[job.metadata.key]
    if succeeded >= job.completions:
        cluster.completed_jobs.add(job.metadata.key)
        about, namespace = f"Job/{job.metadata.name}", job.metadata.namespace
        cluster.event(now_ms, "Completed", about, "Job completed", namespace=namespace)
        return []
    active = sum(1 for pod in pods if pod.status.phase not in FINISHED)
    missing = min(job.parallelism, job.completions - succeeded) - active
    owner = OwnerReference("Job", job.metadata.name)
    return [_create(cluster, job.metadata, job.template, owner, now_ms) for _ in range(missing)]


def _create(
    cluster: Cluster,
    workload: ObjectMeta,
    template: PodTemplate,
    owner: OwnerReference,
    now_ms: int,
) -> str:
    name = cluster.new_pod_name(workload.namespace, owner.name, owner.kind, owner.name)
    labels, annotations = dict(template.labels), dict(template.annotations)
    meta = ObjectMeta(name, workload.namespace, labels, annotations, now_ms, None, owner)
    cluster.add_pod(Pod(meta, template.spec))
    about, message = f"{owner.kind}/{owner.name}", f"Created pod: {name}"
    cluster.event(now_ms, "SuccessfulCreate", about, message, namespace=meta.namespace)
    return meta.key

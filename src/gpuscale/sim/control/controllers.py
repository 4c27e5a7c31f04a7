"""The controllers that turn Deployments and Jobs into pods.

Source: kubernetes pkg/controller/replicaset, pkg/controller/controller_utils.go (ActivePods: which pod
goes first), pkg/controller/job.
"""

from dataclasses import dataclass

from gpuscale.core.streams import name_suffix
from gpuscale.objects.meta import ObjectMeta, OwnerReference
from gpuscale.objects.pods import Pod, PodPhase, PodTemplate
from gpuscale.objects.workloads import Deployment, Job
from gpuscale.sim.cluster import FINISHED, Cluster


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one pass of the controllers did."""

    created: tuple[str, ...]
    deleted: tuple[str, ...]
    """Pods to stop; the kubelet takes them away."""


def reconcile(cluster: Cluster, now_ms: int) -> Reconciled:
    """Make and delete pods until each workload has as many as it wants."""
    created: list[str] = []
    deleted: list[str] = []
    for deployment in cluster.deployments.values():
        pods = live_pods(cluster, deployment)
        created += _scale_out(cluster, deployment, len(pods), now_ms)
        deleted += _scale_in(cluster, deployment, pods, now_ms)
    for job in cluster.jobs.values():
        created += _reconcile_job(cluster, job, now_ms)
    return Reconciled(tuple(created), tuple(deleted))


def replica_set_name(cluster: Cluster, deployment: Deployment) -> str:
    """Return the name of the ReplicaSet behind a Deployment's one revision."""
    name = deployment.metadata.name
    return f"{name}-{name_suffix(cluster.seed, 'template', name, length=10)}"


def live_pods(cluster: Cluster, deployment: Deployment) -> list[Pod]:
    """Return a Deployment's pods that are neither finished nor on their way out."""
    owner = replica_set_name(cluster, deployment)
    pods = cluster.owned_by("ReplicaSet", deployment.metadata.namespace, owner)
    return [p for p in pods if p.metadata.deletion_ms is None and p.status.phase not in FINISHED]


def _scale_out(cluster: Cluster, deployment: Deployment, live: int, now_ms: int) -> list[str]:
    owner = OwnerReference("ReplicaSet", replica_set_name(cluster, deployment))
    return [
        _create(cluster, deployment.metadata, deployment.template, owner, now_ms)
        for _ in range(deployment.replicas - live)
    ]


def _scale_in(cluster: Cluster, deployment: Deployment, pods: list[Pod], now_ms: int) -> list[str]:
    surplus = max(0, len(pods) - deployment.replicas)
    leaving = sorted(pods, key=_leaves_first)[:surplus]
    owner = f"ReplicaSet/{replica_set_name(cluster, deployment)}"
    for pod in leaving:
        cluster.mark_deleted(pod.metadata.key, now_ms)
        cluster.event(now_ms, "SuccessfulDelete", owner, f"Deleted pod: {pod.metadata.name}")
    return [pod.metadata.key for pod in leaving]


def _leaves_first(pod: Pod) -> tuple[bool, bool, bool, int, str]:
    """Unassigned before assigned, pending before running, unready before ready, younger before older."""
    status = pod.status
    return (
        bool(pod.spec.node_name),
        status.phase is not PodPhase.PENDING,
        status.ready is True,
        -pod.metadata.creation_ms,
        pod.metadata.name,
    )


def _reconcile_job(cluster: Cluster, job: Job, now_ms: int) -> list[str]:
    if job.metadata.key in cluster.completed_jobs:
        return []
    pods = cluster.owned_by("Job", job.metadata.namespace, job.metadata.name)
    succeeded = cluster.succeeded_pods[job.metadata.key]
    if succeeded >= job.completions:
        cluster.completed_jobs.add(job.metadata.key)
        cluster.event(now_ms, "Completed", f"Job/{job.metadata.name}", "Job completed")
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
    name = f"{owner.name}-{cluster.unique_suffix(owner.kind, owner.name)}"
    meta = ObjectMeta(name, workload.namespace, dict(template.labels), {}, now_ms, None, owner)
    cluster.add_pod(Pod(meta, template.spec))
    cluster.event(now_ms, "SuccessfulCreate", f"{owner.kind}/{owner.name}", f"Created pod: {name}")
    return meta.key

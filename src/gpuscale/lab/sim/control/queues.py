"""Kueue beside the Job controller: the Jobs of a queue are suspended until it has quota for them.

Source: kueue v0.17.0 pkg/controller/jobframework, pkg/controller/jobs/job (pod sets, reclaimable pods), and
.../jobset. Workloads are named after their Jobs; Kueue adds a hash.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuscale.base.objects.kueue import (
    PRIORITY_LABEL,
    QUEUE_LABEL,
    ClusterQueue,
    KueueObject,
    LocalQueue,
    ResourceFlavor,
    WorkloadPriorityClass,
)
from gpuscale.base.objects.workloads import REPLICATED_JOB, Job
from gpuscale.hpa.cluster.queues import Admission, PodSet, QueuedWorkload, Queues
from gpuscale.hpa.cluster.scheduling import pod_requests
from gpuscale.lab.sim.cluster import Cluster


class JobQueues:
    """The Jobs that wait in queues, and those that have quota.

    Args:
        cluster: where they are.
        objects: the queues, their flavors and priorities.

    Attributes:
        waits_ms: ClusterQueue to how long each workload waited that was admitted.
        since_ms: workload key to its ClusterQueue, and when it came, while it waits.
    """

    def __init__(self, cluster: Cluster, objects: Iterable[KueueObject]) -> None:
        self.since_ms: dict[str, tuple[str, int]] = {}
        self._cluster = cluster
        self._local_queues: dict[str, LocalQueue] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        self._priorities: dict[str, int] = {}
        cluster_queues: list[ClusterQueue] = []
        for item in objects:
            match item:
                case ClusterQueue():
                    cluster_queues.append(item)
                case LocalQueue():
                    self._local_queues[item.metadata.key] = item
                case ResourceFlavor():
                    self._flavors[item.metadata.name] = item
                case WorkloadPriorityClass():
                    self._priorities[item.metadata.name] = item.value
        self.waits_ms: dict[str, list[int]] = {each.metadata.name: [] for each in cluster_queues}
        self._queues = Queues(cluster_queues, self._flavors)
        self._jobs: dict[str, Sequence[Job]] = {}
        """Workload key to its Jobs."""
        self._of: dict[str, str] = {}
        """Job key to that of its workload."""
        self._said: dict[str, str] = {}
        self._new: list[str] = []
        self._has_changed = False

    def submit(self, name: str, jobs: Sequence[Job], now_ms: int) -> None:
        """Suspend what has just been created in a queue.

        Args:
            name: of the Job, or of the JobSet.
            jobs: the Job, or those of the JobSet.
            now_ms: the time.
        """
        cluster, labels = self._cluster, jobs[0].metadata.labels
        namespace = jobs[0].metadata.namespace
        kind = "JobSet" if REPLICATED_JOB in jobs[0].template.labels else "Job"
        local = self._local_queues[f"{namespace}/{labels[QUEUE_LABEL]}"]
        by_role: dict[str, list[Job]] = {}
        for job in jobs:
            cluster.suspended.add(job.metadata.key)
            by_role.setdefault(job.template.labels.get(REPLICATED_JOB, "main"), []).append(job)
        message = f"{kind} suspended: it waits in LocalQueue {local.metadata.name}"
        cluster.event(now_ms, "Suspended", f"{kind}/{name}", message, namespace=namespace)
        workload_key = f"{namespace}/{kind.lower()}-{name}"
        self._jobs[workload_key] = jobs
        self._of |= {job.metadata.key: workload_key for job in jobs}
        self.since_ms[workload_key] = local.cluster_queue, now_ms
        if local.is_stopped:
            self._tell(workload_key, f"LocalQueue {local.metadata.name} is stopped", now_ms)
            return
        sets = tuple(
            PodSet(
                role,
                sum(map(_pods_at_once, of_role)),
                of_role[0].template.spec,
                pod_requests(of_role[0].template.spec),
            )
            for role, of_role in by_role.items()
        )
        chosen = labels.get(PRIORITY_LABEL, "")
        priority = self._priorities[chosen] if chosen else jobs[0].template.spec.priority
        self._queues.add(QueuedWorkload(workload_key, local.cluster_queue, sets, priority, now_ms))
        self._new.append(workload_key)
        self._has_changed = True

    def look(self, jobs: Iterable[str], now_ms: int) -> bool:
        """Take back the quota of pods that are done, and admit workloads; return whether some were.

        Args:
            jobs: keys of those whose pods have changed.
            now_ms: the time.
        """
        for key in {self._of[job]: None for job in jobs if job in self._of}:
            if key not in self.since_ms:
                self._give_back(key)
        if not self._has_changed:
            return False
        self._has_changed = False
        admitted = self._queues.run()
        for each in admitted:
            self._start(each, now_ms)
        for key in {**dict.fromkeys(self._new), **self._queues.tried}:
            if key in self.since_ms and (why := self._queues.why(key)):
                self._tell(key, why, now_ms)
        self._new.clear()
        return bool(admitted)

    def _give_back(self, key: str) -> None:
        jobs, done = self._jobs[key], self._cluster.completed_jobs
        if all(job.metadata.key in done for job in jobs):
            self._queues.finish(key)
            for job in jobs:
                del self._of[job.metadata.key]
            del self._jobs[key]
            self._has_changed = True
            return
        counts: dict[str, int] = {}
        for job in jobs:
            role, succeeded = job.template.labels.get(REPLICATED_JOB, ""), 0
            if not role or job.metadata.key in done:
                succeeded = self._cluster.succeeded_pods[job.metadata.key]
            left = min(_pods_at_once(job), job.completions - succeeded)
            counts[role] = counts.get(role, 0) + left
        self._has_changed |= self._queues.shrink(key, tuple(counts.values()))

    def _start(self, admission: Admission, now_ms: int) -> None:
        """Resume the Jobs of a workload, whose pods go to the nodes of their flavors."""
        cluster, key = self._cluster, admission.workload.key
        namespace, _, name = key.partition("/")
        queue, since_ms = self.since_ms.pop(key)
        self._said.pop(key, None)
        waited_ms = now_ms - since_ms
        self.waits_ms[queue].append(waited_ms)
        flavors = {
            pods.name: [self._flavors[each] for each in dict.fromkeys(of_pods.values())]
            for pods, of_pods in zip(admission.workload.pod_sets, admission.flavors, strict=True)
        }
        about = f"Workload/{name}"
        waited = f"wait time since queued was {waited_ms / 1000:.0f}s"
        reserved = f"Quota reserved in ClusterQueue {queue}, {waited}"
        cluster.event(now_ms, "QuotaReserved", about, reserved, namespace=namespace)
        for job in self._jobs[key]:
            spec = job.template.spec
            for flavor in flavors[job.template.labels.get(REPLICATED_JOB, "main")]:
                spec = replace(
                    spec,
                    node_selector={**spec.node_selector, **flavor.node_labels},
                    tolerations=(*spec.tolerations, *flavor.tolerations),
                )
            meta = job.metadata
            cluster.jobs[meta.key] = replace(job, template=replace(job.template, spec=spec))
            cluster.suspended.discard(meta.key)
            cluster.index.changed_owners["Job", meta.namespace, meta.name] = None
            cluster.event(
                now_ms, "Resumed", f"Job/{meta.name}", "Job resumed", namespace=meta.namespace
            )

    def _tell(self, key: str, message: str, now_ms: int) -> None:
        """Report why a workload waits, once for each reason."""
        if self._said.get(key) != message:
            self._said[key] = message
            namespace, _, name = key.partition("/")
            self._cluster.event(
                now_ms,
                "Pending",
                f"Workload/{name}",
                message,
                namespace=namespace,
                type_="Warning",
            )


def _pods_at_once(job: Job) -> int:
    return min(job.parallelism, job.completions)

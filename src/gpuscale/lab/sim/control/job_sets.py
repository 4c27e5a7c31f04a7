"""JobSets: their pods compute once all of them run, and start over when one is lost.

How a training job's processes meet before its first step, whatever made their pods; JobSet's controller makes
all Jobs at once (jobset v0.12 pkg/controllers/jobset_controller.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.objects.workloads import Job
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.pod_index import OwnerKey, owner_of


@dataclass(slots=True, eq=False)
class _Run:
    """One JobSet."""

    jobs: Sequence[Job]
    since_ms: int | None = None
    """Since when all of its pods run."""
    computing: set[str] = field(default_factory=set)
    """Keys of the pods that do."""


class JobSets:
    """The JobSets of a cluster.

    Args:
        cluster: where their pods are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._runs: dict[OwnerKey, _Run] = {}

    def add(self, jobs: Sequence[Job]) -> None:
        """Let the pods of Jobs wait for each other."""
        run = _Run(jobs)
        owners = [_owner(job) for job in jobs]
        self._runs.update(dict.fromkeys(owners, run))
        for owner in owners:
            others = tuple(each for each in owners if each != owner)
            self._cluster.index.together[owner] = others

    def computes_since_ms(self, pod: Pod) -> int | None:
        """Return since when the pods of a pod's JobSet compute; None while one is missing."""
        run = self._run_of(pod)
        return run.since_ms if run is not None and self._is_whole(run) else None

    def begun(self, pod: Pod, now_ms: int) -> tuple[str, ...]:
        """Return the keys of the pods that start to compute as the containers of a pod start."""
        run, key = self._run_of(pod), pod.metadata.key
        if run is None:
            return (key,)
        if run.since_ms is not None and self._is_whole(run):
            run.computing.add(key)
            return (key,)
        run.since_ms = None
        cluster, running = self._cluster, set[str]()
        for job in run.jobs:
            pods = cluster.index.owned_by(_owner(job))
            there = {
                each.metadata.key
                for each in pods
                if each.status.phase is PodPhase.RUNNING and each.metadata.deletion_ms is None
            }
            left = job.completions - cluster.succeeded_pods[job.metadata.key]
            if len(there) < min(job.parallelism, left):
                return ()
            running |= there
        run.since_ms, run.computing = now_ms, running
        return tuple(sorted(running))

    def ends(self, pod: Pod, since_ms: int) -> bool:
        """Return whether a pod has computed without a break since it began, and count it as done."""
        run = self._run_of(pod)
        if run is None:
            return True
        is_done = pod.metadata.key in run.computing and self._is_whole(run)
        is_done = is_done and run.since_ms is not None and run.since_ms <= since_ms
        if is_done:
            run.computing.discard(pod.metadata.key)
        return is_done

    def _run_of(self, pod: Pod) -> _Run | None:
        owner = owner_of(pod) if self._runs else None
        return self._runs.get(owner) if owner is not None else None

    def _is_whole(self, run: _Run) -> bool:
        pods = self._cluster.pods
        return all(key in pods and pods[key].metadata.deletion_ms is None for key in run.computing)


def _owner(job: Job) -> OwnerKey:
    return "Job", job.metadata.namespace, job.metadata.name

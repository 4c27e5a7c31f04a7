"""The Jobs that a run has submitted, one row each, as `kubectl get jobs` shows them."""

from collections import Counter

from gpuscale.objects.pods import PodPhase
from gpuscale.sim.scenario.setup import JobSetup
from gpuscale.sim.world import World

MAX_ROWS = 200
"""More than anyone reads; the rows go out twice a second."""


def job_rows(world: World) -> list[dict[str, object]]:
    """Return the submitted Jobs: running ones, then pending ones, then those that completed.

    Each has `name`, `namespace`, `completions` wanted, `succeeded`, `running`, `pending` (completions
    for which no container runs yet) and `age` in seconds.
    """
    cluster = world.cluster
    running = Counter(
        f"{pod.metadata.namespace}/{pod.metadata.owner.name}"
        for pod in cluster.pods.values()
        if pod.metadata.owner is not None
        and pod.metadata.owner.kind == "Job"
        and pod.status.phase is PodPhase.RUNNING
    )
    submitted = [each for each in world.setup.jobs if each.job.metadata.key in cluster.jobs]

    def order(setup: JobSetup) -> tuple[int, int]:
        key = setup.job.metadata.key
        if key in cluster.completed_jobs:
            return 2, -setup.at_ms
        return (0 if running[key] else 1), setup.at_ms

    chosen = sorted(submitted, key=order)[:MAX_ROWS]
    return [_row(world, setup, running[setup.job.metadata.key]) for setup in chosen]


def _row(world: World, setup: JobSetup, running: int) -> dict[str, object]:
    job = setup.job
    succeeded = min(job.completions, world.cluster.succeeded_pods[job.metadata.key])
    return {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "completions": job.completions,
        "succeeded": succeeded,
        "running": min(running, job.completions - succeeded),
        "pending": max(0, job.completions - succeeded - running),
        "age": (world.engine.now_ms - world.start_ms - setup.at_ms) / 1000,
    }

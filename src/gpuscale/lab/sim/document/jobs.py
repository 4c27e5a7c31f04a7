"""The progress of a scenario's Jobs, in completions: pending, running, succeeded."""

from dataclasses import dataclass

from gpuscale.lab.sim.site import Site


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a Job of the scenario, all its copies together.

    The unit is one completion: a Job with `completions: 20` and 20 copies of a Job with one look alike.
    Nothing gets lost: submitted = pending + running + succeeded.
    """

    planned: int
    """What the scenario will have submitted at its end."""
    submitted: int
    pending: int
    """Submitted, and no pod of it runs: it waits for a node, its image, or the Job's `parallelism`."""
    running: int
    """A container computes for it."""
    succeeded: int


def job_progress(site: Site) -> dict[str, JobProgress]:
    """Return the progress by Job name, in the order of the scenario."""
    cluster = site.cluster
    groups: dict[str, list[tuple[int, int, int, int]]] = {}
    for setup in site.setup.jobs:
        key, completions = setup.job.metadata.key, setup.job.completions
        asked = completions if key in cluster.jobs else 0
        done = min(asked, cluster.succeeded_pods[key])
        meta = setup.job.metadata
        running = cluster.index.running["Job", meta.namespace, meta.name]
        counts = (completions, asked, min(asked - done, running), done)
        groups.setdefault(setup.manifest.partition("/")[2], []).append(counts)
    found: dict[str, JobProgress] = {}
    for name, copies in groups.items():
        planned, submitted, running, succeeded = map(sum, zip(*copies, strict=True))
        pending = submitted - running - succeeded
        found[name] = JobProgress(planned, submitted, pending, running, succeeded)
    return found

"""From the replicas that an HPA wants to pods that run: creation, scheduling, start, and disruption."""

from collections.abc import Iterator

from gpuscale.core.findings import Checks
from gpuscale.doctor.checks.workload.containers import CONTAINER_CHECKS, container_findings
from gpuscale.doctor.checks.workload.creation import CREATION_CHECKS, creation_findings
from gpuscale.doctor.checks.workload.disruption import DISRUPTION_CHECKS, disruption_findings
from gpuscale.doctor.checks.workload.placement import PLACEMENT_CHECKS, placement_findings
from gpuscale.doctor.judges import WORKLOAD, ClusterFinding, ClusterJudge
from gpuscale.doctor.snapshot import Snapshot

_CHECKS = Checks(
    WORKLOAD,
    including=(CREATION_CHECKS, PLACEMENT_CHECKS, CONTAINER_CHECKS, DISRUPTION_CHECKS),
)


def workload_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps the replicas that are wanted from running."""
    yield from creation_findings(snapshot)
    yield from placement_findings(snapshot)
    yield from container_findings(snapshot)
    yield from disruption_findings(snapshot)


JUDGE = ClusterJudge("workload", _CHECKS, workload_findings)

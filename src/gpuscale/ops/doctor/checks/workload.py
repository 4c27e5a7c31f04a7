"""From desired replicas to running pods: creation, scheduling, start, disruption."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks
from gpuscale.ops.doctor.checks.workload_containers import CONTAINER_CHECKS, container_findings
from gpuscale.ops.doctor.checks.workload_creation import CREATION_CHECKS, creation_findings
from gpuscale.ops.doctor.checks.workload_disruption import DISRUPTION_CHECKS, disruption_findings
from gpuscale.ops.doctor.checks.workload_placement import PLACEMENT_CHECKS, placement_findings
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import Snapshot

_CHECKS = Checks(
    WORKLOAD,
    including=(CREATION_CHECKS, PLACEMENT_CHECKS, CONTAINER_CHECKS, DISRUPTION_CHECKS),
)


def workload_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps desired replicas from running."""
    yield from creation_findings(snapshot)
    yield from placement_findings(snapshot)
    yield from container_findings(snapshot)
    yield from disruption_findings(snapshot)


JUDGE = ClusterJudge("workload", _CHECKS, workload_findings)

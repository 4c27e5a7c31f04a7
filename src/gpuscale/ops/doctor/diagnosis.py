"""All checks, in the order of the chain, and the automatic repair of findings."""

from collections.abc import Sequence

from gpuscale.base.findings import ChainReport, FixRequest
from gpuscale.kube.client import CONFLICT, ApiStatusError, KubeClient
from gpuscale.ops.doctor.checks import JUDGES
from gpuscale.ops.doctor.checks.access import unseen_parts
from gpuscale.ops.doctor.facts import gpu_nodes
from gpuscale.ops.doctor.folding import folded
from gpuscale.ops.doctor.judges import HOPS, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import Snapshot


def diagnose(snapshot: Snapshot, judges: Sequence[ClusterJudge] = JUDGES) -> ChainReport:
    """Return all findings about a cluster; consequences are listed below their cause."""
    chain = sorted(judges, key=lambda each: HOPS.index(each.checks.hop))
    found = [each for judge in chain for each in judge.judge(snapshot)]
    seen = {
        "nodes": len(snapshot.all("nodes")),
        "GPU nodes": len(gpu_nodes(snapshot)),
        "agents": len(snapshot.agents),
        "HPAs": len(snapshot.hpas),
        "metrics": sum(len(look.metrics) for look in snapshot.hpas),
    }
    return ChainReport(folded(snapshot, found), HOPS, seen, tuple(unseen_parts(snapshot)))


def repairable(findings: Sequence[ClusterFinding]) -> tuple[ClusterFinding, ...]:
    """Return the findings whose fix is safe to apply without asking, each fix once."""
    found: dict[tuple[FixRequest, ...] | str, ClusterFinding] = {}
    for finding in (each for root in findings for each in root.whole()):
        if finding.fix.changes:
            found.setdefault(finding.fix.command, finding)
    return tuple(found.values())


async def repair(client: KubeClient, finding: ClusterFinding) -> None:
    """Apply a finding's fix.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused; what comes before it in the fix is applied.
    """
    for change in finding.fix.changes:
        await _apply(client, change)


async def _apply(client: KubeClient, change: FixRequest) -> None:
    if not change.creates:
        await client.patch(change.path, change.body)
        return
    try:
        await client.create(change.path, change.body)
    except ApiStatusError as error:
        if error.code != CONFLICT:
            raise
        await client.patch(f"{change.path}/{change.body['metadata']['name']}", change.body)

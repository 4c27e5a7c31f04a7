"""Everything that is judged, in the order of the chain."""

from collections.abc import Sequence

from gpuscale.core.findings import ChainReport
from gpuscale.doctor.checks import JUDGES
from gpuscale.doctor.facts import gpu_nodes
from gpuscale.doctor.judges import HOPS, ClusterJudge
from gpuscale.doctor.snapshot import Snapshot


def diagnose(snapshot: Snapshot, judges: Sequence[ClusterJudge] = JUDGES) -> ChainReport:
    """Return what is wrong in a cluster, whole: one trouble hides no other."""
    chain = sorted(judges, key=lambda each: HOPS.index(each.checks.hop))
    findings = tuple(each for judge in chain for each in judge.judge(snapshot))
    seen = {
        "nodes": len(snapshot.all("nodes")),
        "GPU nodes": len(gpu_nodes(snapshot)),
        "agents": len(snapshot.agents),
        "HPAs": len(snapshot.hpas),
        "metrics": sum(len(look.metrics) for look in snapshot.hpas),
    }
    return ChainReport(findings, HOPS, seen)

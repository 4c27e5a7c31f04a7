"""Everything that is judged, in the order of the chain."""

from collections.abc import Callable, Iterator

from gpuscale.doctor.agent_checks import agent_findings
from gpuscale.doctor.api_checks import api_findings
from gpuscale.doctor.capacity_checks import capacity_findings
from gpuscale.doctor.facts import allowing, found, gpu_nodes
from gpuscale.doctor.findings import Finding, Fix, Report
from gpuscale.doctor.hpa_checks import hpa_findings
from gpuscale.doctor.node_checks import node_findings
from gpuscale.doctor.prometheus_checks import prometheus_findings
from gpuscale.doctor.snapshot import Snapshot


def diagnose(snapshot: Snapshot) -> Report:
    """Return what is wrong in a cluster, whole: one trouble hides no other."""
    findings = tuple(each for judge in _JUDGES for each in judge(snapshot))
    seen = {
        "nodes": len(snapshot.all("nodes")),
        "GPU nodes": len(gpu_nodes(snapshot)),
        "agents": len(snapshot.agents),
        "HPAs": len(snapshot.hpas),
        "metrics": sum(len(look.metrics) for look in snapshot.hpas),
    }
    return Report(findings, seen)


def access_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Return what could not be looked at."""
    for plural, look in snapshot.looks.items():
        if look.fault:
            yield found(
                "cannot-see",
                plural,
                f"Can't see {plural}, so nothing is told of them.",
                look.fault,
                Fix(
                    f"Allow whom the kubeconfig names to get and list {look.needs}.",
                    allowing(plural, look.needs),
                ),
            )


_JUDGES: tuple[Callable[[Snapshot], Iterator[Finding]], ...] = (
    access_findings,
    node_findings,
    agent_findings,
    prometheus_findings,
    api_findings,
    hpa_findings,
    capacity_findings,
)

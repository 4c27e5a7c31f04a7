"""PodDisruptionBudgets that let no pod of a workload go."""

from collections.abc import Iterator

from gpuscale.core.findings import Checks, Fix, Severity
from gpuscale.doctor import facts
from gpuscale.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.doctor.snapshot import HpaLook, Snapshot
from gpuscale.objects.fields import Fields

DISRUPTION_CHECKS = Checks(WORKLOAD)
PDB_BLOCKS = DISRUPTION_CHECKS.add(
    "pdb-blocks",
    Severity.NOTE,
    "A PodDisruptionBudget that lets no pod go, so that its nodes can't be drained or removed.",
    "Allow one pod to go: maxUnavailable: 1.",
)

PDBS_OVERLAP = DISRUPTION_CHECKS.add(
    "pdbs-overlap",
    Severity.NOTE,
    "Pods of two PodDisruptionBudgets, which can't be evicted, so that their nodes can't be drained.",
    "Delete one of the two.",
)


def disruption_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the budgets that keep the nodes of scaled workloads for ever."""
    for budget in snapshot.all("poddisruptionbudgets"):
        selector = budget.child("spec").selector("selector")
        if selector is None:
            continue
        for look in snapshot.hpas:
            if look.namespace != facts.namespace(budget):
                continue
            pods = facts.pods_of(snapshot, look)
            if any(selector.matches(facts.labels(pod)) for pod in pods) and _blocks(budget, look):
                yield _note(budget, look)
                break
    yield from _overlaps(snapshot)


def _overlaps(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    budgets = [
        (facts.namespace(each), selector, each)
        for each in snapshot.all("poddisruptionbudgets")
        if (selector := each.child("spec").selector("selector")) is not None
    ]
    for look in snapshot.hpas:
        of_namespace = [each for each in budgets if each[0] == look.namespace]
        if len(of_namespace) < 2:
            continue
        for pod in facts.pods_of(snapshot, look)[:1]:
            given = facts.labels(pod)
            both = [each for _, selector, each in of_namespace if selector.matches(given)]
            if len(both) > 1:
                names = [facts.name(each) for each in both]
                yield PDBS_OVERLAP.found(
                    f"poddisruptionbudget/{facts.full_name(both[1])}",
                    f"The pods of {look.about} have the budgets {' and '.join(names)}, and none may go.",
                    "the eviction API refuses a pod of several budgets",
                    Fix(
                        PDBS_OVERLAP.fix,
                        f"kubectl get poddisruptionbudget -n {look.namespace} {' '.join(names)} -o yaml",
                    ),
                )


def _blocks(budget: Fields, look: HpaLook) -> bool:
    spec = budget.child("spec").data
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most in (0, "0", "0%") or least == "100%":
        return True
    return isinstance(least, int) and least >= look.hpa.max_replicas


def _note(budget: Fields, look: HpaLook) -> ClusterFinding:
    spec = budget.child("spec").data
    field = "maxUnavailable" if "maxUnavailable" in spec else "minAvailable"
    patch = '{"spec":{"minAvailable":null,"maxUnavailable":1}}'
    return PDB_BLOCKS.found(
        f"poddisruptionbudget/{facts.full_name(budget)}",
        "It lets no pod go, so nodes with these pods can't be drained and the pool never shrinks.",
        f"{field}: {spec[field]}; pods of {look.about}",
        Fix(
            PDB_BLOCKS.fix,
            f"kubectl patch poddisruptionbudget -n {facts.namespace(budget)} {facts.name(budget)} "
            f"--type=merge -p '{patch}'",
        ),
    )

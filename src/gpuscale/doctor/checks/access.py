"""What of the cluster could not be looked at."""

from collections.abc import Iterator

from gpuscale.core.findings import Checks, Fix, Severity
from gpuscale.doctor.facts import allowing
from gpuscale.doctor.judges import ACCESS, ClusterFinding, ClusterJudge
from gpuscale.doctor.snapshot import Snapshot

_CHECKS = Checks(ACCESS)
CANNOT_SEE = _CHECKS.add(
    "cannot-see",
    Severity.WARNING,
    "Something that can't be looked at, and the rights it takes.",
    "Allow whom the kubeconfig names to get and list it.",
)


def access_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what could not be looked at."""
    for plural, look in snapshot.looks.items():
        if look.fault:
            yield CANNOT_SEE.found(
                plural,
                f"Can't see {plural}, so nothing is told of them.",
                look.fault,
                Fix(
                    f"Allow whom the kubeconfig names to get and list {look.needs}.",
                    allowing(plural, look.needs),
                ),
            )


JUDGE = ClusterJudge("access", _CHECKS, access_findings)

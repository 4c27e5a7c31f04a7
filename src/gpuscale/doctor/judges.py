"""What judges a cluster, and the hops that it is judged by."""

from dataclasses import dataclass

from gpuscale.core.errors import BugError
from gpuscale.core.findings import Finding, Judge
from gpuscale.doctor.snapshot import Snapshot

ACCESS, NODES, AGENT, PROMETHEUS, API, AUTOSCALER, WORKLOAD, CAPACITY = HOPS = (
    "access",
    "nodes",
    "node agent",
    "Prometheus",
    "metrics API",
    "autoscaler",
    "workload",
    "capacity",
)
"""The chain, in the order in which it is judged."""
LINT = "lint/"
"""Before the id of a check that is `gpuscale lint`'s."""
ClusterFinding = Finding[str]
"""A finding about an object, named as `kind/name` or `kind/namespace/name`."""


@dataclass(frozen=True, slots=True)
class ClusterJudge(Judge[Snapshot, str]):
    """A judge of `gpuscale doctor`. It gets a snapshot and no connection.

    Raises:
        BugError: the checks name a hop that the chain does not have.
    """

    def __post_init__(self) -> None:
        if self.checks.hop not in HOPS:
            raise BugError(f"hop {self.checks.hop!r}: expected one of {', '.join(HOPS)}")

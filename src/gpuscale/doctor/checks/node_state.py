"""GPU nodes that are kept out of use, and clocks that run apart."""

from collections.abc import Iterator, Mapping
from statistics import median

from gpuscale.core.findings import Checks, Fix, Severity
from gpuscale.doctor import facts
from gpuscale.doctor.facts import once
from gpuscale.doctor.judges import NODES, ClusterFinding
from gpuscale.doctor.snapshot import Snapshot

NODE_STATE_CHECKS = Checks(NODES)
GPU_NODE_CORDONED = NODE_STATE_CHECKS.add(
    "gpu-node-cordoned",
    Severity.NOTE,
    "A GPU node that is cordoned and takes no new pods.",
    "Uncordon it once its maintenance is over.",
)
CLOCK_SKEW = NODE_STATE_CHECKS.add(
    "clock-skew",
    Severity.WARNING,
    "A node whose clock is off, so that its readings look old or are of the future.",
    "Set the node's clock: its time service is off, or can't reach its server.",
)
CLOCK_HERE = NODE_STATE_CHECKS.add(
    "clock-here",
    Severity.WARNING,
    "The clock of the machine that doctor runs on is off, so that ages can't be judged.",
    "Set this machine's clock.",
)

MAX_AHEAD_MS = 30_000
MAX_BEHIND_MS = 120_000
"""A kubelet renews its lease every 10 s, and its node counts as lost after 40 to 50 s."""
_ENOUGH = 3
"""Nodes from which on what most of them say outweighs this machine's clock."""


def node_state_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the cordoned GPU nodes, and the clocks that are off."""
    for node in facts.gpu_nodes(snapshot):
        if node.child("spec").boolean("unschedulable"):
            name = facts.name(node)
            yield GPU_NODE_CORDONED.found(
                f"node/{name}",
                "The node is cordoned and takes no new pods.",
                "spec.unschedulable: true",
                Fix(GPU_NODE_CORDONED.fix, f"kubectl uncordon {name}"),
            )
    yield from _clocks(snapshot)


@once
def behind_ms(snapshot: Snapshot) -> Mapping[str, int]:
    """Return by how much each Ready node's last sign of life is behind this machine's clock."""
    renewed = {
        facts.name(lease): lease.child("spec").time_ms("renewTime")
        for lease in snapshot.all("leases")
    }
    return {
        name: snapshot.now_ms - at_ms
        for name, node in facts.nodes_by_name(snapshot).items()
        if facts.is_ready(node) and (at_ms := renewed.get(name)) is not None
    }


def _is_off(lag_ms: float) -> bool:
    return lag_ms < -MAX_AHEAD_MS or lag_ms > MAX_BEHIND_MS


def _clocks(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    lags = behind_ms(snapshot)
    usual = median(lags.values()) if len(lags) >= _ENOUGH else 0
    if _is_off(usual):
        yield CLOCK_HERE.found(
            "doctor",
            f"This machine's clock is about {_apart(usual)} the nodes'.",
            f"{len(lags)} Ready nodes renew their leases",
            Fix(CLOCK_HERE.fix, "timedatectl"),
        )
        return
    gpu_nodes = {facts.name(node) for node in facts.gpu_nodes(snapshot)}
    for name, lag_ms in lags.items():
        if name in gpu_nodes and _is_off(lag_ms):
            yield CLOCK_SKEW.found(
                f"node/{name}",
                f"The node's clock is about {_apart(-lag_ms)} the API server's.",
                f"it is Ready, and its lease says {lag_ms / 1000:+.0f} s of age",
                Fix(CLOCK_SKEW.fix, f"kubectl debug node/{name} -it --image=busybox -- date -u"),
            )


def _apart(lag_ms: float) -> str:
    return f"{abs(lag_ms) / 1000:.0f} s {'ahead of' if lag_ms > 0 else 'behind'}"

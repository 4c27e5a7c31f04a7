"""GPU nodes out of use, and nodes whose clocks are off."""

from collections.abc import Iterator, Mapping
from statistics import median

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.taints import PassingTaint
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import NODES, ClusterFinding
from gpuscale.ops.doctor.snapshot import Snapshot

NODE_STATE_CHECKS = Checks(NODES)
GPU_NODE_CORDONED = NODE_STATE_CHECKS.add(
    "gpu-node-cordoned",
    Severity.NOTE,
    "A GPU node that is cordoned and takes no new pods.",
    "Uncordon it once its maintenance is over.",
)
GPU_NODE_OUT_OF_USE = NODE_STATE_CHECKS.add(
    "gpu-node-out-of-use",
    Severity.NOTE,
    "A GPU node that is being removed, is not set up yet, or is unwell, as its taint says.",
    "See what becomes of the node; a toleration for such a taint does harm.",
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

OUT_OF_USE = {
    PassingTaint.GOING: "Let its pods move to another node: who set the taint takes the node away, and a new "
    "one comes as the node autoscaler or the pool makes it. Never tolerate the taint.",
    PassingTaint.NOT_YET: "Wait until who set the taint takes it off, or see why it does not. Never tolerate "
    "the taint.",
    PassingTaint.UNWELL: "See to what the taint names, or let the pool replace the node. Never tolerate "
    "the taint.",
}
"""What to do about a node with a taint of the moment."""
_UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
"""Source: NVIDIA gpu-operator 26.7 (k8s-operator-libs pkg/upgrade/consts.go)."""
MAX_AHEAD_MS = 30_000
MAX_BEHIND_MS = 120_000
"""A kubelet renews its lease every 10 s, and its node counts as lost after 40 to 50 s."""
_ENOUGH = 3
"""Nodes from which on what most of them say outweighs this machine's clock."""


def node_state_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the GPU nodes that take no pods, and the nodes whose clocks are off."""
    for node in facts.gpu_nodes(snapshot):
        name = facts.name(node)
        momentary = facts.momentary(snapshot, node)
        if momentary:  # A node about to be removed is cordoned too.
            taint, moment = momentary[0]
            yield GPU_NODE_OUT_OF_USE.found(
                f"node/{name}",
                f"The node {moment.value}, and takes no new pods.",
                f"taint {taint}",
                Fix(OUT_OF_USE[moment], f"kubectl describe node {name}"),
            )
        elif node.child("spec").boolean("unschedulable"):
            yield GPU_NODE_CORDONED.found(
                f"node/{name}",
                "The node is cordoned and takes no new pods.",
                _cordoned_by(node),
                uncordon(node),
            )
    yield from _clocks(snapshot)


def _cordoned_by(node: Fields) -> str:
    state = facts.labels(node).get(_UPGRADE_STATE, "")
    return f"spec.unschedulable: true{f'; {_UPGRADE_STATE}={state}' if state else ''}"


def uncordon(node: Fields) -> Fix:
    """Return how to put a cordoned node back into use; its reason is unknown unless a label gives it."""
    name, state = facts.name(node), facts.labels(node).get(_UPGRADE_STATE, "")
    if state not in ("", "upgrade-done"):
        return Fix(
            f"The GPU Operator's driver upgrade has it: {state}. See to the upgrade first; uncordoned "
            "before, the node takes pods without a driver that works.",
            f"kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector=spec.nodeName={name}",
        )
    return Fix(
        f"See who cordoned it and why; once that is over: kubectl uncordon {name}.",
        f"kubectl describe node {name}",
    )


@once
def behind_ms(snapshot: Snapshot) -> Mapping[str, int]:
    """Return how far each Ready node's last heartbeat is behind this machine's clock, in milliseconds."""
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
    for name, lag_ms in lags.items():
        if name in facts.gpu_node_names(snapshot) and _is_off(lag_ms):
            yield CLOCK_SKEW.found(
                f"node/{name}",
                f"The node's clock is about {_apart(-lag_ms)} the API server's.",
                f"it is Ready, and its lease says {lag_ms / 1000:+.0f} s of age",
                Fix(CLOCK_SKEW.fix, f"kubectl debug node/{name} -it --image=busybox -- date -u"),
            )


def _apart(lag_ms: float) -> str:
    return f"{abs(lag_ms) / 1000:.0f} s {'ahead of' if lag_ms > 0 else 'behind'}"

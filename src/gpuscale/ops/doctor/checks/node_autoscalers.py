"""Node autoscalers' own reasons for not adding a node for pending pods."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import Outlook
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.cluster_autoscaler import (
    CLUSTER_AUTOSCALER_CHECKS,
    STATUS_COMMAND,
    cluster_autoscaler_findings,
)
from gpuscale.ops.doctor.checks.karpenter import (
    KARPENTER_CHECKS,
    NODE_ON_ITS_WAY,
    karpenter_findings,
)
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import CAPACITY, ClusterFinding
from gpuscale.ops.doctor.node_pools import (
    awaits_claim,
    false_conditions,
    karpenters_words,
    node_groups,
    refusals,
    scale_ups,
    verdict_of,
)
from gpuscale.ops.doctor.snapshot import Snapshot

NODE_AUTOSCALER_CHECKS = Checks(CAPACITY, including=(CLUSTER_AUTOSCALER_CHECKS, KARPENTER_CHECKS))
BUFFER_WITHOUT_NODES = NODE_AUTOSCALER_CHECKS.add(
    "buffer-without-nodes",
    Severity.WARNING,
    "A CapacityBuffer that keeps no room free: it is not ready, or no node autoscaler sees to it.",
    "Do what its condition says; without one, switch buffers on in the node autoscaler.",
)
_UNSEEN_MS = 300_000


def node_autoscaler_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps node autoscalers from adding the nodes that pods wait for, as they say themselves."""
    yield from cluster_autoscaler_findings(snapshot)
    yield from karpenter_findings(snapshot)
    yield from _growing(snapshot)
    yield from _buffers(snapshot)


def _buffers(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield the CapacityBuffers that nothing is kept free for.

    Source: cluster-autoscaler apis/capacitybuffer/autoscaling.x-k8s.io/v1beta1; both autoscalers leave them
        alone unless they are told to see to them.
    """
    for body in snapshot.all("capacitybuffers"):
        ready = facts.condition(body, "ReadyForProvisioning")
        created_ms = body.child("metadata").time_ms("creationTimestamp") or snapshot.now_ms
        is_unseen = not ready and snapshot.now_ms - created_ms > _UNSEEN_MS
        if ready != "False" and not is_unseen:
            continue
        said = next(false_conditions(body), "") if ready else "no node autoscaler has looked at it"
        say = "Do what its condition says."
        if is_unseen:
            say = (
                "Switch them on: Cluster Autoscaler's --capacity-buffer-controller-enabled and "
                "--capacity-buffer-pod-injection-enabled, or Karpenter's feature gate CapacityBuffer."
            )
        yield BUFFER_WITHOUT_NODES.found(
            f"capacitybuffer/{facts.full_name(body)}",
            f"It keeps no room free: {said}.",
            f"ReadyForProvisioning: {ready or 'not there'}",
            Fix(
                say,
                f"kubectl describe capacitybuffer -n {facts.namespace(body)} {facts.name(body)}",
            ),
        )


def _growing(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield Cluster Autoscaler's groups that grow for pods that wait, by its events or by its status."""
    by_group: dict[str, list[Fields]] = {}
    for pod in facts.waiting_pods(snapshot):
        if (node := scale_ups(snapshot).get(facts.full_name(pod))) is not None:
            by_group.setdefault(node.name, []).append(pod)
    for name, pods in by_group.items():
        first = facts.full_name(pods[0])
        age_s = (snapshot.now_ms - scale_ups(snapshot)[first].since_ms) // 1000
        yield NODE_ON_ITS_WAY.found(
            f"pod/{first}",
            f"Cluster Autoscaler adds nodes to group {name} for {counted(len(pods), 'pod')} since "
            f"{age_s} s.",
            facts.why_waiting(pods[0]),
            Fix(NODE_ON_ITS_WAY.fix, STATUS_COMMAND),
        )
    if by_group:
        return
    waiting = [
        pod
        for pod in facts.waiting_pods(snapshot)
        if facts.full_name(pod) not in refusals(snapshot)
    ]
    for group in node_groups(snapshot) if waiting else ():
        if group.scale_up == "InProgress":
            yield NODE_ON_ITS_WAY.found(
                f"configmap/kube-system/cluster-autoscaler-status/{group.name}",
                f"Cluster Autoscaler adds nodes to group {group.name}, to {group.target} of {group.most}.",
                f"scaleUp: InProgress since {group.since}; {facts.full_name(waiting[0])}: "
                f"{facts.why_waiting(waiting[0])}",
                Fix(NODE_ON_ITS_WAY.fix, STATUS_COMMAND),
            )


@once
def told(snapshot: Snapshot) -> frozenset[str]:
    """Return the pending pods for which it is known why no node comes, or which one does."""
    known = (
        facts.full_name(pod)
        for pod in facts.waiting_pods(snapshot)
        if awaits_claim(snapshot, pod)
        or verdict_of(snapshot, pod).outlook in (Outlook.NEVER, Outlook.LATER)
    )
    return frozenset({*karpenters_words(snapshot), *refusals(snapshot), *known})

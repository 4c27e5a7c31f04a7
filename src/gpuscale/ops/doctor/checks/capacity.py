"""Capacity for replicas: quotas, pods that wait for GPUs, node autoscalers."""

from collections.abc import Iterator, Sequence

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import gpu_kind
from gpuscale.base.quantity import Quantity
from gpuscale.base.words import counted
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.node_autoscalers import (
    NODE_AUTOSCALER_CHECKS,
    node_autoscaler_findings,
    told,
)
from gpuscale.ops.doctor.checks.nodes import kept_off_by
from gpuscale.ops.doctor.checks.workload_groups import pods_in_parts
from gpuscale.ops.doctor.checks.workload_placement import explained
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import CAPACITY, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.node_pools import MAX_WAIT_MS, adds_nodes, may_come, verdict_of
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

_CHECKS = Checks(CAPACITY, including=(NODE_AUTOSCALER_CHECKS,))
QUOTA_FULL = _CHECKS.add(
    "quota-full",
    Severity.ERROR,
    "A ResourceQuota whose GPUs are all used, and more are wanted.",
    "Raise it, or lower maxReplicas.",
)
NO_NODE_AUTOSCALER = _CHECKS.add(
    "no-node-autoscaler",
    Severity.ERROR,
    "Pods wait for GPUs, and nothing adds nodes.",
    "Switch on the pool's autoscaling, or add nodes; see `nodePool`.",
)
PODS_WAIT_LONG = _CHECKS.add(
    "pods-wait-long",
    Severity.WARNING,
    "Pods that have waited for GPUs for over 15 minutes.",
    "See what the node autoscaler says: no stock, the pool's maximum, or the quota of the cloud.",
)

_RENDER = "gpuscale render values.yaml"


def capacity_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps HPAs' replicas from getting GPUs."""
    yield from _quotas(snapshot)
    yield from _waiting(snapshot)
    yield from node_autoscaler_findings(snapshot)


def _quotas(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for quota in snapshot.all("resourcequotas"):
        hard = quota.child("status").quantities("hard") or quota.child("spec").quantities("hard")
        used = quota.child("status").quantities("used")
        for key, most in hard.items():
            resource = key.removeprefix("requests.").removeprefix("limits.")  # the latter is HAMi's
            if gpu_kind(resource) is not None:
                room = (_whole(most), _whole(used.get(key)))
                yield from _quota(snapshot, quota, key, resource, room)


def _whole(amount: Quantity | None) -> int:
    return 0 if amount is None else amount.nano // 1_000_000_000


def _quota(
    snapshot: Snapshot, quota: Fields, key: str, resource: str, room: tuple[int, int]
) -> Iterator[ClusterFinding]:
    (hard, used), namespace = room, facts.namespace(quota)
    look = _wanting(snapshot, namespace)
    if used < hard or look is None:
        return
    body, status = facts.workload_of(snapshot, look), fields_of(dict(look.body)).child("status")
    each = 0 if body is None else facts.limits_of(facts.template_of(body)).get(resource, 0)
    if not each:
        return
    more = (status.integer("desiredReplicas") or 0) - (status.integer("currentReplicas") or 0)
    most = used + more * each
    yield QUOTA_FULL.found(
        f"resourcequota/{facts.full_name(quota)}",
        f"All {hard} {resource} of the quota are used, and {look.about} wants more.",
        f"{key}: {used} of {hard} used",
        Fix(
            f"Raise it to {most}, or lower maxReplicas.",
            f"kubectl patch resourcequota -n {namespace} {facts.name(quota)} "
            f"""--type=merge -p '{{"spec":{{"hard":{{"{key}":"{most}"}}}}}}'""",
        ),
    )


@once
def _wanting(snapshot: Snapshot, namespace: str) -> HpaLook | None:
    """Return the first HPA of a namespace that wants more replicas than exist."""
    for look in facts.hpas_by_namespace(snapshot).get(namespace, ()):
        status = fields_of(dict(look.body)).child("status")
        if (status.integer("desiredReplicas") or 0) > (status.integer("currentReplicas") or 0):
            return look
    return None


def _waiting(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    nodes = facts.gpu_nodes(snapshot)
    # More nodes would not help a pod that taints, a selector or a volume keeps off; that is
    # reported there.
    waiting = [
        pod
        for pod in facts.waiting_pods(snapshot)
        if not (nodes and not may_come(snapshot, pod) and kept_off_by(snapshot, facts.spec_of(pod)))
        and facts.full_name(pod) not in explained(snapshot)
        and facts.full_name(pod) not in pods_in_parts(snapshot)
    ]
    if not waiting or (not nodes and not adds_nodes(snapshot)):
        return  # No nodes and no node autoscaler: another check reports that.
    if not adds_nodes(snapshot):
        if not snapshot.hides("autoscaler-status"):
            yield _alone(waiting)
        return
    long = [
        pod
        for pod in waiting
        if snapshot.now_ms - _since_ms(pod) > MAX_WAIT_MS
        and facts.full_name(pod) not in told(snapshot)
    ]
    if long:
        verdict = verdict_of(snapshot, long[0])
        pools = ", ".join(verdict.pools)
        named = f"; by what is known, {verdict.outlook.value}"
        named += f"; NodePools that may take it: {pools}" if pools else ""
        yield PODS_WAIT_LONG.found(
            f"pod/{facts.full_name(long[0])}",
            f"Waited for GPUs for over 15 minutes: {counted(len(long), 'pod')}.",
            f"{facts.why_waiting(long[0])}{named}",
            Fix(
                PODS_WAIT_LONG.fix,
                f"kubectl describe pod -n {facts.namespace(long[0])} {facts.name(long[0])}",
            ),
        )


def _alone(waiting: Sequence[Fields]) -> ClusterFinding:
    return NO_NODE_AUTOSCALER.found(
        f"pod/{facts.full_name(waiting[0])}",
        f"Nothing adds nodes, and {counted(len(waiting), 'pod')} can't start for want of GPUs.",
        f"{facts.why_waiting(waiting[0])}; neither ConfigMap kube-system/cluster-autoscaler-status "
        "nor a Karpenter NodePool",
        Fix(NO_NODE_AUTOSCALER.fix, _RENDER),
    )


def _since_ms(pod: Fields) -> int:
    return pod.child("metadata").time_ms("creationTimestamp") or 0


JUDGE = ClusterJudge("capacity", _CHECKS, capacity_findings)

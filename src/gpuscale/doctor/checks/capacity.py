"""Room for the replicas: quotas, pods that wait for GPUs, and who adds nodes.

Source: kubernetes/autoscaler cluster-autoscaler clusterstate/utils/status.go (status ConfigMap, as YAML from
    1.30 and as text before) and core/scaleup (event NotTriggerScaleUp); karpenter.sh/v1 NodePool.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from gpuscale.core.findings import Checks, Fix, Severity
from gpuscale.core.quantity import Quantity
from gpuscale.core.words import counted
from gpuscale.doctor import facts
from gpuscale.doctor.checks.nodes import adds_nodes, kept_off_by
from gpuscale.doctor.checks.workload.placement import explained
from gpuscale.doctor.judges import CAPACITY, ClusterFinding, ClusterJudge
from gpuscale.doctor.snapshot import HpaLook, Snapshot
from gpuscale.kube.reading import fields_of
from gpuscale.objects.fields import Fields
from gpuscale.objects.gpu_resources import gpu_kind
from gpuscale.providers import BUILT_IN

_TEMPLATE_FIXES = [(each.name.upper(), each.template_fix) for each in BUILT_IN if each.template_fix]
_CHECKS = Checks(CAPACITY)
QUOTA_FULL = _CHECKS.add(
    "quota-full",
    Severity.ERROR,
    "A ResourceQuota whose GPUs are all used, and more are wanted.",
    "Raise it, or lower maxReplicas.",
)
QUOTA_BELOW_MAX = _CHECKS.add(
    "quota-below-max",
    Severity.WARNING,
    "A ResourceQuota with fewer GPUs than maxReplicas take.",
    "Raise it, or lower maxReplicas.",
)
NO_NODE_AUTOSCALER = _CHECKS.add(
    "no-node-autoscaler",
    Severity.ERROR,
    "Pods wait for GPUs, and nothing adds nodes.",
    "Switch on the pool's autoscaling, or add nodes; see `nodePool`.",
)
TEMPLATE_WITHOUT_GPU = _CHECKS.add(
    "template-without-gpu",
    Severity.ERROR,
    "A node autoscaler that knows of no GPU in its pools.",
    "Tell it what a node of the pool would have. "
    + "".join(f"{name}: {fix.what}; " for name, fix in _TEMPLATE_FIXES)
    + "others: a pool of a GPU type, with the provider's label.",
)
AUTOSCALER_UNHEALTHY = _CHECKS.add(
    "autoscaler-unhealthy",
    Severity.WARNING,
    "Cluster Autoscaler says that it is not healthy.",
    "See which pool it is, and whether the cloud has stock and quota.",
)
AUTOSCALER_STOPPED = _CHECKS.add(
    "autoscaler-stopped",
    Severity.ERROR,
    "Cluster Autoscaler has written no status for 10 minutes.",
    "See whether it runs, and what it says.",
)
NODE_POOL_LIMIT = _CHECKS.add(
    "node-pool-limit",
    Severity.ERROR,
    "A Karpenter NodePool that is at its limit of GPUs.",
    "Raise the limit.",
)
PODS_WAIT_LONG = _CHECKS.add(
    "pods-wait-long",
    Severity.WARNING,
    "Pods that have waited for GPUs for over 15 minutes.",
    "See what the node autoscaler says: no stock, the pool's maximum, or the quota of the cloud.",
)

MAX_WAIT_MS = 900_000
"""Cluster Autoscaler's --max-node-provision-time; an A100 node on AKS takes about 14 minutes."""
MAX_STATUS_AGE_MS = 600_000
"""Cluster Autoscaler writes with every turn, and by its --max-inactivity counts as dead after 10 minutes."""
_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
_NO_GPU = "Insufficient nvidia.com/gpu"
_RENDER = "gpuscale render values.yaml"


def capacity_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps replicas from getting GPUs."""
    yield from _quotas(snapshot)
    yield from _waiting(snapshot)
    yield from _autoscaler_status(snapshot)
    yield from _node_pools(snapshot)


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
    hard, used = room
    looks = [look for look in snapshot.hpas if look.namespace == facts.namespace(quota)]
    at_most = sum(look.hpa.max_replicas * _per_pod(snapshot, look, resource) for look in looks)
    if at_most <= hard:
        return
    about, evidence = f"resourcequota/{facts.full_name(quota)}", f"{key}: {used} of {hard} used"
    fix = Fix(
        f"Raise it to {at_most}, or lower maxReplicas.",
        f"kubectl patch resourcequota -n {facts.namespace(quota)} {facts.name(quota)} "
        f"""--type=merge -p '{{"spec":{{"hard":{{"{key}":"{at_most}"}}}}}}'""",
    )
    wanting = [look for look in looks if _wants_more(look)]
    if used >= hard and wanting:
        what = f"All {hard} {resource} of the quota are used, and {wanting[0].about} wants more."
        yield QUOTA_FULL.found(about, what, evidence, fix)
    else:
        what = f"The quota has {hard} {resource}, and the HPAs at maxReplicas take {at_most}."
        yield QUOTA_BELOW_MAX.found(about, what, evidence, fix)


def _per_pod(snapshot: Snapshot, look: HpaLook, resource: str) -> int:
    workload = facts.workload_of(snapshot, look)
    return 0 if workload is None else facts.limits_of(facts.template_of(workload)).get(resource, 0)


def _wants_more(look: HpaLook) -> bool:
    status = fields_of(dict(look.body)).child("status")
    return (status.integer("desiredReplicas") or 0) > (status.integer("currentReplicas") or 0)


def _waiting(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    nodes = facts.gpu_nodes(snapshot)
    # More nodes would not help a pod that taints, a selector or a volume keeps off; it is reported there.
    waiting = [
        pod
        for pod in facts.waiting_pods(snapshot)
        if not (nodes and kept_off_by(snapshot, facts.spec_of(pod), nodes))
        and facts.full_name(pod) not in explained(snapshot)
    ]
    if not waiting or (not nodes and not adds_nodes(snapshot)):
        return  # Without nodes and a node autoscaler, that is reported already.
    if not adds_nodes(snapshot):
        if not snapshot.hides("autoscaler-status"):
            yield _alone(waiting)
        return
    refused = _refused(snapshot)
    if refused:
        yield _template(snapshot, refused)
        return
    long = [pod for pod in waiting if snapshot.now_ms - _since_ms(pod) > MAX_WAIT_MS]
    if long:
        yield PODS_WAIT_LONG.found(
            f"pod/{facts.full_name(long[0])}",
            f"Waited for GPUs for over 15 minutes: {counted(len(long), 'pod')}.",
            facts.why_waiting(long[0]),
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


def _refused(snapshot: Snapshot) -> Fields | None:
    """Return an event in which Cluster Autoscaler says that no pool has the GPU."""
    waiting = {facts.full_name(pod) for pod in facts.waiting_pods(snapshot)}
    for event in snapshot.all("events"):
        about = facts.service_fields(event.child("involvedObject"))
        if _NO_GPU in event.text("message") and facts.full_name(about) in waiting:
            return event
    return None


def _template(snapshot: Snapshot, event: Fields) -> ClusterFinding:
    about = facts.service_fields(event.child("involvedObject"))
    nodes = len(facts.gpu_nodes(snapshot))
    return TEMPLATE_WITHOUT_GPU.found(
        f"pod/{facts.full_name(about)}",
        "Cluster Autoscaler adds no node for it, as it knows of no GPU in any pool's template.",
        f"{event.text('message')}; {nodes} GPU nodes",
        Fix(
            TEMPLATE_WITHOUT_GPU.fix,
            "; ".join(fix.command for _, fix in _TEMPLATE_FIXES),
        ),
    )


def _since_ms(pod: Fields) -> int:
    return pod.child("metadata").time_ms("creationTimestamp") or 0


def _autoscaler_status(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for body in snapshot.all("autoscaler-status"):
        yield from _silence(snapshot, body)
        text = body.child("data").text("status")
        lines = [line.strip() for line in text.splitlines()]
        ill = [
            line
            for line in lines
            if line.lower().startswith(("health:", "status:", "scaleup:"))
            and any(word in line for word in ("Unhealthy", "Backoff"))
        ]
        if ill:
            yield AUTOSCALER_UNHEALTHY.found(
                f"configmap/{facts.full_name(body)}",
                "Cluster Autoscaler says that it is not healthy, or waits after a failure.",
                "; ".join(ill[:3]),
                Fix(
                    AUTOSCALER_UNHEALTHY.fix,
                    f"kubectl get configmap -n {facts.namespace(body)} {facts.name(body)} -o yaml",
                ),
            )


def _silence(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    text = body.child("metadata").labels("annotations").get(_UPDATED, "")
    written_ms = _go_time_ms(text)
    if written_ms is not None and snapshot.now_ms - written_ms > MAX_STATUS_AGE_MS:
        yield AUTOSCALER_STOPPED.found(
            f"configmap/{facts.full_name(body)}",
            f"Cluster Autoscaler has written no status for "
            f"{(snapshot.now_ms - written_ms) // 60_000} minutes.",
            f"{_UPDATED}: {text}",
            Fix(
                AUTOSCALER_STOPPED.fix,
                "kubectl get pods -n kube-system -l app=cluster-autoscaler",
            ),
        )


def _go_time_ms(text: str) -> int | None:
    """Return the time of a text such as `2026-01-02 03:04:05.678 +0000 UTC`; None of another."""
    found = re.match(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\S* ([+-]\d{4})", text)
    if found is None:
        return None
    try:
        moment = datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def _node_pools(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    waiting = facts.waiting_pods(snapshot)
    for pool in snapshot.all("nodepools"):
        limits = pool.child("spec").quantities("limits")
        has = pool.child("status").quantities("resources")
        for key, most in limits.items():
            if not waiting or not facts.gpus({key: 1}) or _whole(has.get(key)) < _whole(most):
                continue
            more = _whole(most) + len(waiting)
            yield NODE_POOL_LIMIT.found(
                f"nodepool/{facts.name(pool)}",
                f"Its limit of {_whole(most)} {key} is reached; {counted(len(waiting), 'pod')} can't start.",
                f"{facts.full_name(waiting[0])}: {facts.why_waiting(waiting[0])}",
                Fix(
                    NODE_POOL_LIMIT.fix,
                    f"kubectl patch nodepool {facts.name(pool)} --type=merge "
                    f"""-p '{{"spec":{{"limits":{{"{key}":"{more}"}}}}}}'""",
                ),
            )


JUDGE = ClusterJudge("capacity", _CHECKS, capacity_findings)

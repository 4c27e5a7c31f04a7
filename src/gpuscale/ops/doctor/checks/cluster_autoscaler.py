"""Cluster Autoscaler's own reasons for not adding a node for pending pods.

Source: cluster-autoscaler core/scaleup (event NotTriggerScaleUp), core/static_autoscaler.go (priority
    cut-off), clusterstate/api (status), clusterstate/backoff (5 to 30 minutes).
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import gpu_kind
from gpuscale.base.objects.taints import Taint, moment_of
from gpuscale.hpa.cluster.verdicts import DenialKind, Reason, Why, denial_in
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.nodes import tolerate
from gpuscale.ops.doctor.checks.workload_placement import explained
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, key_of, subjects
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import CAPACITY, ClusterFinding
from gpuscale.ops.doctor.node_pools import (
    PRIORITY_FLAG,
    NodeGroupStatus,
    group_failures,
    node_groups,
    priority_cutoff,
    refusals,
    verdict_of,
)
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.providers import BUILT_IN

_TEMPLATE_FIXES = [(each.name.upper(), each.template_fix) for each in BUILT_IN if each.template_fix]
CLUSTER_AUTOSCALER_CHECKS = Checks(CAPACITY)
TEMPLATE_WITHOUT_GPU = CLUSTER_AUTOSCALER_CHECKS.add(
    "template-without-gpu",
    Severity.ERROR,
    "A node autoscaler that knows of no GPU in its pools.",
    "Tell it what a node of the pool would have. "
    + "".join(f"{name}: {fix.what}; " for name, fix in _TEMPLATE_FIXES)
    + "others: a pool of a GPU type, with the provider's label.",
)
NODE_GROUP_AT_MAX = CLUSTER_AUTOSCALER_CHECKS.add(
    "node-group-at-max",
    Severity.ERROR,
    "Pods wait, and the node group that fits is at its maximum, as Cluster Autoscaler says.",
    "Raise the group's maximum, as far as the cloud's quota goes, or lower maxReplicas.",
)
AUTOSCALER_LIMIT = CLUSTER_AUTOSCALER_CHECKS.add(
    "autoscaler-limit",
    Severity.ERROR,
    "Pods wait, and Cluster Autoscaler's limit on the whole cluster is reached.",
    "Raise the limit in the autoscaler's flags, or lower maxReplicas.",
)
POOL_TAINT_NOT_TOLERATED = CLUSTER_AUTOSCALER_CHECKS.add(
    "pool-taint-not-tolerated",
    Severity.ERROR,
    "Pods that Cluster Autoscaler adds no node for, as they don't tolerate the taint of a pool.",
    "If it is the taint of the pool that they are meant for, give them a toleration.",
)
PRIORITY_TOO_LOW = CLUSTER_AUTOSCALER_CHECKS.add(
    "priority-too-low",
    Severity.WARNING,
    "Pods of a priority for which Cluster Autoscaler adds no nodes.",
    "Give them a PriorityClass at or above the cut-off.",
)
NODE_GROUP_REFUSES = CLUSTER_AUTOSCALER_CHECKS.add(
    "node-group-refuses",
    Severity.ERROR,
    "Pods that Cluster Autoscaler adds no node for, by its own words, where nothing else says why.",
    "See what the pods ask for beside what the nodes of each group have.",
)
AUTOSCALER_UNHEALTHY = CLUSTER_AUTOSCALER_CHECKS.add(
    "autoscaler-unhealthy",
    Severity.WARNING,
    "Cluster Autoscaler says that it is not healthy, or that a node group waits after a failure.",
    "See which pool it is, and whether the cloud has stock and quota.",
)
AUTOSCALER_STOPPED = CLUSTER_AUTOSCALER_CHECKS.add(
    "autoscaler-stopped",
    Severity.ERROR,
    "Cluster Autoscaler has written no status for 10 minutes.",
    "See whether it runs, and what it says.",
)

_MAX_STATUS_AGE_MS = 600_000
"""Cluster Autoscaler writes with every turn, and by its --max-inactivity counts as dead after 10 minutes."""
_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
STATUS_COMMAND = "kubectl get configmap -n kube-system cluster-autoscaler-status -o yaml"
_CLUSTER_FLAGS = {
    "nodes": "--max-nodes-total",
    "cpu": "--cores-total",
    "memory": "--memory-total",
}
_FIRST_BACKOFF_MS, _LONGEST_BACKOFF_MS = 300_000, 1_800_000
_AWS_PLACEHOLDER = "placeholder-cannot-be-fulfilled"
_POOL_KEYS = (
    *("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "agentpool"),
    *("kubernetes.azure.com/agentpool", "cloud.google.com/gke-nodepool"),
)
_SAYS = {
    Why.ZONE: "Its volume is bound to a zone: add a node group in that zone alone, or move the volume.",
    Why.TAINT: POOL_TAINT_NOT_TOLERATED.fix,
    Why.MAX_PODS: "Raise the maximum of pods a node, or run fewer DaemonSets.",
    Why.TOO_LARGE: "Ask for less a pod, or add a group of larger nodes; DaemonSets take their part of each.",
    Why.LABEL: "Correct the node selector or affinity, or give a group's nodes the label.",
}
_OF_GPUS = re.compile(r"(?i)gpu|nvidia|accelerator")


def cluster_autoscaler_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps Cluster Autoscaler from adding the nodes that pods wait for."""
    for body in snapshot.all("autoscaler-status"):
        yield from _silence(snapshot, body)
        yield from _health(snapshot, body)
    if not snapshot.all("autoscaler-status"):
        return
    reported: set[tuple[object, ...]] = set()
    for pod in facts.waiting_pods(snapshot):
        said = refusals(snapshot).get(facts.full_name(pod), ())
        key = key_of(snapshot, pod)
        if (key, said) not in reported and not verdict_of(snapshot, pod).pools:
            reported.add((key, said))
            yield from _refused(snapshot, key, pod, said)


def _refused(
    snapshot: Snapshot, key: Key, pod: Fields, said: Sequence[Reason]
) -> Iterator[ClusterFinding]:
    """Yield the one reason of Cluster Autoscaler's that is in the way of a pod."""
    by_why = {each.why: each for each in reversed(said)}
    where = f"pod/{facts.full_name(pod)}"
    evidence = ", ".join(each.text for each in said)
    if any(each.why is Why.PRIORITY for each in verdict_of(snapshot, pod).reasons):
        cutoff = priority_cutoff(snapshot)
        yield PRIORITY_TOO_LOW.found(
            about(key),
            f"Its priority is {pod.child('spec').integer('priority')}, and Cluster Autoscaler adds no nodes "
            f"for pods below {cutoff}.",
            f"{facts.full_name(pod)}: {facts.why_waiting(pod)}; {PRIORITY_FLAG}",
            Fix(f"Give it a PriorityClass of {cutoff} or more.", "kubectl get priorityclasses"),
        )
    elif Why.AT_MAX in by_why and (full := _full_groups(snapshot)) is not None:
        named = ", ".join(f"{each.name} ({each.target} of {each.most})" for each in full)
        yield NODE_GROUP_AT_MAX.found(
            where,
            f"Cluster Autoscaler adds no node for it: {named or 'the node group that fits'} is at its "
            "maximum.",
            evidence,
            Fix(NODE_GROUP_AT_MAX.fix, STATUS_COMMAND),
        )
    elif (limit := by_why.get(Why.CLUSTER_LIMIT)) is not None:
        flags = " and ".join(_CLUSTER_FLAGS.get(each, each) for each in limit.key.split(", "))
        yield AUTOSCALER_LIMIT.found(
            where,
            f"Cluster Autoscaler adds no node for it: the cluster has as much {limit.key} as it may add.",
            evidence,
            Fix(f"Raise {flags} of the autoscaler, or lower maxReplicas.", STATUS_COMMAND),
        )
    elif Why.BACKOFF not in by_why:
        taint = by_why.get(Why.TAINT)
        if taint is not None and _OF_GPUS.search(taint.has[0]) and moment_of(taint.key) is None:
            yield _tainted(snapshot, key, taint, evidence)
        elif any(
            each.why is Why.TOO_LARGE
            and gpu_kind(each.key)
            and not _has_smaller(snapshot, each.key, pod)
            for each in said
        ):
            yield TEMPLATE_WITHOUT_GPU.found(
                where,
                "Cluster Autoscaler adds no node for it, as it knows of no pool whose nodes have that many "
                "GPUs.",
                f"{evidence}; {len(facts.gpu_nodes(snapshot))} GPU nodes",
                Fix(TEMPLATE_WITHOUT_GPU.fix, _template_command(snapshot)),
            )
        elif said and facts.full_name(pod) not in explained(snapshot):
            say = next((_SAYS[each.why] for each in said if each.why in _SAYS), "")
            yield NODE_GROUP_REFUSES.found(
                about(key),
                f"Cluster Autoscaler adds no node for it: {evidence}.",
                f"pod {facts.full_name(pod)}: {facts.why_waiting(pod)}",
                Fix(say or NODE_GROUP_REFUSES.fix, STATUS_COMMAND),
            )


@once
def _full_groups(snapshot: Snapshot) -> Sequence[NodeGroupStatus] | None:
    """Return the groups at their maximum that may have GPUs; None if all that are full have none.

    A group is known by its nodes: the label of their pool is a part of the group's name.
    """
    has_gpus: dict[str, bool] = {}
    for node in snapshot.all("nodes"):
        for key in _POOL_KEYS:
            if (pool := facts.labels(node).get(key, "")) != "":
                is_gpu = facts.name(node) in facts.gpu_node_names(snapshot)
                has_gpus[pool] = has_gpus.get(pool, False) or is_gpu
    without = [f"-{pool}-" for pool, has in has_gpus.items() if not has]
    full = [each for each in node_groups(snapshot) if each.is_full]
    meant = [
        each
        for each in full
        if not any(pool in f"-{each.name.rpartition('/')[2]}-" for pool in without)
    ]
    return None if full and not meant else meant


def _has_smaller(snapshot: Snapshot, resource: str, pod: Fields) -> bool:
    """Return whether nodes have some of a resource, and each less than a pod asks for."""
    most = _most_of(snapshot, resource)
    return 0 < most < facts.limits_of(facts.spec_of(pod)).get(resource, 0)


@once
def _most_of(snapshot: Snapshot, resource: str) -> int:
    nodes = snapshot.all("nodes")
    return max((facts.amounts(each).allocatable.get(resource, 0) for each in nodes), default=0)


def _tainted(snapshot: Snapshot, key: Key, reason: Reason, evidence: str) -> ClusterFinding:
    name, _, value = reason.has[0].partition("=")
    body = subjects(snapshot).get(key)
    # The message has no effect of the taint: the toleration is for any.
    fix = Fix(POOL_TAINT_NOT_TOLERATED.fix)
    if body is not None:
        fix = Fix(
            f"Give its pods a toleration for {reason.has[0]}, if they are meant for that pool.",
            tolerate(key[0].lower(), body, Taint(name, value, "")).command,
        )
    return POOL_TAINT_NOT_TOLERATED.found(
        about(key),
        f"Cluster Autoscaler adds no node for it: a pool gives its nodes the taint {reason.has[0]}, which it "
        "does not tolerate.",
        evidence,
        fix,
    )


def _template_command(snapshot: Snapshot) -> str:
    """Return how the provider of the nodes tells it; a look where nothing shows whose they are."""
    for node in snapshot.all("nodes"):
        identity = node.child("spec").text("providerID")
        for each in BUILT_IN:
            if each.template_fix and each.runs(identity, facts.labels(node)):
                return each.template_fix.command
    return STATUS_COMMAND


def _health(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    where = f"configmap/{facts.full_name(body)}"
    command = f"kubectl get configmap -n {facts.namespace(body)} {facts.name(body)} -o yaml"
    text = body.child("data").text("status")
    waiting = [each for each in node_groups(snapshot) if each.scale_up == "Backoff"]
    failed = group_failures(snapshot)
    for group in waiting:
        message = group.message or failed.get(group.name, "")
        said = ": ".join(filter(None, (group.code, message.rstrip("."))))
        yield AUTOSCALER_UNHEALTHY.found(
            where,
            f"Node group {group.name} ({group.target} of {group.most}) waits after a failed scale-up"
            f"{f': {said}' if said else ''}.",
            f"scaleUp: Backoff{_until(group)}",
            _after_denial(group.name, message, group.code, command),
        )
    known = {each.name for each in waiting}
    for name, message in failed.items() if facts.waiting_pods(snapshot) else ():
        if name not in known:
            yield AUTOSCALER_UNHEALTHY.found(
                where,
                f"Cluster Autoscaler could not grow node group {name}: {message.rstrip('.')}.",
                "event on the status, of the last 15 minutes",
                _after_denial(name, message, "", command),
            )
    ill = [
        line.strip()
        for line in text.splitlines()
        if line.strip().lower().startswith(("health:", "status:", "scaleup:"))
        and any(word in line for word in ("Unhealthy", "Backoff"))
    ]
    if ill and not waiting:
        yield AUTOSCALER_UNHEALTHY.found(
            where,
            "Cluster Autoscaler says that it is not healthy, or waits after a failure.",
            "; ".join(ill[:3]),
            Fix(AUTOSCALER_UNHEALTHY.fix, command),
        )


def _after_denial(group: str, message: str, code: str, command: str) -> Fix:
    """Return what helps a group that did not get its machines."""
    if "failed to register" in message:
        return Fix(
            "See the console of the group's machines: image, user data, network, and the right to join.",
            command,
        )
    denial = denial_in(message, code)
    is_known = denial.kind is not DenialKind.UNKNOWN
    if code == _AWS_PLACEHOLDER:
        command = f"aws autoscaling describe-scaling-activities --auto-scaling-group-name {group}"
    return Fix(denial.kind.value if is_known else AUTOSCALER_UNHEALTHY.fix, command)


def _until(group: NodeGroupStatus) -> str:
    """Return since when and until when a group waits; empty if the status has no time."""
    try:
        since = datetime.fromisoformat(group.since)
    except ValueError:
        return "; it tries again after 5 to 30 minutes"
    since_ms = (since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp() * 1000
    first, longest = (
        f"{datetime.fromtimestamp((since_ms + wait_ms) / 1000, UTC):%H:%M}"
        for wait_ms in (_FIRST_BACKOFF_MS, _LONGEST_BACKOFF_MS)
    )
    return f" since {group.since}, until {first} UTC, or {longest} after failures in a row"


def _silence(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    text = body.child("metadata").labels("annotations").get(_UPDATED, "")
    written_ms = _go_time_ms(text)
    if written_ms is not None and snapshot.now_ms - written_ms > _MAX_STATUS_AGE_MS:
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

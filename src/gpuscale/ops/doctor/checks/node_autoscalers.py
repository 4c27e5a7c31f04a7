"""Node autoscalers' own reasons for not adding a node for pending pods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.taints import moment_of
from gpuscale.base.quantity import Quantity
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.nodes import tolerate
from gpuscale.ops.doctor.checks.workload_subjects import about, key_of
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import CAPACITY, ClusterFinding
from gpuscale.ops.doctor.node_pools import (
    AT_MAX,
    NodeGroupStatus,
    PoolRefusal,
    groups_of,
    karpenters_words,
    pools_with,
    refusals,
)
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.providers import BUILT_IN

_TEMPLATE_FIXES = [(each.name.upper(), each.template_fix) for each in BUILT_IN if each.template_fix]
NODE_AUTOSCALER_CHECKS = Checks(CAPACITY)
TEMPLATE_WITHOUT_GPU = NODE_AUTOSCALER_CHECKS.add(
    "template-without-gpu",
    Severity.ERROR,
    "A node autoscaler that knows of no GPU in its pools.",
    "Tell it what a node of the pool would have. "
    + "".join(f"{name}: {fix.what}; " for name, fix in _TEMPLATE_FIXES)
    + "others: a pool of a GPU type, with the provider's label.",
)
NODE_GROUP_AT_MAX = NODE_AUTOSCALER_CHECKS.add(
    "node-group-at-max",
    Severity.ERROR,
    "Pods wait, and the node group that fits is at its maximum, as Cluster Autoscaler says.",
    "Raise the group's maximum, as far as the cloud's quota goes, or lower maxReplicas.",
)
AUTOSCALER_UNHEALTHY = NODE_AUTOSCALER_CHECKS.add(
    "autoscaler-unhealthy",
    Severity.WARNING,
    "Cluster Autoscaler says that it is not healthy, or that a node group waits after a failure.",
    "See which pool it is, and whether the cloud has stock and quota.",
)
AUTOSCALER_STOPPED = NODE_AUTOSCALER_CHECKS.add(
    "autoscaler-stopped",
    Severity.ERROR,
    "Cluster Autoscaler has written no status for 10 minutes.",
    "See whether it runs, and what it says.",
)
NODE_POOL_LIMIT = NODE_AUTOSCALER_CHECKS.add(
    "node-pool-limit",
    Severity.ERROR,
    "A Karpenter NodePool that is at one of its limits while pods wait.",
    "Raise the limit, as far as the budget goes, or lower maxReplicas.",
)
NODE_POOL_NOT_READY = NODE_AUTOSCALER_CHECKS.add(
    "node-pool-not-ready",
    Severity.ERROR,
    "A Karpenter NodePool that makes no nodes, for a condition of its own or of its node class.",
    "Do what the condition says.",
)
NODE_POOL_REFUSES = NODE_AUTOSCALER_CHECKS.add(
    "node-pool-refuses",
    Severity.ERROR,
    "Pods that Karpenter makes no node for, by its own words for each NodePool.",
    "See what the pods ask for beside what the NodePool allows.",
)
NODE_CLAIM_FAILED = NODE_AUTOSCALER_CHECKS.add(
    "node-claim-failed",
    Severity.ERROR,
    "A node that Karpenter asked the cloud for and did not get, such as for want of stock.",
    "Allow other types, zones or capacity types in the NodePool, or get capacity or quota; Karpenter "
    "tries again by itself.",
)

_MAX_STATUS_AGE_MS = 600_000
"""Cluster Autoscaler writes with every turn, and by its --max-inactivity counts as dead after 10 minutes."""
_RECENT_MS = 900_000
_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
_NO_GPU = "Insufficient nvidia.com/gpu"


def node_autoscaler_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps node autoscalers from adding the nodes that pods wait for, as they say themselves."""
    yield from _statuses(snapshot)
    yield from _refused(snapshot)
    yield from _pools(snapshot)
    yield from _failed_claims(snapshot)
    yield from _words(snapshot)


@once
def told(snapshot: Snapshot) -> frozenset[str]:
    """Return the pending pods for which a node autoscaler states why no node comes."""
    return frozenset({*karpenters_words(snapshot), *refusals(snapshot)})


# Cluster Autoscaler


def _groups(snapshot: Snapshot) -> Sequence[NodeGroupStatus]:
    maps = snapshot.all("autoscaler-status")
    return [each for body in maps for each in groups_of(body.child("data").text("status"))]


def _refused(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield Cluster Autoscaler's reasons, once for each workload, whose pods get equal messages."""
    waiting = {facts.full_name(pod) for pod in facts.waiting_pods(snapshot)}
    said = {pod: message for pod, message in refusals(snapshot).items() if pod in waiting}
    for pod, message in said.items():
        if AT_MAX in message:
            full = [each for each in _groups(snapshot) if each.is_full]
            named = ", ".join(f"{each.name} ({each.target} of {each.most})" for each in full)
            yield NODE_GROUP_AT_MAX.found(
                f"pod/{pod}",
                f"Cluster Autoscaler adds no node for it: {named or 'the node group that fits'} is at its "
                "maximum.",
                message,
                Fix(
                    NODE_GROUP_AT_MAX.fix,
                    "kubectl get configmap -n kube-system cluster-autoscaler-status -o yaml",
                ),
            )
            return
    for pod, message in said.items():
        if _NO_GPU in message and "backoff" not in message and "limit" not in message:
            yield TEMPLATE_WITHOUT_GPU.found(
                f"pod/{pod}",
                "Cluster Autoscaler adds no node for it, as it knows of no pool whose nodes have that many "
                "GPUs.",
                f"{message}; {len(facts.gpu_nodes(snapshot))} GPU nodes",
                Fix(
                    TEMPLATE_WITHOUT_GPU.fix,
                    _template_command(snapshot),
                ),
            )
            return


def _template_command(snapshot: Snapshot) -> str:
    """Return how the provider of the nodes tells it; a look where nothing shows whose they are."""
    for node in snapshot.all("nodes"):
        identity = node.child("spec").text("providerID")
        for each in BUILT_IN:
            if each.template_fix and each.runs(identity, facts.labels(node)):
                return each.template_fix.command
    return "kubectl get configmap -n kube-system cluster-autoscaler-status -o yaml"


def _statuses(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for body in snapshot.all("autoscaler-status"):
        yield from _silence(snapshot, body)
        where = f"configmap/{facts.full_name(body)}"
        command = f"kubectl get configmap -n {facts.namespace(body)} {facts.name(body)} -o yaml"
        text = body.child("data").text("status")
        waiting = [each for each in groups_of(text) if each.scale_up == "Backoff"]
        for group in waiting:
            since = f" since {group.since}" if group.since else ""
            yield AUTOSCALER_UNHEALTHY.found(
                where,
                f"Node group {group.name} ({group.target} of {group.most}) waits after a failed scale-up"
                f"{f': {group.error}' if group.error else ''}.",
                f"scaleUp: Backoff{since}; it tries again after 5 to 30 minutes",
                Fix(AUTOSCALER_UNHEALTHY.fix, command),
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


# Karpenter


Labels = tuple[tuple[str, str], ...]


@once
def _waiting_by_choice(snapshot: Snapshot) -> Mapping[Labels, Sequence[Fields]]:
    """Return the pending pods, grouped by node selector."""
    found: dict[Labels, list[Fields]] = {}
    for pod in facts.waiting_pods(snapshot):
        found.setdefault(tuple(facts.spec_of(pod).node_selector.items()), []).append(pod)
    return found


@once
def _waiting_for(snapshot: Snapshot) -> Mapping[str, Sequence[Labels]]:
    """Return, for each NodePool, the node selectors of the pending pods it could serve, oldest first."""
    found: dict[str, list[Labels]] = {}
    for choice in _waiting_by_choice(snapshot):
        for pool in pools_with(snapshot, choice):
            found.setdefault(facts.name(pool), []).append(choice)
    return found


def _pools(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    waiting, pods = _waiting_for(snapshot), _waiting_by_choice(snapshot)
    for pool in snapshot.all("nodepools"):
        groups = [pods[choice] for choice in waiting.get(facts.name(pool), ())]
        if not groups:
            continue
        count, first = sum(map(len, groups)), groups[0][0]
        yield from _not_ready(snapshot, pool, count)
        for key, used, most in _reached(snapshot, pool):
            yield NODE_POOL_LIMIT.found(
                f"nodepool/{facts.name(pool)}",
                f"Its limit of {most} {key} leaves no room with {used} in use; {counted(count, 'pod')} "
                "can't start.",
                f"{facts.full_name(first)}: {facts.why_waiting(first)}",
                Fix(NODE_POOL_LIMIT.fix, f"kubectl get nodepool {facts.name(pool)} -o yaml"),
            )


def _reached(snapshot: Snapshot, pool: Fields) -> Iterator[tuple[str, Quantity, Quantity]]:
    """Yield a pool's limits that leave no room for the smallest node a pod needs: key, used, limit."""
    limits = pool.child("spec").quantities("limits")
    has = pool.child("status").quantities("resources")
    for key, most in limits.items():
        used = has.get(key, Quantity(0))
        choices = _waiting_for(snapshot).get(facts.name(pool), ())
        asked = min((_least_asked(snapshot, each, key) for each in choices), default=0)
        if used.nano >= most.nano or most.nano - used.nano < asked:
            yield key, used, most


@once
def _least_asked(snapshot: Snapshot, choice: Labels, key: str) -> int:
    return min(_asked(pod, key) for pod in _waiting_by_choice(snapshot)[choice])


def _asked(pod: Fields, key: str) -> int:
    containers = facts.spec_of(pod).containers
    if key == "nodes":
        return 1_000_000_000
    zero = Quantity(0)
    return sum(
        max(each.requests.get(key, zero).nano, each.limits.get(key, zero).nano)
        for each in containers
    )


def _not_ready(snapshot: Snapshot, pool: Fields, count: int) -> Iterator[ClusterFinding]:
    if facts.condition(pool, "Ready") != "False":
        return
    reference = pool.child("spec").child("template").child("spec").child("nodeClassRef")
    kind, name = reference.text("kind"), reference.text("name")
    body = snapshot.node_classes.get(f"{kind}/{name}")
    said = [*_false_conditions(pool)]
    if body is not None:
        said = [f"{kind} {name}: {each}" for each in _false_conditions(body)] + said
    yield NODE_POOL_NOT_READY.found(
        f"nodepool/{facts.name(pool)}",
        f"NodePool {facts.name(pool)} makes no nodes, and {counted(count, 'pod')} may wait for it: "
        f"{said[0] if said else 'it is not Ready'}.",
        "; ".join(said),
        Fix(NODE_POOL_NOT_READY.fix, f"kubectl describe {kind.lower()} {name}"),
    )


def _false_conditions(body: Fields) -> Iterator[str]:
    """Yield the messages of conditions that are False, Ready last as it only sums up the others."""
    listed = [
        each for each in body.child("status").items("conditions") if each.text("status") == "False"
    ]
    for each in sorted(listed, key=lambda one: one.text("type") == "Ready"):
        said = (each.text("type"), each.text("reason"), each.text("message"))
        yield ": ".join(dict.fromkeys(filter(None, said)))


def _failed_claims(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    claims = {facts.name(each): each for each in snapshot.all("nodeclaims")}
    failures: dict[str, tuple[str, str]] = {}
    for event in snapshot.all("claim-events"):
        at_ms = event.time_ms("lastTimestamp") or event.child("metadata").time_ms(
            "creationTimestamp"
        )
        if (
            snapshot.now_ms - (at_ms or 0) <= _RECENT_MS
            and event.text("reason") in _LAUNCH_FAILURES
        ):
            name = event.child("involvedObject").text("name")
            failures[name] = (event.text("reason"), event.text("message"))
    for name, claim in claims.items():
        if facts.condition(claim, "Launched") == "False":
            failures.setdefault(name, ("", next(_false_conditions(claim), "")))
    by_pool: dict[str, tuple[str, str, str]] = {}
    for name, (reason, message) in failures.items():
        claimed = facts.labels(claims[name]).get(facts.NODE_POOL, "") if name in claims else ""
        # A failed NodeClaim is deleted; what remains is its name, made of its pool's and five
        # letters.
        pool = claimed or name.rpartition("-")[0]
        if pool in _waiting_for(snapshot):
            by_pool[pool] = (name, reason, message)
    for pool, (name, reason, message) in by_pool.items():
        yield NODE_CLAIM_FAILED.found(
            f"nodepool/{pool}",
            f"The cloud gives no node for NodePool {pool}{f': {reason}' if reason else ''}.",
            f"NodeClaim {name}: {message}",
            Fix(NODE_CLAIM_FAILED.fix, f"kubectl describe nodepool {pool}; kubectl get nodeclaims"),
        )


_LAUNCH_FAILURES = (
    *("InsufficientCapacityError", "LaunchFailed", "NodeClassNotReady", "FailedLaunch"),
    *("InsufficientCapacity", "CreateError"),
)


def _words(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield Karpenter's reasons for each pending workload, with a fix for the pool."""
    limited = {
        name
        for pool in snapshot.all("nodepools")
        if (name := facts.name(pool)) in _waiting_for(snapshot)
        and (any(_reached(snapshot, pool)) or facts.condition(pool, "Ready") == "False")
    }
    reported: set[str] = set()
    for pod in facts.waiting_pods(snapshot):
        said = karpenters_words(snapshot).get(facts.full_name(pod), ())
        if not said:
            continue
        labels = tuple(facts.spec_of(pod).node_selector.items())
        fitting = _names_with(snapshot, labels)
        meant = [each for each in said if each.pool in fitting] or list(said)
        where = about(key_of(snapshot, pod))
        if where in reported or any(each.pool in limited for each in meant):
            continue
        reported.add(where)
        yield NODE_POOL_REFUSES.found(
            where,
            "Karpenter makes no node for it: "
            + "; ".join(
                f"NodePool {each.pool}: {each.why}" if each.pool else each.why for each in meant
            ),
            f"pod {facts.full_name(pod)}: {facts.why_waiting(pod)}",
            _fix(snapshot, pod, meant),
        )


@once
def _names_with(snapshot: Snapshot, labels: Labels) -> frozenset[str]:
    return frozenset(map(facts.name, pools_with(snapshot, labels)))


@once
def _pools_by_name(snapshot: Snapshot) -> Mapping[str, Fields]:
    return {facts.name(pool): pool for pool in snapshot.all("nodepools")}


def _fix(snapshot: Snapshot, pod: Fields, meant: Sequence[PoolRefusal]) -> Fix:
    pools = _pools_by_name(snapshot)
    first = meant[0]
    look = f"kubectl get nodepool {first.pool} -o yaml".replace("  ", " ")
    if len(meant) == 1 and "did not tolerate" in first.why and first.pool in pools:
        kind, namespace, name = key_of(snapshot, pod)
        body = facts.named(snapshot, kind, namespace, name)
        listed = pools[first.pool].child("spec").child("template").child("spec").items("taints")
        taint = next((each for each in map(read_taint, listed) if f"{each.key}" in first.why), None)
        if taint is not None and moment_of(taint.key) is None and body is not None:
            fix = tolerate(kind.lower(), body, taint)
            return Fix(
                f"{fix.say.removesuffix('.')}, which NodePool {first.pool} gives its nodes.",
                fix.command,
            )
    if "no instance type" in first.why:
        say = (
            f"No type that NodePool {first.pool} allows has all that a pod of it asks for: ask for less a "
            "pod, or allow larger types in its requirements."
        )
        return Fix(say, look)
    return Fix(NODE_POOL_REFUSES.fix, look)

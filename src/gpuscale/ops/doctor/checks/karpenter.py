"""Karpenter's own reasons for not adding a node for pending pods, and what its pools can't do.

Source: karpenter 1.15 pkg/controllers/provisioning, nodeclaim/lifecycle (Launched, Registered, Initialized;
    an unregistered machine is given up after 15 minutes), disruption (consolidateAfter).
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.nodes import read_taint
from gpuscale.base.objects.taints import moment_of
from gpuscale.base.quantity import Quantity
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import Outlook, Reason, Why, denial_in
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.nodes import tolerate
from gpuscale.ops.doctor.checks.workload_subjects import about, key_of
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import CAPACITY, ClusterFinding
from gpuscale.ops.doctor.node_pools import (
    DistinctSpec,
    facts_by_name,
    failed_claims,
    false_conditions,
    is_unready,
    karpenters_words,
    launched_claims,
    pools_with,
    scale_ups,
    verdict_for,
    verdict_of,
)
from gpuscale.ops.doctor.snapshot import Snapshot

KARPENTER_CHECKS = Checks(CAPACITY)
NODE_POOL_LIMIT = KARPENTER_CHECKS.add(
    "node-pool-limit",
    Severity.ERROR,
    "A Karpenter NodePool that is at one of its limits while pods wait.",
    "Raise the limit, as far as the budget goes, or lower maxReplicas.",
)
NODE_POOL_NOT_READY = KARPENTER_CHECKS.add(
    "node-pool-not-ready",
    Severity.ERROR,
    "A Karpenter NodePool that makes no nodes, for a condition of its own or of its node class.",
    "Do what the condition says.",
)
NODE_POOL_REFUSES = KARPENTER_CHECKS.add(
    "node-pool-refuses",
    Severity.ERROR,
    "Pods that Karpenter makes no node for, by its own words for each NodePool.",
    "See what the pods ask for beside what the NodePool allows.",
)
NODE_CLAIM_FAILED = KARPENTER_CHECKS.add(
    "node-claim-failed",
    Severity.ERROR,
    "A node that Karpenter asked the cloud for and did not get, such as for want of stock or quota.",
    "Allow other types, zones or capacity types in the NodePool, or get capacity or quota; Karpenter "
    "tries again by itself.",
)
NODE_NOT_REGISTERED = KARPENTER_CHECKS.add(
    "node-not-registered",
    Severity.ERROR,
    "A machine that runs and has not joined the cluster as a node for 5 minutes.",
    "See the machine's console: image, user data, network, and the right to join.",
)

NODE_NOT_INITIALIZED = KARPENTER_CHECKS.add(
    "node-not-initialized",
    Severity.WARNING,
    "A node of Karpenter's that joined, and that takes no pods after 10 minutes.",
    "See to what its condition Initialized names; Karpenter gives such a node up never.",
)
NODE_ON_ITS_WAY = KARPENTER_CHECKS.add(
    "node-on-its-way",
    Severity.NOTE,
    "Pods wait for a node that the cloud has started and that has not joined yet.",
    "Wait: a GPU node takes minutes to start, and more until its GPUs are known.",
)
CONSOLIDATION_TOO_FAST = KARPENTER_CHECKS.add(
    "consolidation-too-fast",
    Severity.WARNING,
    "A NodePool that moves pods to other nodes sooner than they have started.",
    "Raise consolidateAfter above the pods' start, or give the NodePool a budget.",
)

_NO_NODE = (Outlook.NEVER, Outlook.LATER)
_UNREGISTERED_MS = 300_000
_UNINITIALIZED_MS = 600_000
_SLOW_START_MS = 300_000
_LONGEST_START_MS = 3_600_000
"""A pod that was ready again later, and not for the first time."""
_OF_GPUS = re.compile(
    r"gpu|nvidia|accelerator|^[gp]\d\w*\.|^Standard_N|^a[2-4]-|^g[24]-|^ecs\.(ebm)?gn",
    re.IGNORECASE,
)
"""In names, labels and types of pools that have GPUs: EC2's families g and p, Azure's N, a2 to a4 and g2 of
Google, gn of Alibaba."""
_MOST_POOLS = 5
"""Named in one finding."""
Labels = tuple[tuple[str, str], ...]


def karpenter_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return what keeps Karpenter from adding the nodes that pods wait for."""
    yield from _pools(snapshot)
    yield from _failed_claims(snapshot)
    yield from _unregistered(snapshot)
    yield from _words(snapshot)
    yield from _coming(snapshot)
    yield from _consolidated(snapshot)


@once
def _waiting_by_choice(snapshot: Snapshot) -> Mapping[Labels, Sequence[Fields]]:
    """Return the pending pods, grouped by node selector."""
    found: dict[Labels, list[Fields]] = {}
    for pod in facts.waiting_pods(snapshot):
        found.setdefault(tuple(facts.spec_of(pod).node_selector.items()), []).append(pod)
    return found


@once
def waiting_for(snapshot: Snapshot) -> Mapping[str, Sequence[Labels]]:
    """Return, for each NodePool, the node selectors of the pending pods it could serve, oldest first."""
    found: dict[str, list[Labels]] = {}
    for choice in _waiting_by_choice(snapshot):
        for pool in pools_with(snapshot, choice):
            found.setdefault(facts.name(pool), []).append(choice)
    return found


def _pools(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    waiting, pods = waiting_for(snapshot), _waiting_by_choice(snapshot)
    for pool in snapshot.all("nodepools"):
        choices = waiting.get(facts.name(pool), ())
        if not choices:
            continue
        count, first = sum(len(pods[each]) for each in choices), pods[choices[0]][0]
        yield from _not_ready(snapshot, pool, count)
        # Another pool may serve them.
        stuck = [each for each in choices if each in _without_a_node(snapshot)]
        count = sum(len(pods[each]) for each in stuck)
        for key, used, most in _reached(snapshot, pool) if stuck else ():
            yield NODE_POOL_LIMIT.found(
                f"nodepool/{facts.name(pool)}",
                f"Its limit of {most} {key} leaves no room with {used} in use; {counted(count, 'pod')} "
                "can't start.",
                f"{facts.full_name(first)}: {facts.why_waiting(first)}",
                Fix(NODE_POOL_LIMIT.fix, f"kubectl get nodepool {facts.name(pool)} -o yaml"),
            )


@once
def _without_a_node(snapshot: Snapshot) -> frozenset[Labels]:
    """Return the node selectors with a pod that no pool makes a node for."""
    return frozenset(
        choice
        for choice, pods in _waiting_by_choice(snapshot).items()
        if any(verdict_of(snapshot, each).outlook in _NO_NODE for each in pods)
    )


def _reached(snapshot: Snapshot, pool: Fields) -> Sequence[tuple[str, Quantity, Quantity]]:
    """Return a pool's limits that leave no room for a node: key, used, limit.

    By the amounts, those below what the smallest pod asks for; as Karpenter says it, the one that is
    used most, as no type is small enough for what is left.
    """
    limits = pool.child("spec").quantities("limits")
    has = pool.child("status").quantities("resources")
    every = [(key, has.get(key, Quantity(0)), most) for key, most in limits.items()]
    found = []
    for key, used, most in every:
        choices = waiting_for(snapshot).get(facts.name(pool), ())
        asked = min((_least_asked(snapshot, each, key) for each in choices), default=0)
        if used.nano >= most.nano or most.nano - used.nano < asked:
            found.append((key, used, most))
    if not found and facts.name(pool) in _said_full(snapshot):
        found = sorted(every, key=lambda each: each[1].nano / max(each[2].nano, 1))[-1:]
    return found


@once
def _said_full(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools at a limit, as Karpenter says of a pod that waits."""
    return frozenset(
        each.pool
        for pod in facts.unplaced_pods(snapshot)
        for each in karpenters_words(snapshot).get(facts.full_name(pod), ())
        if each.why is Why.LIMIT
    )


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


def _node_class(pool: Fields) -> tuple[str, str]:
    """Return kind and name of a pool's node class."""
    reference = pool.child("spec").child("template").child("spec").child("nodeClassRef")
    return reference.text("kind"), reference.text("name")


def _not_ready(snapshot: Snapshot, pool: Fields, count: int) -> Iterator[ClusterFinding]:
    if not is_unready(pool):
        return
    kind, name = _node_class(pool)
    body = snapshot.node_classes.get(f"{kind}/{name}")
    said = [*false_conditions(pool)]
    if body is not None:
        said = [f"{kind} {name}: {each}" for each in false_conditions(body)] + said
    fix = Fix(NODE_POOL_NOT_READY.fix, f"kubectl describe {kind.lower()} {name}")
    if body is None and any("NodeClassNotFound" in each for each in said):
        fix = Fix(
            f"Make {kind} {name}, or correct nodeClassRef of the NodePool.",
            f"kubectl get {kind.lower()}; kubectl edit nodepool {facts.name(pool)}",
        )
    yield NODE_POOL_NOT_READY.found(
        f"nodepool/{facts.name(pool)}",
        f"NodePool {facts.name(pool)} makes no nodes, and {counted(count, 'pod')} may wait for it: "
        f"{said[0] if said else 'it is not Ready'}.",
        "; ".join(said),
        fix,
    )


def _failed_claims(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for pool, failure in failed_claims(snapshot).items():
        if pool not in waiting_for(snapshot):
            continue
        denial = denial_in(failure.message)
        said = ": ".join(filter(None, (failure.reason, str(denial))))
        yield NODE_CLAIM_FAILED.found(
            f"nodepool/{pool}",
            f"The cloud gives no node for NodePool {pool}{f': {said}' if said else ''}.",
            f"NodeClaim {failure.name}: {failure.message}",
            Fix(denial.kind.value, f"kubectl describe nodepool {pool}; kubectl get nodeclaims"),
        )


def _unregistered(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield the machines that have not become nodes for pods in time."""
    for claim in launched_claims(snapshot):
        since_ms = claim.child("metadata").time_ms("creationTimestamp")
        age_ms = 0 if since_ms is None else snapshot.now_ms - since_ms
        if facts.condition(claim, "Registered") == "True":
            if age_ms >= _UNINITIALIZED_MS:
                yield _uninitialized(claim, age_ms)
            continue
        if age_ms < _UNREGISTERED_MS:
            continue
        name, given = facts.name(claim), facts.labels(claim)
        of_type = given.get("node.kubernetes.io/instance-type", "")
        pool = given.get(facts.NODE_POOL, "")
        yield NODE_NOT_REGISTERED.found(
            f"nodepool/{pool}",
            f"The machine of NodeClaim {name}{f' ({of_type})' if of_type else ''} runs for "
            f"{age_ms // 60_000} min and has not joined the cluster.",
            "; ".join(false_conditions(claim)),
            Fix(
                f"{NODE_NOT_REGISTERED.fix} Karpenter gives it up after 15 minutes, and makes another.",
                f"kubectl describe nodeclaim {name}",
            ),
        )


def _uninitialized(claim: Fields, age_ms: int) -> ClusterFinding:
    name, node = facts.name(claim), claim.child("status").text("nodeName")
    said = next(false_conditions(claim), "no condition says why")
    return NODE_NOT_INITIALIZED.found(
        f"node/{node}" if node else f"nodeclaim/{name}",
        f"The node of NodeClaim {name} is there since {age_ms // 60_000} min and takes no pods: {said}.",
        said,
        Fix(NODE_NOT_INITIALIZED.fix, f"kubectl describe nodeclaim {name}"),
    )


def _coming(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield the machines that pods wait for and that have not joined, while that is no fault yet."""
    for claim in launched_claims(snapshot):
        since_ms = claim.child("metadata").time_ms("creationTimestamp") or snapshot.now_ms
        pool, age_ms = facts.labels(claim).get(facts.NODE_POOL, ""), snapshot.now_ms - since_ms
        is_joined = facts.condition(claim, "Registered") == "True"
        if pool in waiting_for(snapshot) and not is_joined and age_ms < _UNREGISTERED_MS:
            yield NODE_ON_ITS_WAY.found(
                f"nodepool/{pool}",
                f"A node of NodePool {pool} is on its way since {age_ms // 1000} s: NodeClaim "
                f"{facts.name(claim)}.",
                "; ".join(false_conditions(claim)),
                Fix(NODE_ON_ITS_WAY.fix, f"kubectl get nodeclaim {facts.name(claim)}"),
            )


# What pools can't do


def _consolidated(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    starts = _starts(snapshot)
    for pool in snapshot.all("nodepools"):
        name, spec = facts.name(pool), pool.child("spec").child("disruption")
        after = spec.text("consolidateAfter", "0s")
        slowest = max(starts.get(name, {}).items(), key=lambda each: each[1], default=None)
        is_whole = spec.text("consolidationPolicy") != "WhenEmpty"
        never = after == "Never" or any(each.text("nodes") == "0" for each in spec.items("budgets"))
        if slowest is None or not is_whole or never:
            continue
        where, start_ms = slowest
        if start_ms < _SLOW_START_MS or spec.duration_ms("consolidateAfter", 0) >= start_ms:
            continue
        minutes = -(-start_ms // 60_000)
        patch = f'{{"spec":{{"disruption":{{"consolidateAfter":"{minutes}m"}}}}}}'
        yield CONSOLIDATION_TOO_FAST.found(
            f"nodepool/{name}",
            f"NodePool {name} moves pods with consolidateAfter {after}, and those of {where} take "
            f"{minutes} min to start.",
            f"{where}: from scheduled to ready; consolidationPolicy "
            f"{spec.text('consolidationPolicy', 'WhenEmptyOrUnderutilized')}",
            Fix(
                f"Raise consolidateAfter to {minutes} min, give the pods karpenter.sh/do-not-disrupt, or the "
                "pool a budget.",
                f"kubectl patch nodepool {name} --type=merge -p '{patch}'",
            ),
        )


@once
def _starts(snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
    """Return the shortest time from scheduled to ready of each workload's GPU pods, by NodePool."""
    nodes = facts.nodes_by_name(snapshot)
    found: dict[str, dict[str, int]] = {}
    for pod in facts.active_pods(snapshot):
        node = nodes.get(pod.child("spec").text("nodeName"))
        pool = "" if node is None else facts.labels(node).get(facts.NODE_POOL, "")
        metadata = pod.child("metadata")
        if not pool or "karpenter.sh/do-not-disrupt" in metadata.labels("annotations"):
            continue
        changed = {
            each.text("type"): each.time_ms("lastTransitionTime")
            for each in pod.child("status").items("conditions")
            if each.text("status") == "True"
        }
        scheduled, ready = changed.get("PodScheduled"), changed.get("Ready")
        if scheduled is None or ready is None or not facts.asks_for_gpus(pod):
            continue
        # A restarted container makes the pod ready again later than it started.
        if any(
            each.integer("restartCount") for each in pod.child("status").items("containerStatuses")
        ):
            continue
        if ready - scheduled > _LONGEST_START_MS:
            continue
        where, of_pool = about(key_of(snapshot, pod)), found.setdefault(pool, {})
        of_pool[where] = min(of_pool.get(where, ready - scheduled), ready - scheduled)
    return found


# What Karpenter says of a pod


def _words(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield the reasons for each pending workload, by Karpenter's words or by what the pools are."""
    reported: set[str] = set()
    for pod in facts.unplaced_pods(snapshot) if snapshot.all("nodepools") else ():
        said = karpenters_words(snapshot).get(facts.full_name(pod), ())
        if facts.is_gated(pod) or facts.full_name(pod) in scale_ups(snapshot):
            continue
        meant = _meant(snapshot, DistinctSpec.of(facts.spec_of(pod)), said)
        where = about(key_of(snapshot, pod))
        if not meant or where in reported:
            continue
        reported.add(where)
        more = f"; and {len(meant) - _MOST_POOLS} more" if len(meant) > _MOST_POOLS else ""
        listed = "; ".join(_said(snapshot, each) for each in meant[:_MOST_POOLS])
        yield NODE_POOL_REFUSES.found(
            where,
            f"Karpenter makes no node for it: {listed}{more}.",
            f"pod {facts.full_name(pod)}: {facts.why_waiting(pod)}",
            _fix(snapshot, pod, meant),
        )


@once
def _meant(snapshot: Snapshot, of: DistinctSpec, said: tuple[Reason, ...]) -> Sequence[Reason]:
    """Return why the pools that fit a pod make no node; none where a pool's own finding says it."""
    if not said:
        verdict = verdict_for(snapshot, of, said)
        said = verdict.reasons if verdict.outlook is Outlook.NEVER else ()
    fitting = _names_with(snapshot, tuple(of.spec.node_selector.items()))
    meant = [each for each in said if each.pool in fitting] or said
    return () if any(each.pool in _told_elsewhere(snapshot) for each in meant) else meant


@once
def _told_elsewhere(snapshot: Snapshot) -> frozenset[str]:
    """Return the pools with a finding of their own that says why they make no node."""
    return frozenset(
        name
        for pool in snapshot.all("nodepools")
        if (name := facts.name(pool)) in waiting_for(snapshot)
        and (_reached(snapshot, pool) or is_unready(pool) or name in failed_claims(snapshot))
    )


@once
def _names_with(snapshot: Snapshot, labels: Labels) -> frozenset[str]:
    return frozenset(map(facts.name, pools_with(snapshot, labels)))


@once
def _pools_by_name(snapshot: Snapshot) -> Mapping[str, Fields]:
    return {facts.name(pool): pool for pool in snapshot.all("nodepools")}


def _said(snapshot: Snapshot, reason: Reason) -> str:
    """Return a reason in words; where they say all there is, in Karpenter's own."""
    pool = f"NodePool {reason.pool}: " if reason.pool else ""
    wanted, has = ", ".join(reason.wanted), ", ".join(reason.has)
    match reason.why:
        case Why.TOO_LARGE:
            return pool + _too_large(snapshot, reason)
        case Why.UNKNOWN_RESOURCE:
            late = ", ".join(key for key, _ in reason.asked)
            return f"{pool}it does not know before a node runs how much of {late} there is"
        case Why.NO_OFFERING:
            return (
                f"{pool}types that fit have no stock, or are not offered in the zones or capacity types "
                "that are allowed"
            )
        case Why.UNKNOWN_LABEL:
            return f"{pool}it does not know the label {reason.key} before a node runs"
        case Why.ZONE:
            return f"{pool}the pod has to be in zone {wanted}, such as for a volume, and the pool has {has}"
        case Why.LABEL if wanted:
            return f"{pool}the pod wants {reason.key} {wanted}, and the pool has {has or 'none'}"
        case Why.TAINT if not reason.text:
            return f"{pool}the pod does not tolerate the taint {has}"
        case Why.CLAIMS:
            return "it makes no nodes for pods with resource claims"
    return pool + reason.text


def _too_large(snapshot: Snapshot, reason: Reason) -> str:
    pool = _pools_by_name(snapshot).get(reason.pool)
    asked = dict(reason.asked) or {reason.key: ", ".join(reason.wanted)}
    most_pods, of_class = None, ""
    types: tuple[str, ...] = ()
    largest = {reason.key: reason.has[0]} if reason.has else {}
    if pool is not None:
        kind, name = _node_class(pool)
        body, of_class = snapshot.node_classes.get(f"{kind}/{name}"), f"{kind} {name}"
        if body is not None:
            spec = body.child("spec")
            most_pods = spec.child("kubelet").integer("maxPods") or spec.integer("maxPods")
        for each in pool.child("spec").child("template").child("spec").items("requirements"):
            if each.text("key") == "node.kubernetes.io/instance-type":
                types = each.texts("values") if each.text("operator") == "In" else ()
        known = facts_by_name(snapshot)[reason.pool].largest
        largest = {key: str(most) for key, most in known.items()} or largest
    pods = asked.pop("pods", "")
    if most_pods is not None and pods.isdecimal() and int(pods) > most_pods:
        return f"{of_class} allows a node maxPods {most_pods}, and with the DaemonSets there are {pods} pods"
    listed = " and ".join(f"{amount} {key}" for key, amount in asked.items() if amount)
    of_types = f" of {', '.join(types)}" if types else ""
    most = "".join(
        f"; the largest has {most} {key}" for key, most in largest.items() if key in asked
    )
    return f"no instance type{of_types} has {listed or 'enough resources'}{most}"


@once
def _is_of_gpus(snapshot: Snapshot, pool: str) -> bool:
    """Return whether a NodePool's own taints, labels or requirements speak of GPUs."""
    known = facts_by_name(snapshot).get(pool)
    if known is None:
        return False
    required = known.labels.requirements
    values = [value for listed in required.values() for _, each in listed for value in each]
    words = [*map(str, known.taints), *known.labels.fixed, *required, *values, pool]
    return any(_OF_GPUS.search(each) for each in words)


def _fix(snapshot: Snapshot, pod: Fields, meant: Sequence[Reason]) -> Fix:
    pools = _pools_by_name(snapshot)
    # Of pools that have GPUs, one that is too small is the least to be meant.
    first = min(
        meant,
        key=lambda each: (not _is_of_gpus(snapshot, each.pool), each.why is Why.TOO_LARGE),
    )
    look = f"kubectl get nodepool {first.pool} -o yaml".replace("  ", " ")
    if first.why is Why.TAINT and _is_of_gpus(snapshot, first.pool):
        kind, namespace, name = key_of(snapshot, pod)
        body = facts.named(snapshot, kind, namespace, name)
        listed = pools[first.pool].child("spec").child("template").child("spec").items("taints")
        taint = next((each for each in map(read_taint, listed) if each.key == first.key), None)
        if taint is not None and moment_of(taint.key) is None and body is not None:
            fix = tolerate(kind.lower(), body, taint)
            return Fix(
                f"{fix.say.removesuffix('.')}, which NodePool {first.pool} gives its nodes.",
                fix.command,
            )
    say = _SAYS.get(first.why, NODE_POOL_REFUSES.fix)
    return Fix(say.format(pool=first.pool, key=first.key), look)


_SAYS = {
    Why.TAINT: "If it is meant for NodePool {pool}, give its pods a toleration for the taint {key}.",
    Why.TOO_LARGE: "Ask for less a pod, or allow larger types (or more pods a node) in NodePool {pool}.",
    Why.UNKNOWN_RESOURCE: "Keep one node of NodePool {pool} there, or ask for whole GPUs.",
    Why.NO_OFFERING: "Allow other types, zones or capacity types in NodePool {pool}; Karpenter asks the "
    "cloud again after 3 minutes.",
    Why.UNKNOWN_LABEL: "Choose by a label that the cloud's types have, or put {key} into the requirements or "
    "labels of NodePool {pool}.",
    Why.ZONE: "Add the zone to NodePool {pool} and to its node class, or move the volume.",
    Why.CLAIMS: "Let a node of another pool come, or set IGNORE_DRA_REQUESTS=false for Karpenter where its "
    "provider describes devices.",
}

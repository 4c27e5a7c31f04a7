"""Pods that no node takes, each by its own cause: what it asks for, and where it may go.

Source: kubernetes v1.36 pkg/scheduler/framework/plugins (messages of nodeaffinity, noderesources,
    tainttoleration) and framework/types.go (FitError).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.findings import Check, Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import GpuKind, counts_gpus, gpu_kind
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.scheduling.fit import untolerated
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.node_state import OUT_OF_USE, uncordon
from gpuscale.ops.doctor.checks.nodes import (
    TAINT_NOT_TOLERATED,
    kept_off_by,
    matches,
    tolerate,
)
from gpuscale.ops.doctor.checks.workload_held import (
    HELD_CHECKS,
    HoldReason,
    held_back,
    queued_findings,
)
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, pods_by_subject, subjects
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.node_pools import may_come
from gpuscale.ops.doctor.snapshot import Snapshot

PLACEMENT_CHECKS = Checks(WORKLOAD, including=(HELD_CHECKS,))
RESOURCE_NOT_OFFERED = PLACEMENT_CHECKS.add(
    "resource-not-offered",
    Severity.ERROR,
    "Pods that ask for a GPU resource that no node offers, such as another MIG profile.",
    "Ask for a resource that the nodes offer, or set the nodes up to offer it.",
)
LARGER_THAN_ANY_NODE = PLACEMENT_CHECKS.add(
    "larger-than-any-node",
    Severity.ERROR,
    "A pod that asks for more GPUs than any one node has.",
    "Ask for fewer GPUs a pod, or add a pool of larger nodes.",
)
NO_MATCHING_NODE = PLACEMENT_CHECKS.add(
    "no-matching-node",
    Severity.ERROR,
    "Pods whose node selector or affinity matches no node with their GPUs.",
    "Correct the node selector or affinity, or label the nodes.",
)
NODES_CORDONED = PLACEMENT_CHECKS.add(
    "nodes-cordoned",
    Severity.ERROR,
    "Pods wait, and the nodes that would take them are cordoned.",
    "Uncordon a node once its maintenance is over.",
)
NO_NODE_YET = PLACEMENT_CHECKS.add(
    "no-node-yet",
    Severity.WARNING,
    "Pods whose nodes are being removed, are not set up yet, or are unwell.",
    "See what becomes of the node; a toleration for such a taint does harm.",
)
ROLLOUT_WITHOUT_ROOM = PLACEMENT_CHECKS.add(
    "rollout-without-room",
    Severity.ERROR,
    "A rollout that makes a new pod before it ends an old one, and every GPU is in use.",
    "Let the rollout end an old pod first: maxSurge 0, maxUnavailable 1.",
)
UNSCHEDULABLE = PLACEMENT_CHECKS.add(
    "unschedulable",
    Severity.ERROR,
    "Pods that no node takes for something other than GPUs, such as memory or affinity between pods.",
    "Do what the scheduler's message says.",
)

_GPU_WORDS = ("Insufficient", "untolerated taint", "node affinity/selector", "unschedulable")
_FIXES = (
    ("Insufficient cpu", "Lower the pods' CPU request, or use larger nodes."),
    ("Insufficient memory", "Lower the pods' memory request, or use larger nodes."),
    ("Insufficient ephemeral-storage", "Lower the pods' request of ephemeral storage."),
    ("Too many pods", "Raise the nodes' maximum of pods, or add nodes."),
    ("free ports", "Take hostPort out of the pod template: only one such pod fits on a node."),
    ("anti-affinity", "Add nodes, or make the anti-affinity between pods a preference."),
    ("pod affinity rules", "Correct the affinity to other pods: none that matches runs there."),
    ("topology spread", "Add nodes to the scarce zone, or set whenUnsatisfiable: ScheduleAnyway."),
    ("volume node affinity", "The volume is bound to another zone: add nodes there, or move it."),
    ("max volume count", "Add nodes, or use fewer volumes a node."),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod has no node."""

    check: Check
    what: str
    evidence: str
    fix: Fix


def placement_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return why pods have no node, once for each workload and cause."""
    yield from queued_findings(snapshot)
    for key, causes in _causes(snapshot).items():
        reported: set[str] = set()
        for pod, cause in causes:
            if cause is None or cause.check.id in reported:
                continue
            reported.add(cause.check.id)
            evidence = f"pod {facts.full_name(pod)}: {cause.evidence}"
            yield cause.check.found(about(key), cause.what, evidence, cause.fix)


@once
def explained(snapshot: Snapshot) -> frozenset[str]:
    """Return the waiting pods that more GPUs would not help, or whose nodes are ill; as `namespace/name`."""
    return frozenset(
        facts.full_name(pod) for causes in _causes(snapshot).values() for pod, _ in causes
    )


@once
def _causes(snapshot: Snapshot) -> Mapping[Key, Sequence[tuple[Fields, Cause | None]]]:
    """Return the waiting pods that are not just waiting for GPUs; None where another part is the cause."""
    found: dict[Key, list[tuple[Fields, Cause | None]]] = {}
    for key, pods in pods_by_subject(snapshot).items():
        for pod in pods:
            if pod.child("spec").text("nodeName") or not _is_pending(pod):
                continue
            held = held_back(snapshot, pod)
            cause = _of_held(held) if held is not None else None
            if cause is None and facts.condition(pod, "PodScheduled") == "False":
                cause = _unplaced(snapshot, key, pod)
            if cause is not None or _waits_for_ill_nodes(snapshot, pod):
                found.setdefault(key, []).append((pod, cause))
    return found


def _of_held(held: HoldReason) -> Cause:
    return Cause(held.check, held.what, held.evidence, held.fix)


def _is_pending(pod: Fields) -> bool:
    gone = pod.child("metadata").data.get("deletionTimestamp") is not None
    return not gone and pod.child("status").text("phase", "Pending") == "Pending"


def reasons_in(message: str) -> dict[str, int]:
    """Return how many nodes refused a pod for which reason, as the scheduler says."""
    found = re.match(r"\d+/\d+ nodes are available: (?P<list>.*?)(?:\. |\.?$)", message)
    if found is None:
        return {}
    listed = (each.partition(" ") for each in re.split(r", (?=\d+ )", found["list"]))
    return {reason: int(count) for count, _, reason in listed if count.isdecimal()}


def _unplaced(snapshot: Snapshot, key: Key, pod: Fields) -> Cause | None:
    spec, said = facts.spec_of(pod), facts.why_waiting(pod)
    is_for_gpus = facts.asks_for_gpus(pod)
    by_claim = facts.claimed_nodes(snapshot)
    nodes = [
        node
        for node in snapshot.all("nodes")
        if not is_for_gpus or facts.offers_gpus(node) or facts.name(node) in by_claim
    ]
    wanted = {
        key: count
        for key, count in facts.limits_of(spec).items()
        if gpu_kind(key) is not GpuKind.QUALIFIER and key not in facts.claimed_resources(snapshot)
    }
    if snapshot.hides("nodes") or may_come(snapshot, pod) or (is_for_gpus and not nodes):
        return None
    for resource, count in wanted.items():
        most = max((_offers(node, resource) for node in nodes), default=0)
        if most == 0:
            return _not_offered(nodes, resource, said, key)
        if most < count:
            return _too_large(resource, count, most, said, key)
        nodes = [node for node in nodes if _offers(node, resource) >= count]
    return _of_nodes(snapshot, key, pod, nodes, said)


def _of_nodes(
    snapshot: Snapshot, key: Key, pod: Fields, nodes: Sequence[Fields], said: str
) -> Cause | None:
    """Return why none of the nodes that have what a pod wants takes it; None where all is in use."""
    spec = facts.spec_of(pod)
    matching = [node for node in nodes if matches(snapshot, spec, node)]
    if not matching and nodes:
        return _mismatch(spec, nodes, said, key)
    tolerated = [
        node
        for node in matching
        if untolerated(facts.taints(snapshot, node), spec.tolerations) is None
    ]
    if not tolerated and matching:
        if kept_off_by(snapshot, spec, facts.gpu_nodes(snapshot)):
            return None  # The taints of all GPU nodes are reported with the nodes.
        return _tainted(snapshot, key, pod, matching, said)
    up = [node for node in tolerated if facts.is_ready(node)]
    staying = [node for node in up if not facts.momentary(snapshot, node)]
    if up and not staying:
        return _no_node_yet(snapshot, up, said)
    usable = [node for node in staying if not node.child("spec").boolean("unschedulable")]
    if staying and not usable:
        return _cordoned(staying, said)
    wanted = facts.wanted(spec)
    free = [
        node
        for node in usable
        if all(_free(snapshot, node, name) >= count for name, count in wanted.items())
    ]
    return _other(free, said, key) if free else _surge(snapshot, key, pod, said)


def _surge(snapshot: Snapshot, key: Key, pod: Fields, said: str) -> Cause | None:
    """Return a rollout that waits for a GPU of its own old pods, which it keeps until a new one is ready.

    Source: kubernetes v1.37 pkg/controller/deployment/util/deployment_util.go (ResolveFenceposts).
    """
    body = subjects(snapshot).get(key)
    if key[0] != "Deployment" or body is None:
        return None
    spec = body.child("spec")
    rolling = spec.child("strategy").child("rollingUpdate")
    replicas = spec.integer("replicas", 1) or 0
    surge = _resolved(rolling, "maxSurge", replicas, is_up=True)
    # Where both come to 0, one pod may be unavailable.
    ends_first = surge == 0 or _resolved(rolling, "maxUnavailable", replicas, is_up=False) > 0
    is_recreated = spec.child("strategy").text("type") == "Recreate"
    old = [
        each
        for each in pods_by_subject(snapshot).get(key, ())
        if facts.is_ready(each) and _revision(snapshot, each) < _revision(snapshot, pod)
    ]
    if is_recreated or ends_first or not old:
        return None
    patch = json.dumps(
        {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
    )
    return Cause(
        ROLLOUT_WITHOUT_ROOM,
        "Its rollout makes a new pod before it ends an old one, and no node has a GPU free for it.",
        f"maxSurge {rolling.data.get('maxSurge', '25%')}, maxUnavailable "
        f"{rolling.data.get('maxUnavailable', '25%')} of {replicas}; {said}",
        Fix(
            ROLLOUT_WITHOUT_ROOM.fix,
            facts.quoted(
                *("kubectl", "patch", "deployment", key[2], "-n", key[1], "--type=merge"),
                *("-p", patch),
            ),
        ),
    )


def _revision(snapshot: Snapshot, pod: Fields) -> int:
    """Return which of its Deployment's templates a pod is of, counted up; 0 where that is not known."""
    body = facts.named(
        snapshot, "ReplicaSet", facts.namespace(pod), (facts.controller(pod) or ("", ""))[1]
    )
    given = {} if body is None else body.child("metadata").labels("annotations")
    number = given.get("deployment.kubernetes.io/revision", "")
    return int(number) if number.isdecimal() else 0


def _resolved(rolling: Fields, field: str, replicas: int, *, is_up: bool) -> int:
    """Return a field of a rolling update as a number of pods; shares of surge are rounded up."""
    value = rolling.data.get(field, "25%")
    if not isinstance(value, str):
        return value if isinstance(value, int) else 0
    hundredths = int(value.rstrip("%")) * replicas if value.rstrip("%").isdecimal() else 0
    return -(-hundredths // 100) if is_up else hundredths // 100


def _waits_for_ill_nodes(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether the nodes that would take a pod are there and not Ready, which is reported of them."""
    wanted = facts.wanted(facts.spec_of(pod))
    nodes = [
        node
        for node in snapshot.all("nodes")
        if wanted and all(_offers(node, name) >= count for name, count in wanted.items())
    ]
    ill = [node for node in nodes if not facts.is_ready(node)]
    return any(
        _free(snapshot, node, name) >= count for node in ill for name, count in wanted.items()
    )


def _offers(node: Fields, resource: str) -> int:
    amount = node.child("status").child("allocatable").quantity(resource)
    return 0 if amount is None else amount.nano // 1_000_000_000


def _free(snapshot: Snapshot, node: Fields, resource: str) -> int:
    bound = facts.pods_by_node(snapshot).get(facts.name(node), ())
    return _offers(node, resource) - sum(
        facts.wanted(facts.spec_of(pod)).get(resource, 0) for pod in bound
    )


def _not_offered(nodes: Sequence[Fields], resource: str, said: str, key: Key) -> Cause:
    if gpu_kind(resource) is None:
        return Cause(
            RESOURCE_NOT_OFFERED,
            f"It asks for {resource}, which no node that it may go to offers.",
            said,
            Fix(
                f"Install the device plugin that offers {resource}, or take it out of the pod template.",
                _edit(key),
            ),
        )
    offered: dict[str, int] = {}
    for node in nodes:
        for name in node.child("status").child("allocatable").data:
            if counts_gpus(name) and (count := _offers(node, name)):
                offered[name] = offered.get(name, 0) + count
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(offered.items()))
    return Cause(
        RESOURCE_NOT_OFFERED,
        f"It asks for {resource}, which no node offers.",
        f"nodes offer {listed}; {said}",
        Fix(
            f"Ask for {' or '.join(sorted(offered))}, or set the nodes up to offer {resource}.",
            _edit(key),
        ),
    )


def _too_large(resource: str, count: int, most: int, said: str, key: Key) -> Cause:
    return Cause(
        LARGER_THAN_ANY_NODE,
        f"A pod of it asks for {count} {resource}, and the largest node has {most}: more such nodes "
        "don't help.",
        said,
        Fix(
            f"Ask for at most {most} a pod, or add a pool whose nodes have at least {count}.",
            _edit(key),
        ),
    )


def _mismatch(spec: PodSpec, nodes: Sequence[Fields], said: str, key: Key) -> Cause:
    labels = [facts.labels(node) for node in nodes]
    absent = [
        f"{name}={value}"
        for name, value in spec.node_selector.items()
        if not any(each.get(name) == value for each in labels)
    ]
    known = sorted(
        {f"{name}={each[name]}" for name in spec.node_selector for each in labels if name in each}
    )
    what = (
        f"No node with its GPUs has the label {', '.join(absent)}."
        if absent
        else "No node with its GPUs matches its node selector and affinity."
    )
    return Cause(
        NO_MATCHING_NODE,
        what,
        "; ".join(filter(None, (f"nodes have {', '.join(known)}" if known else "", said))),
        Fix(NO_MATCHING_NODE.fix, f"kubectl get nodes --show-labels; {_edit(key)}"),
    )


def _tainted(
    snapshot: Snapshot, key: Key, pod: Fields, nodes: Sequence[Fields], said: str
) -> Cause | None:
    taint = untolerated(facts.taints(snapshot, nodes[0]), facts.spec_of(pod).tolerations)
    body = subjects(snapshot).get(key)
    if taint is None:
        return None
    fix = Fix(f"Give its pods a toleration for {taint}.")
    if body is not None:
        fix = tolerate(key[0].lower(), body, taint)
    return Cause(
        TAINT_NOT_TOLERATED,
        f"The {counted(len(nodes), 'node')} that it may go to keep it off with the taint {taint}.",
        said,
        fix,
    )


def _cordoned(nodes: Sequence[Fields], said: str) -> Cause:
    names = [facts.name(node) for node in nodes]
    return Cause(
        NODES_CORDONED,
        f"The {counted(len(names), 'node')} that would take it are cordoned: {', '.join(names[:3])}.",
        said,
        uncordon(nodes[0]),
    )


def _no_node_yet(snapshot: Snapshot, nodes: Sequence[Fields], said: str) -> Cause:
    taint, moment = facts.momentary(snapshot, nodes[0])[0]
    name = facts.name(nodes[0])
    return Cause(
        NO_NODE_YET,
        f"The {counted(len(nodes), 'node')} that it may go to can't take it: {name} {moment.value}.",
        f"taint {taint}; {said}",
        Fix(OUT_OF_USE[moment], f"kubectl describe node {name}"),
    )


def _other(free: Sequence[Fields], said: str, key: Key) -> Cause | None:
    """Return what else keeps a pod off nodes that have its GPUs free."""
    reasons = reasons_in(said)
    for word, fix in _FIXES:
        named = next((reason for reason in reasons if word in reason), None)
        if named is not None:
            return Cause(
                UNSCHEDULABLE,
                f"No node takes it, and GPUs are not the reason: {named}.",
                f"{counted(len(free), 'node')} with its GPUs free; {said}",
                Fix(fix, _edit(key)),
            )
    if reasons and all(any(word in each for word in _GPU_WORDS) for each in reasons):
        return None
    return Cause(
        UNSCHEDULABLE,
        "No node takes it, and GPUs are not the reason.",
        f"{counted(len(free), 'node')} with its GPUs free; {said}",
        Fix(UNSCHEDULABLE.fix, _edit(key)),
    )


def _edit(key: Key) -> str:
    kind, namespace, name = key
    return f"kubectl edit {kind.lower()} -n {namespace} {name}"

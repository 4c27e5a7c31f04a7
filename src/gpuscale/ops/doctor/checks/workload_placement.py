"""Pods that fit no node, each with its own cause: what it requests, which nodes it allows.

Source: kubernetes v1.36 pkg/scheduler/framework/plugins (messages of nodeaffinity, noderesources,
    tainttoleration) and framework/types.go (FitError).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gpuscale.base.findings import Check, Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import GpuKind, counts_gpus, gpu_kind
from gpuscale.base.objects.label_index import LabelIndex
from gpuscale.base.objects.taints import Taint, Toleration, untolerated
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import cards_lacking
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.node_state import OUT_OF_USE, uncordon
from gpuscale.ops.doctor.checks.nodes import TAINT_NOT_TOLERATED, keeping_off, tolerate
from gpuscale.ops.doctor.checks.workload_groups import (
    GROUP_CHECKS,
    GROUP_IN_PARTS,
    gang_words,
    group_findings,
)
from gpuscale.ops.doctor.checks.workload_held import (
    HELD_CHECKS,
    HoldReason,
    held_back,
    queued_findings,
)
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, pods_by_subject, subjects
from gpuscale.ops.doctor.choices import NodeChoice, by_first_taint, chosen, past_first
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.node_pools import (
    adds_nodes,
    karpenters_words,
    may_come,
    recent_by_pod,
    shared_cards,
)
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.lint.checks.placement import LARGER_THAN_ANY_NODE, SIZE_CHECKS

PLACEMENT_CHECKS = Checks(WORKLOAD, including=(HELD_CHECKS, GROUP_CHECKS, SIZE_CHECKS))
RESOURCE_NOT_OFFERED = PLACEMENT_CHECKS.add(
    "resource-not-offered",
    Severity.ERROR,
    "Pods that ask for a GPU resource that no node offers, such as another MIG profile.",
    "Ask for a resource that the nodes offer, or set the nodes up to offer it.",
)
MIG_NOT_APPLIED = PLACEMENT_CHECKS.add(
    "mig-not-applied",
    Severity.ERROR,
    "Pods that ask for a part of a GPU, and a node whose GPUs were not split as its label asks for.",
    "See what the MIG manager says: something may hold the GPU, or the profile is not one of its type.",
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

_MIG_CONFIG, _MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
_HAMI = re.compile(r"\b((?:Card|Node|Numa|Allocated|Exclusive)[A-Z]\w+)")
"""HAMi 2.9 pkg/device/common (reasons of its scheduler)."""
_HAMI_FIXES = (
    ("Memory", "Ask for less nvidia.com/gpumem: no GPU has as much left."),
    ("Core", "Ask for fewer nvidia.com/gpucores: no GPU has as many left."),
    ("Mismatch", "Correct the pod's annotations that choose types or UUIDs of GPUs."),
    ("", "Ask for fewer nvidia.com/gpu a pod, or add GPUs."),
)
_HAMI_FIX = "Compare nvidia.com/gpumem, gpucores and gpu of the pod with what the GPUs of one node have left."
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
    (
        "in one device",
        "Ask for less memory a pod: what is free is spread over the node's GPUs, and none of them has that "
        "much.",
    ),
    ("max volume count", "Add nodes, or use fewer volumes a node."),
)


Amounts = tuple[tuple[str, int], ...]
"""How much of each resource, by its name."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod fits no node."""

    check: Check
    what: str
    evidence: str
    fix: Fix


def placement_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return why pods fit no node, once for each workload and cause."""
    yield from queued_findings(snapshot)
    yield from group_findings(snapshot)
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
    """Return, as `namespace/name`, the pending pods that more GPUs would not help."""
    return frozenset(
        facts.full_name(pod) for causes in _causes(snapshot).values() for pod, _ in causes
    )


@once
def _causes(snapshot: Snapshot) -> Mapping[Key, Sequence[tuple[Fields, Cause | None]]]:
    """Return the pending pods whose cause is not a mere lack of GPUs; None if another part explains them."""
    found: dict[Key, list[tuple[Fields, Cause | None]]] = {}
    for key, pods in pods_by_subject(snapshot).items():
        for pod in pods:
            if pod.child("spec").text("nodeName") or not _is_pending(pod):
                continue
            held = held_back(snapshot, pod)
            cause = _of_held(held) if held is not None else _of_gang(pod)
            if cause is None and facts.condition(pod, "PodScheduled") == "False":
                cause = _unplaced(snapshot, key, pod)
            wanted = tuple(facts.wanted(facts.spec_of(pod)).items())
            if cause is not None or _waits_for_ill_nodes(snapshot, wanted):
                found.setdefault(key, []).append((pod, cause))
    return found


def _of_held(held: HoldReason) -> Cause:
    return Cause(held.check, held.what, held.evidence, held.fix)


def _of_gang(pod: Fields) -> Cause | None:
    words = gang_words(pod)
    return (
        None if words is None else Cause(GROUP_IN_PARTS, words[0], facts.why_waiting(pod), words[1])
    )


def _is_pending(pod: Fields) -> bool:
    gone = pod.child("metadata").data.get("deletionTimestamp") is not None
    return not gone and pod.child("status").text("phase", "Pending") == "Pending"


def reasons_in(message: str) -> dict[str, int]:
    """Return how many nodes refused a pod for each reason in the scheduler's message."""
    found = re.match(r"\d+/\d+ nodes are available: (?P<list>.*?)(?:\. |\.?$)", message)
    if found is None:
        return {}
    listed = (each.partition(" ") for each in re.split(r", (?=\d+ )", found["list"]))
    return {reason: int(count) for count, _, reason in listed if count.isdecimal()}


def _unplaced(snapshot: Snapshot, key: Key, pod: Fields) -> Cause | None:
    if snapshot.hides("nodes") or may_come(snapshot, pod):
        return None
    if facts.full_name(pod) in karpenters_words(snapshot):
        return None  # It names the pools, which the nodes that are there say nothing of.
    spec = facts.spec_of(pod)
    needs = PodNeeds(tuple(facts.limits_of(spec).items()), facts.asks_for_gpus(pod))
    obstacle = _obstacle(snapshot, needs, NodeChoice.of(spec), spec.tolerations)
    return None if obstacle is None else obstacle(key, pod)


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """A pod's requests for device plugin resources and claims."""

    resources: Amounts
    is_for_gpus: bool

    @property
    def gpus(self) -> Amounts:
        """Return the requests for GPUs, whole or partial."""
        kinds = (None, GpuKind.QUALIFIER)
        return tuple(each for each in self.resources if gpu_kind(each[0]) not in kinds)


@dataclass(frozen=True, slots=True)
class Room:
    """The nodes with what a pod needs; if none has all, those that lack one resource only."""

    nodes: Mapping[str, Fields]
    """By name."""
    short: str = ""
    """The resource of which no node has as much as the pod asks for."""
    count: int = 0
    """How much of it the pod asks for."""
    most: int = 0
    """How much of it one node has."""


@once
def _room(snapshot: Snapshot, needs: PodNeeds) -> Room:
    by_claim = facts.claimed_nodes(snapshot)
    nodes = {
        name: node
        for name, node in facts.nodes_by_name(snapshot).items()
        if not needs.is_for_gpus or facts.offers_gpus(node) or name in by_claim
    }
    if needs.is_for_gpus and not nodes:
        return Room({})
    for resource, count in needs.resources:
        if gpu_kind(resource) is GpuKind.QUALIFIER or resource in facts.claimed_resources(snapshot):
            continue
        most = max((_offers(node, resource) for node in nodes.values()), default=0)
        if most == 0 or most < count:
            return Room(nodes, resource, count, most)
        nodes = {name: node for name, node in nodes.items() if _offers(node, resource) >= count}
    return Room(nodes)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What decides whether nodes take a pod, shared by many nodes."""

    taints: tuple[Taint, ...]
    """Those that stay."""
    is_up: bool
    is_out_of_use: bool
    """Whether a taint of the moment keeps pods off."""
    is_cordoned: bool
    has_free: bool
    """Whether what the pod needs of GPUs is not in use."""


Kinds = Mapping[NodeKind, Sequence[tuple[int, Fields]]]
"""Nodes by their kind, each with its place among all; kinds are in the order of their first nodes."""


@once
def _matching(snapshot: Snapshot, needs: PodNeeds, choice: NodeChoice) -> Kinds:
    """Return the nodes with what a pod needs that its selectors also allow."""
    room = _room(snapshot, needs).nodes
    found: dict[NodeKind, list[tuple[int, Fields]]] = {}
    for place, node in enumerate(chosen(snapshot, choice)):
        if facts.name(node) in room:
            kind = NodeKind(
                facts.taints(snapshot, node),
                facts.is_ready(node),
                bool(facts.momentary(snapshot, node)),
                node.child("spec").boolean("unschedulable"),
                all(_free(snapshot, node, name) >= count for name, count in needs.gpus),
            )
            found.setdefault(kind, []).append((place, node))
    return found


@once
def _by_first_taint(
    snapshot: Snapshot, needs: PodNeeds, choice: NodeChoice
) -> LabelIndex[NodeKind]:
    return by_first_taint((kind, kind.taints) for kind in _matching(snapshot, needs, choice))


def _first(kinds: Kinds, count: int = 1) -> list[Fields]:
    places = (each for listed in kinds.values() for each in listed[:count])
    return [node for _, node in sorted(places, key=lambda each: each[0])[:count]]


def _count(kinds: Kinds) -> int:
    return sum(map(len, kinds.values()))


@once
def _obstacle(
    snapshot: Snapshot, needs: PodNeeds, choice: NodeChoice, tolerations: tuple[Toleration, ...]
) -> Callable[[Key, Fields], Cause | None] | None:
    """Return what says why no node takes such a pod; None where it waits for GPUs alone, or for nodes."""
    room = _room(snapshot, needs)
    if room.short:
        if room.most:
            return partial(_too_large, room)
        unsplit = _unsplit(snapshot)
        if gpu_kind(room.short) is GpuKind.PARTITION and unsplit:
            return partial(_no_mig, unsplit[0], room.short)
        return partial(_not_offered, room.short, _offered(snapshot, needs))
    if needs.is_for_gpus and not room.nodes:
        return None
    matching = _matching(snapshot, needs, choice)
    if not matching and room.nodes:
        return partial(_mismatch, snapshot, *_labels_beside(snapshot, needs, choice))
    near = _by_first_taint(snapshot, needs, choice).candidates(past_first(tolerations))
    tolerated = {
        kind: matching[kind] for kind in near if untolerated(kind.taints, tolerations) is None
    }
    if not tolerated and matching:
        if needs.gpus and keeping_off(snapshot, choice, tolerations):
            return None  # Taints on all GPU nodes are reported with the nodes.
        taint = untolerated(next(iter(matching)).taints, tolerations)
        return None if taint is None else partial(_tainted, snapshot, taint, _count(matching))
    up = {kind: nodes for kind, nodes in tolerated.items() if kind.is_up}
    staying = {kind: nodes for kind, nodes in up.items() if not kind.is_out_of_use}
    if up and not staying:
        return partial(_no_node_yet, snapshot, _first(up)[0], _count(up))
    usable = {kind: nodes for kind, nodes in staying.items() if not kind.is_cordoned}
    if staying and not usable:
        return partial(_cordoned, _first(staying, 3), _count(staying))
    free = _count({kind: nodes for kind, nodes in usable.items() if kind.has_free})
    return partial(_other, snapshot, free) if free else partial(_surge, snapshot)


def _surge(snapshot: Snapshot, key: Key, pod: Fields) -> Cause | None:
    """Return the cause of a stuck rollout: the new pod waits for a GPU that an old pod holds.

    Source: kubernetes v1.37 pkg/controller/deployment/util/deployment_util.go (ResolveFenceposts).
    """
    body = subjects(snapshot).get(key)
    if key[0] != "Deployment" or body is None:
        return None
    spec = body.child("spec")
    rolling = spec.child("strategy").child("rollingUpdate")
    replicas = spec.integer("replicas", 1) or 0
    surge = _resolved(rolling, "maxSurge", replicas, is_up=True)
    # If both round to 0, one pod may be unavailable.
    ends_first = surge == 0 or _resolved(rolling, "maxUnavailable", replicas, is_up=False) > 0
    is_recreated = spec.child("strategy").text("type") == "Recreate"
    oldest = _oldest_ready(snapshot, key)
    if is_recreated or ends_first or oldest is None or oldest >= _revision(snapshot, pod):
        return None
    patch = json.dumps(
        {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
    )
    return Cause(
        ROLLOUT_WITHOUT_ROOM,
        "Its rollout makes a new pod before it ends an old one, and no node has a GPU free for it.",
        f"maxSurge {rolling.data.get('maxSurge', '25%')}, maxUnavailable "
        f"{rolling.data.get('maxUnavailable', '25%')} of {replicas}; {facts.why_waiting(pod)}",
        Fix(
            ROLLOUT_WITHOUT_ROOM.fix,
            facts.quoted(
                *("kubectl", "patch", "deployment", key[2], "-n", key[1], "--type=merge"),
                *("-p", patch),
            ),
        ),
    )


@once
def _oldest_ready(snapshot: Snapshot, key: Key) -> int | None:
    """Return the lowest template revision among a workload's ready pods."""
    ready = filter(facts.is_ready, pods_by_subject(snapshot).get(key, ()))
    return min((_revision(snapshot, each) for each in ready), default=None)


def _revision(snapshot: Snapshot, pod: Fields) -> int:
    """Return the revision of a pod's template in its Deployment; 0 if unknown."""
    body = facts.named(
        snapshot, "ReplicaSet", facts.namespace(pod), (facts.controller(pod) or ("", ""))[1]
    )
    given = {} if body is None else body.child("metadata").labels("annotations")
    number = given.get("deployment.kubernetes.io/revision", "")
    return int(number) if number.isdecimal() else 0


def _resolved(rolling: Fields, field: str, replicas: int, *, is_up: bool) -> int:
    """Return maxSurge or maxUnavailable as a number of pods; a percentage of surge is rounded up."""
    value = rolling.data.get(field, "25%")
    if not isinstance(value, str):
        return value if isinstance(value, int) else 0
    hundredths = int(value.rstrip("%")) * replicas if value.rstrip("%").isdecimal() else 0
    return -(-hundredths // 100) if is_up else hundredths // 100


@once
def _waits_for_ill_nodes(snapshot: Snapshot, wanted: Amounts) -> bool:
    """Return whether a pod would fit on nodes that are not Ready, which have findings of their own."""
    return any(
        all(_offers(node, name) >= count for name, count in wanted)
        and any(_free(snapshot, node, name) >= count for name, count in wanted)
        for node in snapshot.all("nodes")
        if not facts.is_ready(node)
    )


def _offers(node: Fields, resource: str) -> int:
    return facts.amounts(node).allocatable.get(resource, 0)


def _free(snapshot: Snapshot, node: Fields, resource: str) -> int:
    taken = _taken(snapshot).get(facts.name(node), {})
    return _offers(node, resource) - taken.get(resource, 0)


@once
def _taken(snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
    """Return the GPUs that bound pods request on each node."""
    found: dict[str, Counter[str]] = {}
    for node, pods in facts.pods_by_node(snapshot).items():
        found[node] = Counter()
        for pod in pods:
            found[node].update(facts.wanted(facts.spec_of(pod)))
    return found


@once
def _offered(snapshot: Snapshot, needs: PodNeeds) -> Mapping[str, int]:
    """Return the GPUs of the nodes in `Room`, by resource name."""
    found: Counter[str] = Counter()
    for node in _room(snapshot, needs).nodes.values():
        gives = facts.amounts(node).allocatable
        found.update({name: gives[name] for name in gives if counts_gpus(name)})
    return +found


def _not_offered(resource: str, offered: Mapping[str, int], key: Key, pod: Fields) -> Cause:
    said = facts.why_waiting(pod)
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


@once
def _unsplit(snapshot: Snapshot) -> Sequence[Fields]:
    """Return the nodes whose GPUs are not split as their label asks for."""
    return [
        node
        for node in facts.gpu_nodes(snapshot)
        if facts.labels(node).get(_MIG_CONFIG, "all-disabled") != "all-disabled"
        and facts.labels(node).get(_MIG_STATE, "success") != "success"
    ]


def _no_mig(node: Fields, resource: str, _key: Key, pod: Fields) -> Cause:
    given = facts.labels(node)
    say = MIG_NOT_APPLIED.fix
    if given[_MIG_STATE] != "failed":
        say = "Wait until the MIG manager is through; if the state stays, see what it says."
    return Cause(
        MIG_NOT_APPLIED,
        f"It asks for {resource}, and the GPUs of node {facts.name(node)} are not split as "
        f"{given[_MIG_CONFIG]}: {given[_MIG_STATE]}.",
        f"{_MIG_STATE}={given[_MIG_STATE]}; {facts.why_waiting(pod)}",
        Fix(
            say,
            "kubectl get pods -A -l app=nvidia-mig-manager "
            f"--field-selector=spec.nodeName={facts.name(node)}",
        ),
    )


def _too_large(room: Room, key: Key, pod: Fields) -> Cause:
    return Cause(
        LARGER_THAN_ANY_NODE,
        f"A pod of it asks for {room.count} {room.short}, and the largest node has {room.most}: more such "
        "nodes don't help.",
        facts.why_waiting(pod),
        Fix(
            f"Ask for at most {room.most} a pod, or add a pool whose nodes have at least {room.count}.",
            _edit(key),
        ),
    )


def _labels_beside(
    snapshot: Snapshot, needs: PodNeeds, choice: NodeChoice
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the labels that a pod chooses and no node has, and those that nodes have in their place."""
    has = {name: _values(snapshot, needs, name) for name, _ in choice.selector}
    absent = [f"{name}={value}" for name, value in choice.selector if value not in has[name]]
    return absent, sorted(f"{name}={value}" for name, values in has.items() for value in values)


@once
def _values(snapshot: Snapshot, needs: PodNeeds, label: str) -> frozenset[str]:
    """Return a label's values on the nodes with what a pod needs."""
    labels = map(facts.labels, _room(snapshot, needs).nodes.values())
    return frozenset(each[label] for each in labels if label in each)


def _mismatch(
    snapshot: Snapshot, absent: Sequence[str], known: Sequence[str], key: Key, pod: Fields
) -> Cause:
    said = facts.why_waiting(pod)
    look, say = "kubectl get nodes --show-labels", NO_MATCHING_NODE.fix
    if snapshot.all("nodepools"):
        look = "kubectl get nodepools -o yaml"
        say = "Correct the node selector or affinity, or allow the label in a NodePool's requirements."
    elif adds_nodes(snapshot):
        say = "Correct the node selector or affinity, or give a pool's nodes the label."
    what = (
        f"No node with its GPUs has the label {', '.join(absent)}."
        if absent
        else "No node with its GPUs matches its node selector and affinity."
    )
    return Cause(
        NO_MATCHING_NODE,
        what,
        "; ".join(filter(None, (f"nodes have {', '.join(known)}" if known else "", said))),
        Fix(say, f"{look}; {_edit(key)}"),
    )


def _tainted(snapshot: Snapshot, taint: Taint, count: int, key: Key, pod: Fields) -> Cause:
    body = subjects(snapshot).get(key)
    fix = Fix(f"Give its pods a toleration for {taint}.")
    if body is not None:
        fix = tolerate(key[0].lower(), body, taint)
    return Cause(
        TAINT_NOT_TOLERATED,
        f"The {counted(count, 'node')} that it may go to keep it off with the taint {taint}.",
        facts.why_waiting(pod),
        fix,
    )


def _cordoned(first: Sequence[Fields], count: int, _key: Key, pod: Fields) -> Cause:
    return Cause(
        NODES_CORDONED,
        f"The {counted(count, 'node')} that would take it are cordoned: "
        f"{', '.join(map(facts.name, first))}.",
        facts.why_waiting(pod),
        uncordon(first[0]),
    )


def _no_node_yet(snapshot: Snapshot, first: Fields, count: int, _key: Key, pod: Fields) -> Cause:
    taint, moment = facts.momentary(snapshot, first)[0]
    name = facts.name(first)
    return Cause(
        NO_NODE_YET,
        f"The {counted(count, 'node')} that it may go to can't take it: {name} {moment.value}.",
        f"taint {taint}; {facts.why_waiting(pod)}",
        Fix(OUT_OF_USE[moment], f"kubectl describe node {name}"),
    )


@once
def _hamis_words(snapshot: Snapshot) -> Mapping[str, str]:
    """Return why HAMi's scheduler finds no GPU, by pod as `namespace/name`."""
    return {pod: said for pod, said, _ in recent_by_pod(snapshot, "filtering-events")}


def _other(snapshot: Snapshot, free: int, key: Key, pod: Fields) -> Cause | None:
    """Return why nodes with free GPUs don't take a pod, in the scheduler's words."""
    said = facts.why_waiting(pod)
    hamis = _hamis_words(snapshot).get(facts.full_name(pod), "")
    codes = _HAMI.findall(hamis)
    short = cards_lacking(facts.spec_of(pod), shared_cards(snapshot))
    if short is not None:
        what = f"No GPU has what it asks HAMi for: {short.text}."
        return Cause(UNSCHEDULABLE, what, hamis or said, Fix(_HAMI_FIX, _edit(key)))
    if hamis:
        say = next((fix for word, fix in _HAMI_FIXES if codes and word in codes[0]), _HAMI_FIX)
        why = ", ".join(dict.fromkeys(codes)) or hamis
        what = f"HAMi's scheduler finds no GPU for it: {why}."
        return Cause(UNSCHEDULABLE, what, hamis, Fix(say, _edit(key)))
    reasons = reasons_in(said)
    for word, fix in _FIXES:
        named = next((reason for reason in reasons if word in reason), None)
        if named is not None:
            return Cause(
                UNSCHEDULABLE,
                f"No node takes it, and GPUs are not the reason: {named}.",
                f"{counted(free, 'node')} with its GPUs free; {said}",
                Fix(fix, _edit(key)),
            )
    if reasons and all(any(word in each for word in _GPU_WORDS) for each in reasons):
        return None
    return Cause(
        UNSCHEDULABLE,
        "No node takes it, and GPUs are not the reason.",
        f"{counted(free, 'node')} with its GPUs free; {said}",
        Fix(UNSCHEDULABLE.fix, _edit(key)),
    )


def _edit(key: Key) -> str:
    kind, namespace, name = key
    return f"kubectl edit {kind.lower()} -n {namespace} {name}"

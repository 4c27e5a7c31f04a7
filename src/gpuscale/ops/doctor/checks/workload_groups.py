"""Groups of pods of which a part runs: LeaderWorkerSets, and gangs of other schedulers.

Source: sigs.k8s.io/lws pkg/utils/pod (labels); scheduler-plugins pkg/coscheduling/core (PreFilter);
    volcano pkg/scheduler/api (FitError of a pod group); kubernetes v1.37 pkg/scheduler
    (schedule_one_podgroup.go, gangscheduling).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import Outlook
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.node_pools import MAX_WAIT_MS, verdict_of
from gpuscale.ops.doctor.snapshot import Snapshot

GROUP_CHECKS = Checks(WORKLOAD)
GROUP_IN_PARTS = GROUP_CHECKS.add(
    "group-in-parts",
    Severity.ERROR,
    "Pods that serve only as a whole group, and of which a part has no node or is not made.",
    "Let the group start whole or not at all, with a gang scheduler or a queue; or make fewer groups.",
)

_SET, _GROUP = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"
_SIBLINGS = re.compile(
    r"cannot find enough sibling pods, current pods number: (?P<there>\d+), minMember of group: "
    r"(?P<least>\d+)"
)
_GANG = re.compile(
    r"pod group is not ready, .*?\d+ minAvailable"
    r"|minCount \(\d+\) cannot be satisfied: \d+ scheduled, \d+ remaining"
)


def gang_words(pod: Fields) -> tuple[str, Fix] | None:
    """Return what a gang scheduler waits for before it places a pod, and what to do; None for others."""
    said = facts.why_waiting(pod)
    short = _SIBLINGS.search(said)
    if short is not None:
        return (
            f"Its group starts all or none, and has {short['there']} of {short['least']} pods: the scheduler "
            "waits for the others to be made.",
            Fix(
                f"Make {short['least']} pods of the group, or lower its minMember to {short['there']}.",
                f"kubectl get podgroups -n {facts.namespace(pod)}",
            ),
        )
    gang = _GANG.search(said)
    if gang is None:
        return None
    return (
        f"Its group starts all or none, and too few of its pods find a node: {gang[0]}.",
        Fix(GROUP_IN_PARTS.fix, f"kubectl describe podgroups -n {facts.namespace(pod)}"),
    )


@dataclass(slots=True)
class _Group:
    bound: list[Fields] = field(default_factory=list)
    waiting: list[Fields] = field(default_factory=list)


def _may_follow(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether a node may still come for a pod, in the time that nodes take."""
    created = pod.child("metadata").time_ms("creationTimestamp") or 0
    is_young = snapshot.now_ms - created <= MAX_WAIT_MS
    return is_young and verdict_of(snapshot, pod).outlook in (Outlook.COMING, Outlook.EXPECTED)


@once
def _groups(snapshot: Snapshot) -> Mapping[tuple[str, str], Mapping[str, _Group]]:
    """Return the groups of which a part has nodes, by namespace and name of their LeaderWorkerSet."""
    found: dict[tuple[str, str], dict[str, _Group]] = {}
    for pod in facts.active_pods(snapshot):
        given = facts.labels(pod)
        if _SET in given:
            of_set = found.setdefault((facts.namespace(pod), given[_SET]), {})
            group = of_set.setdefault(given.get(_GROUP, ""), _Group())
            if pod.child("spec").text("nodeName"):
                group.bound.append(pod)
            elif facts.condition(pod, "PodScheduled") == "False" and not _may_follow(snapshot, pod):
                group.waiting.append(pod)
    return {
        key: parts
        for key, of_set in found.items()
        if (parts := {index: each for index, each in of_set.items() if each.bound and each.waiting})
    }


@once
def pods_in_parts(snapshot: Snapshot) -> frozenset[str]:
    """Return, as `namespace/name`, the pods that wait while others of their group have nodes."""
    return frozenset(
        facts.full_name(pod)
        for of_set in _groups(snapshot).values()
        for group in of_set.values()
        for pod in group.waiting
    )


def group_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the LeaderWorkerSets whose groups hold GPUs and don't serve."""
    for (namespace, name), parts in _groups(snapshot).items():
        bound = [pod for group in parts.values() for pod in group.bound]
        held = sum(facts.wanted_gpus(facts.spec_of(pod)) for pod in bound)
        first = next(iter(parts.values())).waiting[0]
        yield GROUP_IN_PARTS.found(
            f"leaderworkerset/{namespace}/{name}",
            f"{counted(len(parts), 'group')} of LeaderWorkerSet {namespace}/{name} "
            f"{'has' if len(parts) == 1 else 'have'} nodes for a part of the pods only: "
            f"{counted(held, 'GPU')} are held, and nothing is served.",
            f"pod {facts.full_name(first)}: {facts.why_waiting(first)}",
            Fix(
                GROUP_IN_PARTS.fix,
                f"kubectl get pods -n {namespace} -l {_SET}={name} -o wide",
            ),
        )

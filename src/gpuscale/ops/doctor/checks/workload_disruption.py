"""Disruption: PodDisruptionBudgets that block evictions, and pods preempted for a higher priority.

Source: kubernetes v1.37 pkg/scheduler/framework/preemption (event Preempted: of the pod that goes, with the
    uid of the one that it goes for).
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.label_index import LabelIndex, SelectorIndex
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, subjects
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

DISRUPTION_CHECKS = Checks(WORKLOAD)
PDB_BLOCKS = DISRUPTION_CHECKS.add(
    "pdb-blocks",
    Severity.NOTE,
    "A PodDisruptionBudget that lets no pod go, so that its nodes can't be drained or removed.",
    "Allow one pod to go: maxUnavailable: 1.",
)

PDBS_OVERLAP = DISRUPTION_CHECKS.add(
    "pdbs-overlap",
    Severity.NOTE,
    "Pods of two PodDisruptionBudgets, which can't be evicted, so that their nodes can't be drained.",
    "Delete one of the two.",
)
POD_PREEMPTED = DISRUPTION_CHECKS.add(
    "pod-preempted",
    Severity.NOTE,
    "Pods that the scheduler ended in the last hour for pods of a higher priority.",
    "Give the workload a PriorityClass as high where it matters as much, or make room for both.",
)
_RECENT_MS = 3_600_000
_PREEMPTOR = re.compile(r"Preempted by pod (\S+)")


def disruption_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the budgets that block the draining of scaled workloads' nodes for ever."""
    for budget in snapshot.all("poddisruptionbudgets"):
        selector, up_to = budget.child("spec").selector("selector"), _blocks_up_to(budget)
        looks = _looks_by_pod_labels(snapshot).get(facts.namespace(budget))
        if selector is not None and looks is not None and up_to > 0:
            blocked = (look for look in looks.selected(selector) if look.hpa.max_replicas <= up_to)
            yield from (_note(budget, look) for look in islice(blocked, 1))
    yield from _overlaps(snapshot)
    yield from _preempted(snapshot)


@once
def _looks_by_pod_labels(snapshot: Snapshot) -> Mapping[str, LabelIndex[HpaLook]]:
    """Return an index of each namespace's HPAs by the labels of their pods."""
    return {
        namespace: LabelIndex(
            (look, facts.labels(pod)) for look in looks for pod in facts.pods_of(snapshot, look)
        )
        for namespace, looks in facts.hpas_by_namespace(snapshot).items()
    }


def _preempted(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    pods = {pod.child("metadata").text("uid"): pod for pod in snapshot.all("pods")}
    found: dict[Key, list[Fields]] = {}
    for event in snapshot.all("preemptions"):
        victim = facts.service_fields(event.child("involvedObject"))
        # The pod is gone; its name is its ReplicaSet's or StatefulSet's, with a suffix.
        name, place = facts.name(victim).rpartition("-")[0], facts.namespace(victim)
        body = facts.named(snapshot, "ReplicaSet", place, name)
        kind, called = (None if body is None else facts.controller(body)) or ("StatefulSet", name)
        at_ms = event.child("metadata").time_ms("creationTimestamp") or 0
        if (kind, place, called) in subjects(snapshot) and snapshot.now_ms - at_ms < _RECENT_MS:
            found.setdefault((kind, place, called), []).append(event)
    for key, events in found.items():
        said = events[-1].text("message")
        by = _PREEMPTOR.search(said)
        known = pods.get(by[1]) if by is not None else None
        such = ""
        if known is not None:
            priority = known.child("spec").integer("priority")
            such = f", such as pod {facts.full_name(known)} ({priority})"
        yield POD_PREEMPTED.found(
            about(key),
            f"{counted(len(events), 'pod')} of it went in the last hour for others of a higher priority"
            f"{such}.",
            f"pod {facts.name(facts.service_fields(events[-1].child('involvedObject')))}: {said}",
            Fix(POD_PREEMPTED.fix, "kubectl get priorityclasses"),
        )


def _overlaps(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    listed: dict[str, list[tuple[Fields, Selector]]] = {}
    for each in snapshot.all("poddisruptionbudgets"):
        if (selector := each.child("spec").selector("selector")) is not None:
            listed.setdefault(facts.namespace(each), []).append((each, selector))
    budgets = {namespace: SelectorIndex(of_it) for namespace, of_it in listed.items()}
    for look in snapshot.hpas:
        if look.namespace not in budgets:
            continue
        for pod in facts.pods_of(snapshot, look)[:1]:
            both = [*budgets[look.namespace].taking(facts.labels(pod))]
            if len(both) > 1:
                names = [facts.name(each) for each in both]
                yield PDBS_OVERLAP.found(
                    f"poddisruptionbudget/{facts.full_name(both[1])}",
                    f"The pods of {look.about} have the budgets {' and '.join(names)}, and none may go.",
                    "the eviction API refuses a pod of several budgets",
                    Fix(
                        PDBS_OVERLAP.fix,
                        f"kubectl get poddisruptionbudget -n {look.namespace} {' '.join(names)} -o yaml",
                    ),
                )


def _blocks_up_to(budget: Fields) -> float:
    """Return the highest replica count at which a budget allows no eviction."""
    spec = budget.child("spec").data
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most in (0, "0", "0%") or least == "100%":
        return math.inf
    return least if isinstance(least, int) else 0


def _note(budget: Fields, look: HpaLook) -> ClusterFinding:
    spec = budget.child("spec").data
    field = "maxUnavailable" if "maxUnavailable" in spec else "minAvailable"
    patch = '{"spec":{"minAvailable":null,"maxUnavailable":1}}'
    return PDB_BLOCKS.found(
        f"poddisruptionbudget/{facts.full_name(budget)}",
        "It lets no pod go, so nodes with these pods can't be drained and the pool never shrinks.",
        f"{field}: {spec[field]}; pods of {look.about}",
        Fix(
            PDB_BLOCKS.fix,
            f"kubectl patch poddisruptionbudget -n {facts.namespace(budget)} {facts.name(budget)} "
            f"--type=merge -p '{patch}'",
        ),
    )

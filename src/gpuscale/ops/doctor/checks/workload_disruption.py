"""Disruption: pods that are preempted for a higher priority.

Source: kubernetes v1.37 pkg/scheduler/framework/preemption (event Preempted: of the pod that goes, with the
    uid of the one that it goes for).
"""

import re
from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, subjects
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.snapshot import Snapshot

DISRUPTION_CHECKS = Checks(WORKLOAD)
POD_PREEMPTED = DISRUPTION_CHECKS.add(
    "pod-preempted",
    Severity.NOTE,
    "Pods that the scheduler ended in the last hour for pods of a higher priority.",
    "Give the workload a PriorityClass as high where it matters as much, or make room for both.",
)
_RECENT_MS = 3_600_000
_PREEMPTOR = re.compile(r"Preempted by pod (\S+)")


def disruption_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the workloads whose pods went for pods of a higher priority."""
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

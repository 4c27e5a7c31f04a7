"""Kueue's objects among a scenario's manifests: what they name has to be there, and to be simulated."""

from collections.abc import Iterable, Sequence

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.errors import Problem
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.kueue import (
    PRIORITY_LABEL,
    QUEUE_LABEL,
    ClusterQueue,
    KueueObject,
    LocalQueue,
    ResourceFlavor,
    WorkloadPriorityClass,
)
from gpuscale.base.objects.manifests import KubernetesObject
from gpuscale.base.objects.workloads import Deployment, Job, JobSet
from gpuscale.lab.sim.scenario.references import References

_NOT_SIMULATED = ("admissionChecks", "admissionChecksStrategy", "admissionScope", "topologyName")
_PARTIAL = "kueue.x-k8s.io/job-min-parallelism"


def queue_problems(item: KubernetesObject, document: Document) -> Sequence[Problem]:
    """Return what of a manifest's queue is not simulated."""
    fields = Fields(document, document.data)
    labels: Path = ("metadata", "labels", QUEUE_LABEL)
    if isinstance(item, ClusterQueue | ResourceFlavor):
        spec = fields.child("spec")
        for name in _NOT_SIMULATED:
            if name in spec:
                spec.note((name,), "none: it is not simulated", found="one")
        preemption = spec.child("preemption")
        for name in ("withinClusterQueue", "reclaimWithinCohort"):
            if preemption.text(name, "Never") != "Never":
                found = preemption.text(name)
                preemption.note((name,), "Never: preemption is not simulated", found=found)
    elif isinstance(item, Deployment) and QUEUE_LABEL in item.metadata.labels:
        fields.note(labels, "none: queues of Jobs and JobSets alone are simulated", found="one")
    elif isinstance(item, Job) and _PARTIAL in item.metadata.annotations:
        path: Path = ("metadata", "annotations", _PARTIAL)
        fields.note(path, "none: it is not simulated", found="one")
    return fields.problems


def check_queues(objects: Iterable[KubernetesObject], references: References) -> None:
    """Note what queues and the Jobs in them name and the manifests lack."""
    queued = [each for each in objects if isinstance(each, KueueObject | Job | JobSet)]
    by_kind: dict[type, dict[str, KubernetesObject]] = {}
    for item in queued:
        meta = item.metadata
        is_local = isinstance(item, LocalQueue | Job | JobSet)
        by_kind.setdefault(type(item), {})[meta.key if is_local else meta.name] = item
    wanted: list[tuple[type, str, str]] = []
    for item in queued:
        by, labels = f"{type(item).__name__} {item.metadata.name}", item.metadata.labels
        match item:
            case ClusterQueue():
                wanted += [
                    (ResourceFlavor, name, by) for group in item.groups for name, _ in group.flavors
                ]
            case LocalQueue():
                wanted.append((ClusterQueue, item.cluster_queue, by))
            case Job() | JobSet() if QUEUE_LABEL in labels:
                wanted.append((LocalQueue, f"{item.metadata.namespace}/{labels[QUEUE_LABEL]}", by))
                if PRIORITY_LABEL in labels:
                    wanted.append((WorkloadPriorityClass, labels[PRIORITY_LABEL], by))
    for kind, name, by in wanted:
        there = by_kind.get(kind, {})
        if name not in there:
            references.note(
                ("manifests",),
                f"a {kind.__name__} of the manifests (there: {', '.join(there) or 'none'})",
                found=f"{name} in {by}",
            )

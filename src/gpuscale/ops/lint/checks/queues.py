"""Faults between Kueue's queues, and between queues and the workloads in them.

Source: kueue v0.20 pkg/webhooks/clusterqueue_webhook.go (what is refused), pkg/scheduler/flavorassigner (a
    resource that no group covers, a quota that is too small).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.quantity import parse_quantity
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.gpu_pods import GpuPods
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.node_inputs import by_name
from gpuscale.ops.lint.parts import Part, whole_document
from gpuscale.ops.lint.problems import REFUSED_MANIFEST

_CHECKS = Checks()
UNCOVERED_RESOURCE = _CHECKS.add(
    "uncovered-resource",
    Severity.WARNING,
    "A workload in a Kueue queue that asks for a GPU resource without quota: it is never admitted.",
    "Add the resource to coveredResources of the ClusterQueue, with a quota in each flavor; Kueue's own "
    "configuration may leave it out or rename it (excludeResourcePrefixes, transformations).",
)
ABOVE_QUOTA = _CHECKS.add(
    "above-quota",
    Severity.WARNING,
    "A workload in a Kueue queue that asks for more GPUs than its ClusterQueue has: it is never admitted.",
    "Raise nominalQuota, let the ClusterQueue borrow in a cohort, or ask for less.",
)

_QUEUE = "kueue.x-k8s.io/queue-name"
_LEAST = "kueue.x-k8s.io/job-min-parallelism"


def queue_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' queues."""
    objects = inputs.nodes.objects
    clusters = {each.text("metadata", "name"): each for each in objects.get("ClusterQueue", ())}
    for queue in clusters.values():
        yield from _groups(queue)
    queues = by_name(objects.get("LocalQueue", []))
    waiting: dict[int, list[GpuPods]] = {}
    for pods in inputs.nodes.pods:
        waiting.setdefault(id(pods.part.document), []).append(pods)
    for workload in waiting.values():
        whole = whole_document(workload[0].part.document)
        name = whole.text("metadata", "labels", _QUEUE) or whole.text(
            "metadata", "annotations", _QUEUE
        )
        local = queues.get((workload[0].namespace, name))
        cluster = clusters.get(local.text("spec", "clusterQueue")) if local is not None else None
        if cluster is not None:
            yield from _workload(workload, whole, cluster)


def _groups(queue: Part) -> Iterator[LintFinding]:
    for group in queue.items("spec", "resourceGroups"):
        covered = group.texts("coveredResources")
        for flavor in group.items("flavors"):
            named = tuple(each.text("name") for each in flavor.items("resources"))
            if named != covered:
                yield REFUSED_MANIFEST.found(
                    flavor.place("resources"),
                    f"Found resources {', '.join(named) or 'none'}, expected those of coveredResources in "
                    f"their order: {', '.join(covered)}.",
                    "",
                    "Correct it; Kueue's webhook refuses it.",
                )


def _workload(workload: Sequence[GpuPods], whole: Part, cluster: Part) -> Iterator[LintFinding]:
    name = cluster.text("metadata", "name")
    quotas = _quotas(cluster)
    borrows = bool(cluster.text("spec", "cohort") or cluster.text("spec", "cohortName"))
    total: dict[str, int] = {}
    largest: dict[str, int] = {}
    for pods in workload:
        for resource, count in pods.gpus.items():
            asked = count * pods.copies
            total[resource] = total.get(resource, 0) + asked
            largest[resource] = max(largest.get(resource, 0), asked)
    for resource, count in total.items():
        place = next(each for each in workload if resource in each.gpus).part.place("containers")
        if resource not in quotas:
            covered = ", ".join(sorted(quotas)) or "none"
            yield UNCOVERED_RESOURCE.found(
                place,
                f"ClusterQueue {name} has no quota of {resource}: Kueue keeps the workload waiting.",
                f"{cluster.place('spec', 'resourceGroups')}: {covered}",
            )
            continue
        # Each template gets one flavor, so the largest has to fit in one of them.
        is_above = largest[resource] > max(quotas[resource]) or count > sum(quotas[resource])
        is_whole = whole.at("metadata", "annotations", _LEAST).data is None
        if is_above and is_whole and not borrows:
            yield ABOVE_QUOTA.found(
                place,
                f"The workload asks for {count} {resource}, and ClusterQueue {name} has "
                f"{sum(quotas[resource])}, at most {max(quotas[resource])} in one flavor: Kueue never admits "
                "it.",
                f"{cluster.place('spec', 'resourceGroups')}",
            )


def _quotas(cluster: Part) -> Mapping[str, Sequence[int]]:
    """Return the quotas of each resource, one for each flavor."""
    found: dict[str, list[int]] = {}
    for group in cluster.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            for each in flavor.items("resources"):
                with suppress(ValueError):
                    quota = parse_quantity(each.text("nominalQuota") or "0").value()
                    found.setdefault(each.text("name"), []).append(quota)
    return found


JUDGE = FileJudge("queues", _CHECKS, queue_findings)

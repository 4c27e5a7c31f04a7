"""What live autoscalers and their targets say themselves, by the judges of `gpuscale lint`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.base.objects.hpa import ContainerResourceMetric
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import (
    API,
    AUTOSCALER,
    CAPACITY,
    PROMETHEUS,
    WORKLOAD,
    ClusterFinding,
    ClusterJudge,
)
from gpuscale.ops.doctor.live_objects import live_cluster
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.ops.lint.checks import CHAIN_CHECKS
from gpuscale.ops.lint.checks.placement import LARGER_THAN_ANY_NODE
from gpuscale.ops.lint.checks.scale_targets import NO_GPU_REQUEST, NO_RESOURCE_REQUEST
from gpuscale.ops.lint.cluster import AbsentTarget
from gpuscale.ops.lint.inputs import object_name
from gpuscale.ops.lint.linting import lint
from gpuscale.ops.lint.problems import BROKEN_FILE
from gpuscale.ops.lint.workloads import found_kind

_HOPS = {
    **dict.fromkeys(("hpa", "scaledobject"), AUTOSCALER),
    **dict.fromkeys(("nodepool", "resourcequota", "clusterqueue", "localqueue"), CAPACITY),
    "configmap": API,
    "servicemonitor": PROMETHEUS,
}
"""The part of the chain that a kind of object is of; others are workloads."""
_KNOWN_BETTER = frozenset({LARGER_THAN_ANY_NODE.id, BROKEN_FILE.id})
"""What the nodes that are there, and the servers of rules, say more of."""
_NEEDS_RULES = frozenset({"unknown-metric", "misspelled-metric", "metric-not-for-resource"})


def written_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return lint's findings about live objects, without notes that are about files."""
    live = live_cluster(snapshot, [look.body for look in snapshot.hpas])
    report = lint((), cluster=replace(live, absent=_absent(snapshot), measured=_measured(snapshot)))
    looks = {look.about: look for look in snapshot.hpas}
    abouts = {object_name(each): _about(each) for each in live.objects}
    for each in report.findings:
        check, where = each.check, abouts.get(each.where.file)
        if where is None or (check.severity is Severity.NOTE and not check.hop):
            continue
        if check.id in _KNOWN_BETTER or (not snapshot.rule_maps and check.id in _NEEDS_RULES):
            continue
        look, fix = looks.get(where), each.fix
        if look is not None and check.id == NO_RESOURCE_REQUEST.id and _has_request(snapshot, look):
            continue
        if look is not None and check.id == NO_GPU_REQUEST.id:
            fix = _ask_for_gpu(snapshot, look)
        evidence = "; ".join(filter(None, (each.where.field, *each.evidence.splitlines())))
        hop = check.hop or _HOPS.get(where.partition("/")[0], WORKLOAD)
        yield replace(check, hop=hop).found(where, each.what, evidence, fix)


def _about(body: Mapping[str, Any]) -> str:
    """Return an object's name in findings."""
    metadata, kind = fields_of(dict(body)).child("metadata"), str(body["kind"]).lower()
    kind = "hpa" if kind == "horizontalpodautoscaler" else kind
    return "/".join(filter(None, (kind, metadata.text("namespace"), metadata.text("name"))))


def _absent(snapshot: Snapshot) -> dict[str, AbsentTarget]:
    found = {}
    for look in snapshot.hpas:
        target = look.hpa.target
        if look.target_is_absent and facts.workload_of(snapshot, look) is None:
            place = f"HPA {look.namespace}/{look.hpa.metadata.name}"
            plural = facts.WORKLOADS.get(target.kind, "")
            found[place] = _elsewhere(snapshot, plural, target.name, look.target_fault)
    for body in snapshot.all("scaledobjects"):
        namespace = facts.namespace(body)
        kind, name = _target(body)
        plural = facts.WORKLOADS.get(kind, "")
        if snapshot.serves(plural) and facts.named(snapshot, kind, namespace, name) is None:
            said = f"no {plural} of the namespace has that name"
            place = f"ScaledObject {facts.full_name(body)}"
            found[place] = _elsewhere(snapshot, plural, name, said)
    return found


def _elsewhere(snapshot: Snapshot, plural: str, name: str, said: str) -> AbsentTarget:
    places = facts.namespaces_by_name(snapshot, plural).get(name, ())
    return AbsentTarget(said, tuple(sorted(places)))


def _target(scaled: Fields) -> tuple[str, str]:
    target = scaled.child("spec").child("scaleTargetRef")
    return found_kind(target.text("kind") or "Deployment"), target.text("name")


def _measured(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    return frozenset(
        (f"{look.namespace}/{look.hpa.metadata.name}", metric.spec.name)
        for look in snapshot.hpas
        for metric in look.metrics
        if metric.values
    )


def _has_request(snapshot: Snapshot, look: HpaLook) -> bool:
    """Return whether the pods make the requests that their template lacks, as a LimitRange gives them."""
    pods = facts.pods_of(snapshot, look)
    wanted = {each.spec.name for each in look.metrics} & {"cpu", "memory"}
    named = {
        each.container for each in look.hpa.metrics if isinstance(each, ContainerResourceMetric)
    }
    return bool(pods) and all(
        named <= {each.name for each in containers}
        and all(wanted <= each.requests.keys() for each in containers)
        for containers in (facts.spec_of(pod).containers for pod in pods)
    )


def _ask_for_gpu(snapshot: Snapshot, look: HpaLook) -> Fix:
    """Return the command where one container can be meant, and the nodes offer one kind of whole GPUs."""
    workload = facts.workload_of(snapshot, look)
    containers = () if workload is None else facts.template_of(workload).containers
    offered, is_shared = _offered(snapshot)
    target = look.hpa.target
    if len(containers) == 1 and not is_shared and [*map(gpu_kind, offered)] == [GpuKind.WHOLE]:
        return Fix(
            NO_GPU_REQUEST.fix,
            f"kubectl set resources -n {look.namespace} {target.kind.lower()} {target.name} "
            f"-c {containers[0].name} --limits={next(iter(offered))}=1",
        )
    listed = f"; nodes offer {', '.join(sorted(offered))}" if offered else ""
    return Fix(
        f"{NO_GPU_REQUEST.fix.removesuffix('.')}{listed}.",
        f"kubectl get {target.kind.lower()} -n {look.namespace} {target.name} -o yaml",
    )


@once
def _offered(snapshot: Snapshot) -> tuple[frozenset[str], bool]:
    """Return the names under which nodes offer GPUs, and whether any node counts one GPU as several."""
    nodes = facts.gpu_nodes(snapshot)
    offered = frozenset(
        key
        for node in nodes
        for key, amount in node.child("status").quantities("allocatable").items()
        if gpu_kind(key) is not None and amount.nano > 0
    )
    return offered, any(map(facts.shares_gpus, nodes))


JUDGE = ClusterJudge("as-written", Checks(AUTOSCALER, including=CHAIN_CHECKS), written_findings)

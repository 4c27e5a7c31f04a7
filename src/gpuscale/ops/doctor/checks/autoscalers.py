"""HPAs: the values they get, their conditions, and whether their targets make sense."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import GpuKind, gpu_kind
from gpuscale.base.objects.hpa import PodsMetric
from gpuscale.hpa.terms import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED, spec_unit_fault
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.keda import KEDA_CHECKS, keda_findings
from gpuscale.ops.doctor.checks.targets import TARGET_CHECKS, is_paused, target_findings
from gpuscale.ops.doctor.checks.values import VALUE_CHECKS, value_findings
from gpuscale.ops.doctor.checks.workload_subjects import wants_gpus
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import AUTOSCALER, LINT, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.ops.lint.linting import lint
from gpuscale.signals import GPU_SIGNALS

_CHECKS = Checks(AUTOSCALER, including=(TARGET_CHECKS, VALUE_CHECKS, KEDA_CHECKS))
OLD_API_VERSION = _CHECKS.add(
    "old-api-version",
    Severity.ERROR,
    "An HPA whose manifest the cluster refuses from now on.",
    "Rewrite the manifest as autoscaling/v2; metricName becomes metric.name, and "
    "targetAverageValue becomes target.averageValue.",
)
NO_GPU_REQUEST = _CHECKS.add(
    "no-gpu-request",
    Severity.WARNING,
    "Scaled by a GPU metric, and no container asks for a GPU.",
    "Give the container a limit: only so a GPU is known to be the pod's.",
)
NOT_SCALING = _CHECKS.add(
    "not-scaling",
    Severity.WARNING,
    "A condition of the HPA that says it can't scale.",
    "See its message; the controller looks again every 15 s.",
)
AT_MAX = _CHECKS.add(
    "at-max",
    Severity.WARNING,
    "More replicas are wanted than maxReplicas.",
    "Raise maxReplicas, as far as quota and node pools go.",
)
RULES_UNREADABLE = _CHECKS.add(
    "rules-unreadable",
    Severity.ERROR,
    "Rules in a ConfigMap that can't be read.",
    "Correct the rules in the ConfigMap; the message names the place.",
)
MIN_IS_MAX = _CHECKS.add(
    "min-is-max",
    Severity.WARNING,
    "minReplicas is maxReplicas, so nothing scales.",
    "Raise maxReplicas.",
)

_REASONS = (
    (
        "AmbiguousSelector",
        "Give each workload a label of its own, in its selector and pod template.",
    ),
    ("InvalidSelector", "Give the target a selector that is valid."),
    ("FailedGetScale", "Correct scaleTargetRef: the target has no scale to read."),
    ("FailedUpdateScale", "See why the API server refuses the new size; a webhook may."),
    ("FailedGetResourceMetric", "See that metrics-server runs and knows the pods."),
    ("FailedGetContainerResourceMetric", "See that metrics-server runs and knows the pods."),
    ("FailedGet", "Ask for the metric as the controller does; the message names it."),
    ("InvalidMetricSourceType", "Correct the type of the metric."),
    ("FailedComputeMetricsReplicas", "See each metric; the message names the first that failed."),
)
"""A word in a condition's reason, and what to do."""
_GPU_METRICS = {signal.metric for signal in GPU_SIGNALS.values()}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ADDED = ("status",)
_ADDED_META = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp")
_OF_FILES = frozenset({"zero-in-manifest"})
"""What lint says of files alone: in a cluster, replicas are the autoscaler's own work."""
_NEEDS_RULES = frozenset({"unknown-metric", "misspelled-metric", "metric-not-for-resource"})


def hpa_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults of HPAs and of the values they get."""
    for look in snapshot.hpas:
        yield from _version(snapshot, look)
        yield from target_findings(snapshot, look)
        yield from _gpu_request(snapshot, look)
        for metric in look.metrics:
            yield from value_findings(snapshot, look, metric)
        yield from _conditions(snapshot, look)
        yield from _limits(look)
    yield from keda_findings(snapshot)
    yield from _rules(snapshot)
    yield from _lint(snapshot)


def _rules(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for body in map(fields_of, map(dict, snapshot.rule_maps)):
        for key, text in body.child("data").data.items():
            if not key.endswith((".yaml", ".yml")):
                continue
            try:
                load_documents(str(text), key)
            except ConfigError as error:
                place = f"-n {facts.namespace(body)} {facts.name(body)}"
                yield RULES_UNREADABLE.found(
                    f"configmap/{facts.full_name(body)}",
                    "Its rules can't be read; the server goes on with those it has, until it restarts.",
                    str(error).splitlines()[0],
                    Fix(RULES_UNREADABLE.fix, f"kubectl edit configmap {place}"),
                )


def _version(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    body = fields_of(dict(look.body))
    metadata = body.child("metadata")
    used = [each.text("apiVersion") for each in metadata.items("managedFields")]
    used.append(_applied_version(metadata.labels("annotations").get(_LAST_APPLIED, "")))
    for version in dict.fromkeys(used):
        is_hpas = version.startswith("autoscaling/")
        if not is_hpas or not snapshot.hpa_versions or version in snapshot.hpa_versions:
            continue
        place = f"-n {look.namespace} {look.hpa.metadata.name}"
        yield OLD_API_VERSION.found(
            look.about,
            f"Its manifest is {version}, which this cluster refuses: it can't be applied again.",
            f"it serves {', '.join(snapshot.hpa_versions)}",
            Fix(
                OLD_API_VERSION.fix,
                f"kubectl get hpa.v2.autoscaling {place} -o yaml",
            ),
        )


def _applied_version(text: str) -> str:
    try:
        manifest = json.loads(text)
    except ValueError:
        return ""
    return str(manifest.get("apiVersion", "")) if isinstance(manifest, dict) else ""


def _gpu_request(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    target = look.hpa.target
    workload = facts.workload_of(snapshot, look)
    if workload is None or wants_gpus(workload.child("spec").child("template")):
        return
    for metric in look.metrics:
        # If the metric has values, GPUs are evidently tied to the pods, by whatever scheme.
        if (
            isinstance(metric.spec, PodsMetric)
            and metric.spec.name in _GPU_METRICS
            and not metric.values
        ):
            yield NO_GPU_REQUEST.found(
                look.about,
                f"It is scaled by {metric.spec.name}, and no container of it asks for a GPU.",
                f"{target.kind} {look.namespace}/{target.name} has no limit of a GPU resource",
                _ask_for_gpu(snapshot, workload, look),
            )


def _ask_for_gpu(snapshot: Snapshot, workload: Fields, look: HpaLook) -> Fix:
    """Return the command where one container can be meant, and the nodes offer one kind of whole GPUs."""
    containers = facts.template_of(workload).containers
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


# What the HPA says of itself


def _conditions(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    if look.target_is_absent:
        return
    for kind in (ABLE_TO_SCALE, SCALING_ACTIVE):
        condition = _condition(look, kind)
        if condition is None or condition.text("status") != "False":
            continue
        reason, message = condition.text("reason"), condition.text("message")
        if reason == "ScalingDisabled" or is_paused(look, facts.workload_of(snapshot, look)):
            continue
        say = next((fix for word, fix in _REASONS if word in reason), NOT_SCALING.fix)
        if "is forbidden: User" in message:
            say = (
                "Give the HPA controller its rights back: ClusterRole and binding "
                "system:controller:horizontal-pod-autoscaler, which an API server restores as it starts."
            )
        yield NOT_SCALING.found(
            look.about,
            f"{kind} is False: {reason}.",
            message,
            Fix(say, f"kubectl describe hpa -n {look.namespace} {look.hpa.metadata.name}"),
        )


def _condition(look: HpaLook, kind: str) -> Fields | None:
    listed = fields_of(dict(look.body)).child("status").items("conditions")
    return next((each for each in listed if each.text("type") == kind), None)


def _limits(look: HpaLook) -> Iterator[ClusterFinding]:
    least, most = look.hpa.min_replicas, look.hpa.max_replicas
    place = f"-n {look.namespace} {look.hpa.metadata.name}"
    patch = f"""kubectl patch hpa {place} -p '{{"spec":{{"maxReplicas":{most + 1}}}}}'"""
    if least == most:
        yield MIN_IS_MAX.found(
            look.about,
            f"minReplicas and maxReplicas are both {most}, so nothing scales.",
            f"minReplicas: {least}, maxReplicas: {most}",
            Fix(MIN_IS_MAX.fix, patch),
        )
        return
    if any(spec_unit_fault(metric.spec) for metric in look.metrics):
        return  # Lint names the target in another unit, which is why more replicas are wanted.
    limited = _condition(look, SCALING_LIMITED)
    if limited is not None and limited.text("reason") == "TooManyReplicas":
        yield AT_MAX.found(
            look.about,
            f"More than its {most} replicas are wanted.",
            limited.text("message"),
            Fix(AT_MAX.fix, patch),
        )


# What lint says


def _lint(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return lint's findings about the live objects, without its notes."""
    texts = [(look.about, _manifest(look.body)) for look in snapshot.hpas]
    if not texts:
        return
    targets = {}  # each once, however many HPAs scale it
    for look in snapshot.hpas:
        body = facts.workload_of(snapshot, look)
        if body is not None and look.hpa.target.kind == "Deployment":
            targets[facts.full_name(body)] = body
    for name, body in targets.items():
        typed = {"apiVersion": "apps/v1", "kind": "Deployment", **body.data}
        texts.append((f"deployment/{name}", _manifest(typed)))
    rules = [_manifest(body) for body in snapshot.rule_maps]
    texts += [(f"configmap/{index}", text) for index, text in enumerate(rules)]
    try:
        report = lint(texts, kubernetes=snapshot.kubernetes)
    except ConfigError:
        return  # Something that lint can't read, such as rules that are no YAML.
    for each in report.findings:
        if each.check.severity is Severity.NOTE or not each.where.file.startswith("hpa/"):
            continue
        if not rules and each.check.id in _NEEDS_RULES:
            continue
        if each.check.id in _OF_FILES:
            continue
        check = replace(each.check, id=LINT + each.check.id, hop=AUTOSCALER)
        evidence = "; ".join(filter(None, (each.where.field, *each.evidence.splitlines())))
        yield check.found(each.where.file, each.what, evidence, each.fix)


def _manifest(body: Mapping[str, Any]) -> str:
    """Return an object as a manifest, without the fields that the API server added."""
    metadata = {key: each for key, each in body["metadata"].items() if key not in _ADDED_META}
    rest = {key: each for key, each in body.items() if key not in _ADDED}
    return dump_documents([{**rest, "metadata": metadata}])


JUDGE = ClusterJudge("autoscalers", _CHECKS, hpa_findings)

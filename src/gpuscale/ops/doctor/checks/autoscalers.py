"""HPAs: the values they get, their conditions, and whether their targets make sense."""

import json
from collections.abc import Iterator

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import PodsMetric
from gpuscale.hpa.terms import (
    ABLE_TO_SCALE,
    SCALING_ACTIVE,
    SCALING_LIMITED,
    is_one_number,
    spec_unit_fault,
)
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.keda import KEDA_CHECKS, keda_findings
from gpuscale.ops.doctor.checks.targets import TARGET_CHECKS, is_paused, target_findings
from gpuscale.ops.doctor.checks.values import VALUE_CHECKS, value_findings
from gpuscale.ops.doctor.judges import AUTOSCALER, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.ops.lint.checks.hpas import REMOVED_API_VERSION

_CHECKS = Checks(AUTOSCALER, including=(TARGET_CHECKS, VALUE_CHECKS, KEDA_CHECKS))
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
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_REWRITE = (
    "Rewrite the manifest as autoscaling/v2; metricName becomes metric.name, and "
    "targetAverageValue becomes target.averageValue."
)


def hpa_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults of HPAs and of the values they get."""
    for look in snapshot.hpas:
        yield from _version(snapshot, look)
        yield from target_findings(snapshot, look)
        for metric in look.metrics:
            yield from value_findings(snapshot, look, metric)
        yield from _conditions(snapshot, look)
        yield from _limits(look)
    yield from keda_findings(snapshot)
    yield from _rules(snapshot)


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
        yield REMOVED_API_VERSION.found(
            look.about,
            f"Its manifest is {version}, which this cluster refuses: it can't be applied again.",
            f"it serves {', '.join(snapshot.hpa_versions)}",
            Fix(
                _REWRITE,
                f"kubectl get hpa.v2.autoscaling {place} -o yaml",
            ),
        )


def _applied_version(text: str) -> str:
    try:
        manifest = json.loads(text)
    except ValueError:
        return ""
    return str(manifest.get("apiVersion", "")) if isinstance(manifest, dict) else ""


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
        return  # It can't scale, which is said of its limits.
    if any(spec_unit_fault(metric.spec) for metric in look.metrics):
        return  # Lint names the target in another unit, which is why more replicas are wanted.
    limited = _condition(look, SCALING_LIMITED)
    if limited is not None and limited.text("reason") == "TooManyReplicas":
        fix = Fix(AT_MAX.fix, patch)
        for metric in look.metrics:
            name, values = metric.spec.name, [each.value_milli for each in metric.values]
            if isinstance(metric.spec, PodsMetric) and is_one_number(name, values):
                say = (
                    f"All {len(values)} pods report {name} {values[0] / 1000:g}: if it is one number, such "
                    "as a queue's length, more pods don't lower it: take an External one with averageValue."
                )
                fix = Fix(say, metric.command)
        yield AT_MAX.found(
            look.about,
            f"More than its {most} replicas are wanted.",
            limited.text("message"),
            fix,
        )


JUDGE = ClusterJudge("autoscalers", _CHECKS, hpa_findings)

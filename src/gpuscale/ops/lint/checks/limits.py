"""Limits and speeds of autoscalers by which nothing scales, or only one way.

Source: kubernetes v1.37 pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendationWithBehaviors: up
    by the lowest recommendation of the window; calculateScaleUpLimitWithScalingRules: Disabled);
    KEDA v2.21 apis/keda/v1alpha1/scaledobject_types.go (annotations that pause).
"""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.hpa import SelectPolicy
from gpuscale.ops.lint.autoscalers import Autoscaler, autoscalers
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.inputs import FileJudge, Inputs

LIMIT_CHECKS = Checks("autoscaler")
MIN_IS_MAX = LIMIT_CHECKS.add(
    "min-is-max",
    Severity.WARNING,
    "minReplicas is maxReplicas, so nothing scales.",
    "Raise maxReplicas.",
)
SCALE_DOWN_DISABLED = LIMIT_CHECKS.add(
    "scale-down-disabled",
    Severity.NOTE,
    "An HPA that never scales down.",
    "Take behavior.scaleDown.selectPolicy: Disabled out, if that is not meant.",
)
SCALE_UP_DISABLED = LIMIT_CHECKS.add(
    "scale-up-disabled",
    Severity.WARNING,
    "An HPA that never scales up.",
    "Take behavior.scaleUp.selectPolicy: Disabled out.",
)
SLOW_SCALE_UP = LIMIT_CHECKS.add(
    "slow-scale-up",
    Severity.WARNING,
    "A stabilization window of half an hour or more for scaling up, which shorter load never passes.",
    "Leave it out, which is 0; the window of scaleDown is the one against flapping.",
)
SCALED_PAUSED = LIMIT_CHECKS.add(
    "scaled-paused",
    Severity.NOTE,
    "A ScaledObject or ScaledJob that is paused, or whose scaling in or out is.",
    "Take the annotation away for it to go on.",
)

_SLOW_S = 1800
ANNOTATION = "autoscaling.keda.sh/"
PAUSES = {
    "paused": "nothing scales it",
    "paused-replicas": "it stays at {} replicas",
    "paused-scale-in": "it is never scaled in",
    "paused-scale-out": "it is never scaled out",
}
"""What KEDA's annotations do, with their values."""


def limit_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the autoscalers that their own limits keep from scaling."""
    for scaler in autoscalers(inputs):
        if scaler.least == scaler.most and scaler.part.at("spec", "idleReplicaCount").data is None:
            yield MIN_IS_MAX.found(
                scaler.part.place("spec", scaler.most_key),
                f"{scaler.least_key} and {scaler.most_key} are both {scaler.most}, so nothing scales.",
                f"{scaler.least_key}: {scaler.least}, {scaler.most_key}: {scaler.most}",
                Fix(f"Raise {scaler.most_key}.", scaler.patch({scaler.most_key: scaler.most + 1})),
            )
        yield from _one_way(scaler)
        if scaler.is_kedas:
            yield from _paused(scaler)


def _one_way(scaler: Autoscaler) -> Iterator[LintFinding]:
    behavior, disabled = scaler.behavior, SelectPolicy.DISABLED.value
    for key, check, what in (
        ("scaleDown", SCALE_DOWN_DISABLED, "It never scales down."),
        ("scaleUp", SCALE_UP_DISABLED, "It never scales up."),
    ):
        if behavior.text(key, "selectPolicy") == disabled:
            yield check.found(
                behavior.place(key, "selectPolicy"),
                what,
                f"behavior.{key}.selectPolicy: {disabled}",
                Fix(check.fix, scaler.patch_behavior({key: {"selectPolicy": "Max"}})),
            )
    window = behavior.whole("scaleUp", "stabilizationWindowSeconds")
    if window is not None and window >= _SLOW_S:
        yield SLOW_SCALE_UP.found(
            behavior.place("scaleUp", "stabilizationWindowSeconds"),
            f"It scales up to the lowest that was wanted in {window // 60} minutes: a shorter load gets no "
            "pod, and a longer one waits so long.",
            f"behavior.scaleUp.stabilizationWindowSeconds: {window}",
            Fix(
                SLOW_SCALE_UP.fix,
                scaler.patch_behavior({"scaleUp": {"stabilizationWindowSeconds": 0}}),
            ),
        )


def _paused(scaler: Autoscaler) -> Iterator[LintFinding]:
    annotations = scaler.part.fields("metadata", "annotations")
    pauses = {key: str(annotations.get(ANNOTATION + key, "false")) for key in PAUSES}
    there = [key for key, text in pauses.items() if text.lower() != "false"]
    if there:
        key = there[0]
        yield SCALED_PAUSED.found(
            scaler.part.place("metadata", "annotations", ANNOTATION + key),
            f"It is paused: {PAUSES[key].format(pauses[key])}.",
            f"annotation {ANNOTATION}{key}: {pauses[key]}",
            Fix(
                SCALED_PAUSED.fix,
                scaler.kubectl("annotate", *(f"{ANNOTATION}{each}-" for each in there)),
            ),
        )


JUDGE = FileJudge("limits", LIMIT_CHECKS, limit_findings)

"""An HPA's scaling rules, as a field or as an annotation in old versions.

Source: kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go, v2/defaults.go, v1/conversion.go.
"""

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.types import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from gpuscale.base.objects.hpa.values import (
    annotated_fields,
    annotation_json,
    int32,
    note_invalid,
    note_required,
    note_unsupported,
)
from gpuscale.base.quantity import Quantity

MAX_STABILIZATION_WINDOW_S = 3600
MAX_PERIOD_S = 1800
BEHAVIOR_ANNOTATION = "autoscaling.alpha.kubernetes.io/behavior"
_NO_POLICY = "must specify at least one Policy"


def read_behavior(fields: Fields, spec: Fields, version: str) -> Behavior | None:
    """Return the scaling rules; None where the manifest gives none."""
    if version in {"v1", "v2beta1"}:
        data = annotation_json(fields, BEHAVIOR_ANNOTATION, go_names=True)
        behavior = annotated_fields(fields, BEHAVIOR_ANNOTATION, data).child(BEHAVIOR_ANNOTATION)
        tolerances = True
        if "scaleUp" not in behavior and "scaleDown" not in behavior:
            return None
        # The API server adds default policies to the field, but not to an annotation.
        for key in ("scaleUp", "scaleDown"):
            if key in behavior and "policies" not in behavior.child(key):
                note_required(behavior, (key, "policies"), _NO_POLICY)
    elif "behavior" in spec:
        behavior, tolerances = spec.child("behavior"), version == "v2"
    else:
        return None
    return Behavior(
        scale_up=_rules(behavior.child("scaleUp"), DEFAULT_SCALE_UP, tolerances=tolerances),
        scale_down=_rules(behavior.child("scaleDown"), DEFAULT_SCALE_DOWN, tolerances=tolerances),
    )


def _rules(fields: Fields, default: ScalingRules, *, tolerances: bool) -> ScalingRules:
    return ScalingRules(
        policies=_policies(fields, default.policies),
        select_policy=_select_policy(fields),
        stabilization_window_s=_window(fields, default.stabilization_window_s),
        tolerance=_tolerance(fields) if tolerances else None,
    )


def _policies(fields: Fields, default: tuple[ScalingPolicy, ...]) -> tuple[ScalingPolicy, ...]:
    if "policies" not in fields:
        return default
    if fields.data["policies"] == []:
        note_required(fields, "policies", _NO_POLICY)
    return tuple(_policy(item) for item in fields.items("policies"))


def _policy(fields: Fields) -> ScalingPolicy:
    value, period_s = _above_zero(fields, "value"), _above_zero(fields, "periodSeconds")
    if period_s > MAX_PERIOD_S:
        note_invalid(
            fields, "periodSeconds", period_s, f"must be less than or equal to {MAX_PERIOD_S}"
        )
    return ScalingPolicy(_policy_type(fields), value, period_s)


def _above_zero(fields: Fields, key: str) -> int:
    number = int32(fields, key) if key in fields else 0
    if number is None:
        return 1
    if number <= 0:
        note_invalid(fields, key, number, "must be greater than zero")
    return number


def _policy_type(fields: Fields) -> PolicyType:
    text = fields.text("type")
    if text not in {kind.value for kind in PolicyType}:
        note_unsupported(fields, "type", text, ("Percent", "Pods"))
        return PolicyType.PODS
    return PolicyType(text)


def _select_policy(fields: Fields) -> SelectPolicy:
    if "selectPolicy" not in fields:
        return SelectPolicy.MAX
    text = fields.text("selectPolicy")
    if text not in {policy.value for policy in SelectPolicy}:
        note_unsupported(fields, "selectPolicy", text, ("Disabled", "Max", "Min"))
        return SelectPolicy.MAX
    return SelectPolicy(text)


def _window(fields: Fields, default: int | None) -> int | None:
    key = "stabilizationWindowSeconds"
    seconds = int32(fields, key)
    if seconds is None:
        return default
    if seconds < 0:
        note_invalid(fields, key, seconds, "must be greater than or equal to zero")
    if seconds > MAX_STABILIZATION_WINDOW_S:
        limit = f"must be less than or equal to {MAX_STABILIZATION_WINDOW_S}"
        note_invalid(fields, key, seconds, limit)
    return seconds


def _tolerance(fields: Fields) -> Quantity | None:
    tolerance = fields.quantity("tolerance")
    if tolerance is not None and tolerance.nano < 0:
        note_invalid(fields, "tolerance", str(tolerance), "must be greater than or equal to 0")
    return tolerance

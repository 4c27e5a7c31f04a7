"""HorizontalPodAutoscalers of every API version, as `autoscaling/v2` with the API server's defaults.

Faults are reported in the API server's words, at the field and line that the user wrote, also where an
old version names the field otherwise. A `type` that does not fit the target field beside it passes,
as it does there: `type: Utilization` with `averageValue` on a Pods metric means AverageValue.

Known differences: unreadable JSON in a round-trip annotation is a fault here, while the API server
passes over it in silence and scales on 80 % CPU; `status` is looked at for faults only.

`metrics` and `behavior` read those parts, `values` has the faults' words.

Source: kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go, v2/defaults.go,
    v1/conversion.go, v2beta1/conversion.go (v1.24);
    pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go;
    k8s.io/api/autoscaling/v2/types.go.
"""

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.behavior import read_behavior
from gpuscale.base.objects.hpa.metrics import read_metrics
from gpuscale.base.objects.hpa.types import (
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
)
from gpuscale.base.objects.hpa.values import (
    int32,
    mapping,
    note_forbidden,
    note_invalid,
    note_required,
    quoted,
    read_reference,
)
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.names import (
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)


def read_hpa(
    fields: Fields, *, scale_to_zero: bool = True, is_stored: bool = False
) -> HorizontalPodAutoscaler:
    """Return the HPA of an `autoscaling/v1`, `v2beta1`, `v2beta2` or `v2` manifest.

    Args:
        fields: the top-level fields; their `apiVersion` says which version is read.
        scale_to_zero: whether `minReplicas: 0` passes, as with the feature gate HPAScaleToZero.
        is_stored: whether an API server has it already; older ones took a target without a group.
    """
    version = fields.text("apiVersion").removeprefix("autoscaling/")
    metadata = _metadata(fields)
    spec = fields.child("spec", required=True)
    target = _scale_target(spec.child("scaleTargetRef", required=True), is_stored=is_stored)
    min_replicas = _min_replicas(spec, 0 if scale_to_zero else 1)
    max_replicas = _max_replicas(spec, min_replicas)
    metrics = read_metrics(fields, spec, version)
    _check_scale_to_zero(spec, min_replicas, metrics)
    _check_status(fields.child("status"))
    return HorizontalPodAutoscaler(
        metadata=metadata,
        target=target,
        max_replicas=max_replicas,
        metrics=metrics,
        min_replicas=min_replicas,
        behavior=read_behavior(fields, spec, version),
    )


def _metadata(fields: Fields) -> ObjectMeta:
    meta = read_meta(fields)
    generated = "name" not in mapping(fields.data.get("metadata"))
    name = meta.name.rstrip("-.") if generated else meta.name
    if name and (fault := subdomain_fault(name)):
        note_invalid(fields, ("metadata", "name"), meta.name, fault)
    for key, value in meta.labels.items():
        for text, fault in ((key, qualified_name_fault(key)), (value, label_value_fault(value))):
            if fault is not None:
                note_invalid(fields, ("metadata", "labels", key), text, fault)
    for key in meta.annotations:
        if fault := qualified_name_fault(key.lower()):
            note_invalid(fields, ("metadata", "annotations", key), key, fault)
    return meta


def _min_replicas(spec: Fields, lowest: int) -> int:
    count = int32(spec, "minReplicas")
    if count is None:
        return 1
    if count < lowest:
        note_invalid(spec, "minReplicas", count, f"must be greater than or equal to {lowest}")
    return count


def _max_replicas(spec: Fields, min_replicas: int) -> int:
    if "maxReplicas" not in spec:
        note_required(spec, "maxReplicas")
        return max(1, min_replicas)
    count = int32(spec, "maxReplicas")
    if count is None:
        return max(1, min_replicas)
    if count < 1:
        note_invalid(spec, "maxReplicas", count, "must be greater than 0")
    elif count < min_replicas:
        note_invalid(spec, "maxReplicas", count, "must be greater than or equal to `minReplicas`")
    return count


def _check_scale_to_zero(spec: Fields, min_replicas: int, metrics: tuple[MetricSpec, ...]) -> None:
    if min_replicas == 0 and not any(isinstance(m, ObjectMetric | ExternalMetric) for m in metrics):
        note_forbidden(
            spec,
            "metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        )


def _check_status(status: Fields) -> None:
    for key in ("currentReplicas", "desiredReplicas"):
        count = int32(status, key)
        if count is not None and count < 0:
            note_invalid(status, key, count, "must be greater than or equal to 0")


def _scale_target(fields: Fields, *, is_stored: bool) -> CrossVersionObjectReference:
    target = read_reference(fields)
    if is_stored:
        return target
    group, slash, _ = target.api_version.partition("/")
    has_group = bool(slash and group)
    is_core = target.kind == _CORE_KIND and not has_group
    if fields.data and not has_group and not is_core:
        fix = f"write apiVersion: {_VERSIONS.get(target.kind, 'group/version')}"
        detail = f"Invalid value: {quoted(target.api_version)}: apiVersion must specify API group"
        fields.note(("apiVersion",), detail, fix=fix)
    return target


_CORE_KIND = "ReplicationController"
"""The one scalable kind of core v1, which has no group."""
_VERSIONS = dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet"), "apps/v1")

"""HorizontalPodAutoscalers of every API version, as `autoscaling/v2` with the API server's defaults.

Faults are reported in the API server's words, at the field and line that the user wrote, also where an
old version names the field otherwise. A `type` that does not fit the target field beside it passes,
as it does there: `type: Utilization` with `averageValue` on a Pods metric means AverageValue.

Known differences: unreadable JSON in a round-trip annotation is a fault here, while the API server
passes over it in silence and scales on 80 % CPU; so is a metric selector that the controller can't
use, such as an unknown operator, which the API server stores; `status` is looked at for faults only.

Source: kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go, v2/defaults.go,
    v1/conversion.go, v2beta1/conversion.go (v1.24);
    pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go;
    k8s.io/api/autoscaling/v2/types.go.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from gpuscale.core.documents.documents import Path
from gpuscale.core.quantity import Quantity
from gpuscale.objects.fields import Fields
from gpuscale.objects.meta import ObjectMeta, read_meta
from gpuscale.objects.names import (
    container_resource_fault,
    label_fault,
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)
from gpuscale.objects.selectors import Selector

DEFAULT_CPU_UTILIZATION = 80
MAX_STABILIZATION_WINDOW_S = 3600
MAX_PERIOD_S = 1800
METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR_ANNOTATION = "autoscaling.alpha.kubernetes.io/behavior"

_MAX_INT32 = (1 << 31) - 1


class TargetType(Enum):
    """What a metric target says it is; which field is set decides for most sources."""

    UTILIZATION = "Utilization"
    VALUE = "Value"
    AVERAGE_VALUE = "AverageValue"


class PolicyType(Enum):
    """What the value of a scaling policy counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(Enum):
    """Which of several policies holds: the largest change, the smallest, or no change at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class CrossVersionObjectReference:
    """An object in the same namespace, by kind and name."""

    kind: str
    name: str
    api_version: str = ""


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """What a metric should be."""

    type: TargetType
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None
    """Percent of the request."""


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """A metric of each pod, averaged over the pods."""

    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ObjectMetric:
    """A metric of one object, such as a Service."""

    described_object: CrossVersionObjectReference
    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ExternalMetric:
    """A metric of nothing in the cluster; its series are summed."""

    name: str
    target: MetricTarget
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class ResourceMetric:
    """A resource that pods request, such as cpu, over all containers of each pod."""

    name: str
    target: MetricTarget


@dataclass(frozen=True, slots=True)
class ContainerResourceMetric:
    """A resource of one named container of each pod."""

    name: str
    container: str
    target: MetricTarget


MetricSpec = PodsMetric | ObjectMetric | ExternalMetric | ResourceMetric | ContainerResourceMetric


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How much the count may change within a period."""

    type: PolicyType
    value: int
    period_s: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How fast the count may move in one direction."""

    policies: tuple[ScalingPolicy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_window_s: int | None = None
    """None, possible on scale-down only, takes the controller's own setting."""
    tolerance: Quantity | None = None
    """A ratio; None takes the controller's own setting."""


DEFAULT_SCALE_UP = ScalingRules(
    policies=(
        ScalingPolicy(PolicyType.PODS, 4, 15),
        ScalingPolicy(PolicyType.PERCENT, 100, 15),
    ),
    stabilization_window_s=0,
)
DEFAULT_SCALE_DOWN = ScalingRules(policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """The rules of both directions; giving one gives the other its defaults."""

    scale_up: ScalingRules = DEFAULT_SCALE_UP
    scale_down: ScalingRules = DEFAULT_SCALE_DOWN


@dataclass(frozen=True, slots=True)
class HorizontalPodAutoscaler:
    """An HPA as the controller sees it."""

    metadata: ObjectMeta
    target: CrossVersionObjectReference
    max_replicas: int
    metrics: tuple[MetricSpec, ...]
    min_replicas: int | None = 1
    """None counts as 1; the API server fills it in, so that manifests never give None."""
    behavior: Behavior | None = None
    """None takes the controller's older path: no rate memory, and at most a doubling a step."""


_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SourceReader = Callable[[Fields], MetricSpec]


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
    metrics = _metrics(fields, spec, version)
    _check_scale_to_zero(spec, min_replicas, metrics)
    _check_status(fields.child("status"))
    return HorizontalPodAutoscaler(
        metadata=metadata,
        target=target,
        max_replicas=max_replicas,
        metrics=metrics,
        min_replicas=min_replicas,
        behavior=_behavior(fields, spec, version),
    )


def _metadata(fields: Fields) -> ObjectMeta:
    meta = read_meta(fields)
    generated = "name" not in _mapping(fields.data.get("metadata"))
    name = meta.name.rstrip("-.") if generated else meta.name
    if name and (fault := subdomain_fault(name)):
        _invalid(fields, ("metadata", "name"), meta.name, fault)
    for key, value in meta.labels.items():
        for text, fault in ((key, qualified_name_fault(key)), (value, label_value_fault(value))):
            if fault is not None:
                _invalid(fields, ("metadata", "labels", key), text, fault)
    for key in meta.annotations:
        if fault := qualified_name_fault(key.lower()):
            _invalid(fields, ("metadata", "annotations", key), key, fault)
    return meta


def _min_replicas(spec: Fields, lowest: int) -> int:
    count = _int32(spec, "minReplicas")
    if count is None:
        return 1
    if count < lowest:
        _invalid(spec, "minReplicas", count, f"must be greater than or equal to {lowest}")
    return count


def _max_replicas(spec: Fields, min_replicas: int) -> int:
    if "maxReplicas" not in spec:
        _required(spec, "maxReplicas")
        return max(1, min_replicas)
    count = _int32(spec, "maxReplicas")
    if count is None:
        return max(1, min_replicas)
    if count < 1:
        _invalid(spec, "maxReplicas", count, "must be greater than 0")
    elif count < min_replicas:
        _invalid(spec, "maxReplicas", count, "must be greater than or equal to `minReplicas`")
    return count


def _check_scale_to_zero(spec: Fields, min_replicas: int, metrics: tuple[MetricSpec, ...]) -> None:
    if min_replicas == 0 and not any(isinstance(m, ObjectMetric | ExternalMetric) for m in metrics):
        _forbidden(
            spec,
            "metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        )


def _check_status(status: Fields) -> None:
    for key in ("currentReplicas", "desiredReplicas"):
        count = _int32(status, key)
        if count is not None and count < 0:
            _invalid(status, key, count, "must be greater than or equal to 0")


# Metrics


def _metrics(fields: Fields, spec: Fields, version: str) -> tuple[MetricSpec, ...]:
    if version == "v1":
        metrics = (*_annotated_metrics(fields), *_cpu_metric(spec))
    else:
        metrics = _metric_list(spec.items("metrics"), _V2BETA1 if version == "v2beta1" else _V2)
    return metrics or (_cpu_utilization(DEFAULT_CPU_UTILIZATION),)


def _cpu_utilization(percent: int) -> ResourceMetric:
    return ResourceMetric("cpu", MetricTarget(TargetType.UTILIZATION, average_utilization=percent))


def _cpu_metric(spec: Fields) -> tuple[MetricSpec, ...]:
    percent = _utilization(spec, "targetCPUUtilizationPercentage")
    return () if percent is None else (_cpu_utilization(percent),)


def _annotated_metrics(fields: Fields) -> tuple[MetricSpec, ...]:
    """Return the metrics that v1 has no field for; their JSON has nearly the shape of v2beta1."""
    data = _annotation(fields, METRICS_ANNOTATION)
    items = _annotated(fields, METRICS_ANNOTATION, data).items(METRICS_ANNOTATION)
    return _metric_list(items, _V1)


def _metric_list(
    items: Iterator[Fields], readers: dict[str, _SourceReader]
) -> tuple[MetricSpec, ...]:
    metrics = (_metric(item, readers) for item in items)
    return tuple(metric for metric in metrics if metric is not None)


def _metric(fields: Fields, readers: dict[str, _SourceReader]) -> MetricSpec | None:
    kind = fields.text("type")
    if not kind:
        _required(fields, "type", "must specify a metric source type")
        return None
    source = _SOURCES.get(kind)
    if source is None:
        _unsupported(fields, "type", kind, _SOURCES)
        return None
    for other in _SOURCES.values():
        if other != source and other in fields:
            _forbidden(fields, other, "must populate the given metric source only")
    if source not in fields:
        _required(fields, source, "must populate information for the given metric source")
        return None
    return readers[source](fields.child(source))


def _pods(fields: Fields) -> PodsMetric:
    name, selector = _identifier(fields)
    target = _target(fields)
    average = ("target", "averageValue")
    if not _is_set(fields, average):
        _required(fields, average, "must specify a positive target averageValue")
    return PodsMetric(name, target, selector)


def _object(fields: Fields) -> ObjectMetric:
    name, selector = _identifier(fields)
    target = _target(fields)
    value, average = ("target", "value"), ("target", "averageValue")
    if not _is_set(fields, value) and not _is_set(fields, average):
        _required(fields, average, "must set either a target value or averageValue")
    described = _reference(fields.child("describedObject"))
    return ObjectMetric(described, name, target, selector)


def _external(fields: Fields) -> ExternalMetric:
    name, selector = _identifier(fields)
    target = _target(fields)
    _check_external(fields, ("target", "value"), ("target", "averageValue"))
    return ExternalMetric(name, target, selector)


def _resource(fields: Fields) -> ResourceMetric:
    target = _target(fields)
    _check_resource(fields, ("target", "averageUtilization"), ("target", "averageValue"))
    return ResourceMetric(_resource_name(fields), target)


def _container_resource(fields: Fields) -> ContainerResourceMetric:
    resource = _resource(fields)
    _check_container_resource(fields, resource.name)
    return ContainerResourceMetric(resource.name, _container_name(fields), resource.target)


def _old_pods(fields: Fields) -> PodsMetric:
    average = _positive(fields, "targetAverageValue")
    if "targetAverageValue" not in fields:
        _required(fields, "targetAverageValue", "must specify a positive target averageValue")
    target = MetricTarget(TargetType.AVERAGE_VALUE, average_value=average)
    return PodsMetric(_metric_name(fields, "metricName"), target, fields.selector("selector"))


def _old_object(fields: Fields) -> ObjectMetric:
    if "targetValue" not in fields:
        _invalid(fields, "targetValue", "0", "must be positive")
    return _old_object_metric(fields, _positive(fields, "targetValue"))


def _annotated_object(fields: Fields) -> ObjectMetric:
    """Return an Object metric of v1, which has no way to leave `targetValue` out: it writes 0."""
    if "averageValue" not in fields:
        return _old_object(fields)
    value = fields.quantity("targetValue")
    if value is not None and value.nano < 0:
        _invalid(fields, "targetValue", str(value), "must be positive")
    return _old_object_metric(fields, value if value is not None and value.nano > 0 else None)


def _old_object_metric(fields: Fields, value: Quantity | None) -> ObjectMetric:
    average = _positive(fields, "averageValue")
    kind = TargetType.VALUE if average is None else TargetType.AVERAGE_VALUE
    return ObjectMetric(
        _reference(fields.child("target")),
        _metric_name(fields, "metricName"),
        MetricTarget(kind, value, average),
        fields.selector("selector"),
    )


def _old_external(fields: Fields) -> ExternalMetric:
    value, average = _positive(fields, "targetValue"), _positive(fields, "targetAverageValue")
    kind = TargetType.AVERAGE_VALUE if value is None else TargetType.VALUE
    target = MetricTarget(kind, value, average)
    _check_external(fields, ("targetValue",), ("targetAverageValue",))
    name = _metric_name(fields, "metricName")
    return ExternalMetric(name, target, fields.selector("metricSelector"))


def _old_resource(fields: Fields) -> ResourceMetric:
    percent = _utilization(fields, "targetAverageUtilization")
    average = _positive(fields, "targetAverageValue")
    kind = TargetType.AVERAGE_VALUE if percent is None else TargetType.UTILIZATION
    target = MetricTarget(kind, average_value=average, average_utilization=percent)
    _check_resource(fields, ("targetAverageUtilization",), ("targetAverageValue",))
    return ResourceMetric(_resource_name(fields), target)


def _old_container_resource(fields: Fields) -> ContainerResourceMetric:
    resource = _old_resource(fields)
    _check_container_resource(fields, resource.name)
    return ContainerResourceMetric(resource.name, _container_name(fields), resource.target)


_V2: dict[str, _SourceReader] = {
    "pods": _pods,
    "object": _object,
    "external": _external,
    "resource": _resource,
    "containerResource": _container_resource,
}
_V2BETA1: dict[str, _SourceReader] = {
    "pods": _old_pods,
    "object": _old_object,
    "external": _old_external,
    "resource": _old_resource,
    "containerResource": _old_container_resource,
}
_V1 = _V2BETA1 | {"object": _annotated_object}


def _check_external(fields: Fields, value: Path, average: Path) -> None:
    if not _is_set(fields, value) and not _is_set(fields, average):
        detail = "must set either a target value for metric or a per-pod target"
        _required(fields, average, detail)
    if _is_set(fields, value) and _is_set(fields, average):
        detail = "may not set both a target value for metric and a per-pod target"
        _forbidden(fields, value, detail)


def _check_resource(fields: Fields, percent: Path, average: Path) -> None:
    if not _is_set(fields, percent) and not _is_set(fields, average):
        detail = "must set either a target raw value or a target utilization"
        _required(fields, percent, detail)
    if _is_set(fields, percent) and _is_set(fields, average):
        detail = "may not set both a target raw value and a target utilization"
        _forbidden(fields, average, detail)


def _is_set(fields: Fields, path: Path) -> bool:
    """Return whether a field was given at all, readable or not."""
    data: object = fields.data
    for part in path:
        data = _mapping(data).get(str(part))
    return data is not None


def _target(fields: Fields) -> MetricTarget:
    target = fields.child("target")
    return MetricTarget(
        type=_target_type(target),
        value=_positive(target, "value"),
        average_value=_positive(target, "averageValue"),
        average_utilization=_utilization(target, "averageUtilization"),
    )


def _target_type(target: Fields) -> TargetType:
    text = target.text("type")
    if not text:
        _required(target, "type", "must specify a metric target type")
        return TargetType.AVERAGE_VALUE
    if text not in {kind.value for kind in TargetType}:
        _invalid(target, "type", text, "must be either Utilization, Value, or AverageValue")
        return TargetType.AVERAGE_VALUE
    return TargetType(text)


def _identifier(fields: Fields) -> tuple[str, Selector | None]:
    metric = fields.child("metric")
    return _metric_name(metric, "name"), metric.selector("selector")


def _metric_name(fields: Fields, key: str) -> str:
    return _path_segment(fields, key, "must specify a metric name")


def _resource_name(fields: Fields) -> str:
    name = fields.text("name")
    if not name:
        _required(fields, "name", "must specify a resource name")
    return name


def _check_container_resource(fields: Fields, name: str) -> None:
    if name and (fault := container_resource_fault(name)):
        _invalid(fields, "name", name, fault)


def _container_name(fields: Fields) -> str:
    name = fields.text("container")
    if not name:
        _required(fields, "container", "must specify a container")
    elif fault := label_fault(name):
        _invalid(fields, "container", name, fault)
    return name


def _scale_target(fields: Fields, *, is_stored: bool) -> CrossVersionObjectReference:
    target = _reference(fields)
    if is_stored:
        return target
    group, slash, _ = target.api_version.partition("/")
    has_group = bool(slash and group)
    is_core = target.kind == _CORE_KIND and not has_group
    if fields.data and not has_group and not is_core:
        fix = f"write apiVersion: {_VERSIONS.get(target.kind, 'group/version')}"
        detail = f"Invalid value: {_quoted(target.api_version)}: apiVersion must specify API group"
        fields.note(("apiVersion",), detail, fix=fix)
    return target


def _reference(fields: Fields) -> CrossVersionObjectReference:
    version = fields.text("apiVersion")
    if version.count("/") > 1:
        _invalid(fields, "apiVersion", version, f"unexpected GroupVersion string: {version}")
    return CrossVersionObjectReference(
        kind=_path_segment(fields, "kind"), name=_path_segment(fields, "name"), api_version=version
    )


_CORE_KIND = "ReplicationController"
"""The one scalable kind of core v1, which has no group."""
_VERSIONS = dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet"), "apps/v1")


# Behavior


def _behavior(fields: Fields, spec: Fields, version: str) -> Behavior | None:
    if version in {"v1", "v2beta1"}:
        return _annotated_behavior(fields)
    if "behavior" not in spec:
        return None
    return _both_rules(spec.child("behavior"), tolerances=version == "v2")


def _annotated_behavior(fields: Fields) -> Behavior | None:
    data = _annotation(fields, BEHAVIOR_ANNOTATION, go_names=True)
    behavior = _annotated(fields, BEHAVIOR_ANNOTATION, data).child(BEHAVIOR_ANNOTATION)
    if "scaleUp" not in behavior and "scaleDown" not in behavior:
        return None
    # The API server fills in policies that the field leaves out, and none in an annotation.
    for key in ("scaleUp", "scaleDown"):
        if key in behavior and "policies" not in behavior.child(key):
            _required(behavior, (key, "policies"), _NO_POLICY)
    return _both_rules(behavior, tolerances=True)


def _both_rules(behavior: Fields, *, tolerances: bool) -> Behavior:
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


_NO_POLICY = "must specify at least one Policy"


def _policies(fields: Fields, default: tuple[ScalingPolicy, ...]) -> tuple[ScalingPolicy, ...]:
    if "policies" not in fields:
        return default
    if fields.data["policies"] == []:
        _required(fields, "policies", _NO_POLICY)
    return tuple(_policy(item) for item in fields.items("policies"))


def _policy(fields: Fields) -> ScalingPolicy:
    value, period_s = _above_zero(fields, "value"), _above_zero(fields, "periodSeconds")
    if period_s > MAX_PERIOD_S:
        _invalid(fields, "periodSeconds", period_s, f"must be less than or equal to {MAX_PERIOD_S}")
    return ScalingPolicy(_policy_type(fields), value, period_s)


def _above_zero(fields: Fields, key: str) -> int:
    number = _int32(fields, key) if key in fields else 0
    if number is None:
        return 1
    if number <= 0:
        _invalid(fields, key, number, "must be greater than zero")
    return number


def _policy_type(fields: Fields) -> PolicyType:
    text = fields.text("type")
    if text not in {kind.value for kind in PolicyType}:
        _unsupported(fields, "type", text, ("Percent", "Pods"))
        return PolicyType.PODS
    return PolicyType(text)


def _select_policy(fields: Fields) -> SelectPolicy:
    if "selectPolicy" not in fields:
        return SelectPolicy.MAX
    text = fields.text("selectPolicy")
    if text not in {policy.value for policy in SelectPolicy}:
        _unsupported(fields, "selectPolicy", text, ("Disabled", "Max", "Min"))
        return SelectPolicy.MAX
    return SelectPolicy(text)


def _window(fields: Fields, default: int | None) -> int | None:
    key = "stabilizationWindowSeconds"
    seconds = _int32(fields, key)
    if seconds is None:
        return default
    if seconds < 0:
        _invalid(fields, key, seconds, "must be greater than or equal to zero")
    if seconds > MAX_STABILIZATION_WINDOW_S:
        limit = f"must be less than or equal to {MAX_STABILIZATION_WINDOW_S}"
        _invalid(fields, key, seconds, limit)
    return seconds


def _tolerance(fields: Fields) -> Quantity | None:
    tolerance = fields.quantity("tolerance")
    if tolerance is not None and tolerance.nano < 0:
        _invalid(fields, "tolerance", str(tolerance), "must be greater than or equal to 0")
    return tolerance


# Round-trip annotations


def _annotation(fields: Fields, key: str, *, go_names: bool = False) -> object | None:
    """Return the JSON of an annotation, or None where there is none to read."""
    text = _mapping(_mapping(fields.data.get("metadata")).get("annotations")).get(key)
    if not isinstance(text, str):
        return None
    try:
        data = json.loads(text)
        return _lower_initials(data) if go_names else data
    except (ValueError, RecursionError):
        fix = "the API server would pass over it; write it as a field of autoscaling/v2"
        path = ("metadata", "annotations", key)
        fields.note(path, "JSON", found="text that is not JSON", fix=fix)
        return None


def _annotated(fields: Fields, key: str, data: object) -> Fields:
    """Return fields that find the JSON of an annotation under its key, and note faults there."""
    path = ("metadata", "annotations")
    return Fields(fields.document, {key: data}, (*fields.path, *path), fields.problems)


def _lower_initials(data: object) -> object:
    """Return the data with `ScaleUp` as `scaleUp`: the API server writes Go's own names there."""
    if isinstance(data, dict):
        return {key[:1].lower() + key[1:]: _lower_initials(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_lower_initials(item) for item in data]
    return data


def _mapping(data: object) -> dict[str, object]:
    return data if isinstance(data, dict) else {}


# Values, and faults in the API server's words


def _int32(fields: Fields, key: str) -> int | None:
    number = fields.integer(key)
    if number is not None and abs(number) > _MAX_INT32:
        fields.note((key,), f"a whole number of at most {_MAX_INT32}", found="a larger one")
        return None
    return number


def _positive(fields: Fields, key: str) -> Quantity | None:
    quantity = fields.quantity(key)
    if quantity is not None and quantity.nano <= 0:
        _invalid(fields, key, str(quantity), "must be positive")
    return quantity


def _utilization(fields: Fields, key: str) -> int | None:
    percent = _int32(fields, key)
    if percent is not None and percent < 1:
        _invalid(fields, key, percent, "must be greater than 0")
    return percent


def _path_segment(fields: Fields, key: str, detail: str = "") -> str:
    text = fields.text(key)
    if not text:
        _required(fields, key, detail)
    if text in {".", ".."}:
        _invalid(fields, key, text, f"may not be '{text}'")
    for character in "/%":
        if character in text:
            _invalid(fields, key, text, f"may not contain '{character}'")
    return text


def _required(fields: Fields, key: str | Path, detail: str = "") -> None:
    fields.note(_path(key), f"Required value: {detail}" if detail else "Required value")


def _forbidden(fields: Fields, key: str | Path, detail: str) -> None:
    fields.note(_path(key), f"Forbidden: {detail}")


def _invalid(fields: Fields, key: str | Path, value: str | int, detail: str) -> None:
    fields.note(_path(key), f"Invalid value: {_quoted(value)}: {detail}")


def _unsupported(fields: Fields, key: str, value: str, supported: Iterable[str]) -> None:
    names = ", ".join(f'"{name}"' for name in supported)
    fields.note((key,), f"Unsupported value: {_quoted(value)}: supported values: {names}")


def _path(key: str | Path) -> Path:
    return (key,) if isinstance(key, str) else key


def _quoted(value: str | int) -> str:
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= 300 else text[:300] + '..."'

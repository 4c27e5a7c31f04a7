"""The metrics of an HPA, in the shape of each API version.

Source: kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go, v2/defaults.go, v1/conversion.go,
    v2beta1/conversion.go (v1.24).
"""

from collections.abc import Callable

from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.metric_selectors import read_metric_selector
from gpuscale.base.objects.hpa.types import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.hpa.values import (
    annotated_fields,
    annotation_json,
    mapping,
    note_forbidden,
    note_invalid,
    note_required,
    note_unsupported,
    path_segment,
    positive_quantity,
    read_reference,
    utilization,
)
from gpuscale.base.objects.names import (
    container_resource_fault,
    label_fault,
)
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.quantity import Quantity

DEFAULT_CPU_UTILIZATION = 80
METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"
_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_SourceReader = Callable[[Fields], MetricSpec]


def read_metrics(fields: Fields, spec: Fields, version: str) -> tuple[MetricSpec, ...]:
    """Return the metrics, or the API server's default where there are none."""
    if version == "v1":
        # What v1 has no field for is in an annotation, whose JSON has nearly the shape of v2beta1.
        data = annotation_json(fields, METRICS_ANNOTATION)
        items = annotated_fields(fields, METRICS_ANNOTATION, data).items(METRICS_ANNOTATION)
        readers = _V1
    else:
        items, readers = spec.items("metrics"), _V2BETA1 if version == "v2beta1" else _V2
    metrics = [metric for item in items if (metric := _metric(item, readers)) is not None]
    if version == "v1":
        percent = utilization(spec, "targetCPUUtilizationPercentage")
        metrics += [] if percent is None else [_cpu_utilization(percent)]
    return tuple(metrics) or (_cpu_utilization(DEFAULT_CPU_UTILIZATION),)


def _cpu_utilization(percent: int) -> ResourceMetric:
    return ResourceMetric("cpu", MetricTarget(TargetType.UTILIZATION, average_utilization=percent))


def _metric(fields: Fields, readers: dict[str, _SourceReader]) -> MetricSpec | None:
    kind = fields.text("type")
    if not kind:
        note_required(fields, "type", "must specify a metric source type")
        return None
    source = _SOURCES.get(kind)
    if source is None:
        note_unsupported(fields, "type", kind, _SOURCES)
        return None
    for other in _SOURCES.values():
        if other != source and other in fields:
            note_forbidden(fields, other, "must populate the given metric source only")
    if source not in fields:
        note_required(fields, source, "must populate information for the given metric source")
        return None
    return readers[source](fields.child(source))


def _pods(fields: Fields) -> PodsMetric:
    name, selector = _identifier(fields)
    target = _target(fields)
    average = ("target", "averageValue")
    if not _is_set(fields, average):
        note_required(fields, average, "must specify a positive target averageValue")
    return PodsMetric(name, target, selector)


def _object(fields: Fields) -> ObjectMetric:
    name, selector = _identifier(fields)
    target = _target(fields)
    value, average = ("target", "value"), ("target", "averageValue")
    if not _is_set(fields, value) and not _is_set(fields, average):
        note_required(fields, average, "must set either a target value or averageValue")
    described = read_reference(fields.child("describedObject"))
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
    average = positive_quantity(fields, "targetAverageValue")
    if "targetAverageValue" not in fields:
        note_required(fields, "targetAverageValue", "must specify a positive target averageValue")
    target = MetricTarget(TargetType.AVERAGE_VALUE, average_value=average)
    return PodsMetric(
        _metric_name(fields, "metricName"), target, read_metric_selector(fields, "selector")
    )


def _old_object(fields: Fields) -> ObjectMetric:
    if "targetValue" not in fields:
        note_invalid(fields, "targetValue", "0", "must be positive")
    return _old_object_metric(fields, positive_quantity(fields, "targetValue"))


def _annotated_object(fields: Fields) -> ObjectMetric:
    """Return an Object metric of v1, which has no way to leave `targetValue` out: it writes 0."""
    if "averageValue" not in fields:
        return _old_object(fields)
    value = fields.quantity("targetValue")
    if value is not None and value.nano < 0:
        note_invalid(fields, "targetValue", str(value), "must be positive")
    return _old_object_metric(fields, value if value is not None and value.nano > 0 else None)


def _old_object_metric(fields: Fields, value: Quantity | None) -> ObjectMetric:
    average = positive_quantity(fields, "averageValue")
    kind = TargetType.VALUE if average is None else TargetType.AVERAGE_VALUE
    return ObjectMetric(
        read_reference(fields.child("target")),
        _metric_name(fields, "metricName"),
        MetricTarget(kind, value, average),
        read_metric_selector(fields, "selector"),
    )


def _old_external(fields: Fields) -> ExternalMetric:
    value, average = (
        positive_quantity(fields, "targetValue"),
        positive_quantity(fields, "targetAverageValue"),
    )
    kind = TargetType.AVERAGE_VALUE if value is None else TargetType.VALUE
    target = MetricTarget(kind, value, average)
    _check_external(fields, ("targetValue",), ("targetAverageValue",))
    name = _metric_name(fields, "metricName")
    return ExternalMetric(name, target, read_metric_selector(fields, "metricSelector"))


def _old_resource(fields: Fields) -> ResourceMetric:
    percent = utilization(fields, "targetAverageUtilization")
    average = positive_quantity(fields, "targetAverageValue")
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
        note_required(fields, average, detail)
    if _is_set(fields, value) and _is_set(fields, average):
        detail = "may not set both a target value for metric and a per-pod target"
        note_forbidden(fields, value, detail)


def _check_resource(fields: Fields, percent: Path, average: Path) -> None:
    if not _is_set(fields, percent) and not _is_set(fields, average):
        detail = "must set either a target raw value or a target utilization"
        note_required(fields, percent, detail)
    if _is_set(fields, percent) and _is_set(fields, average):
        detail = "may not set both a target raw value and a target utilization"
        note_forbidden(fields, average, detail)


def _is_set(fields: Fields, path: Path) -> bool:
    """Return whether a field is present, valid or not."""
    data: object = fields.data
    for part in path:
        data = mapping(data).get(str(part))
    return data is not None


def _target(fields: Fields) -> MetricTarget:
    target = fields.child("target")
    kind = TargetType.AVERAGE_VALUE
    text = target.text("type")
    if not text:
        note_required(target, "type", "must specify a metric target type")
    elif text not in {each.value for each in TargetType}:
        note_invalid(target, "type", text, "must be either Utilization, Value, or AverageValue")
    else:
        kind = TargetType(text)
    return MetricTarget(
        type=kind,
        value=positive_quantity(target, "value"),
        average_value=positive_quantity(target, "averageValue"),
        average_utilization=utilization(target, "averageUtilization"),
    )


def _identifier(fields: Fields) -> tuple[str, Selector | None]:
    metric = fields.child("metric")
    return _metric_name(metric, "name"), read_metric_selector(metric, "selector")


def _metric_name(fields: Fields, key: str) -> str:
    return path_segment(fields, key, "must specify a metric name")


def _resource_name(fields: Fields) -> str:
    name = fields.text("name")
    if not name:
        note_required(fields, "name", "must specify a resource name")
    return name


def _check_container_resource(fields: Fields, name: str) -> None:
    if name and (fault := container_resource_fault(name)):
        note_invalid(fields, "name", name, fault)


def _container_name(fields: Fields) -> str:
    name = fields.text("container")
    if not name:
        note_required(fields, "container", "must specify a container")
    elif fault := label_fault(name):
        note_invalid(fields, "container", name, fault)
    return name

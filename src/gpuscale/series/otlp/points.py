"""The samples of an OTLP request, as Prometheus' own OTLP endpoint writes them.

- `job` is the resource's `service.namespace/service.name`, `instance` its `service.instance.id`.
- Other attributes of the resource are labels of one more series, `target_info`; those that are promoted are
  labels of all series.
- A histogram is `_bucket` with `le`, `_sum` and `_count`; a summary has `quantile`.
- A point without a value ends its series.
- Sums and histograms with delta temporality are refused, as there; so are exponential histograms, for which
  the store has no samples.

Source: prometheus v3 storage/remote/otlptranslator/prometheusremotewrite (metrics_to_prw.go, helper.go).
"""

import base64
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.base.exposition.write import positional
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.otlp.message import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AnyValue,
    HistogramDataPoint,
    KeyValue,
    Metric,
    NumberDataPoint,
    Request,
    ResourceMetrics,
    SummaryDataPoint,
)
from gpuscale.series.otlp.names import MetricKind, label_name, metric_name

TARGET_INFO = "target_info"
_SERVICE_NAME, _SERVICE_NAMESPACE = "service.name", "service.namespace"
_INSTANCE = "service.instance.id"
_IDENTIFYING = {_SERVICE_NAME, _SERVICE_NAMESPACE, _INSTANCE}
_NO_RECORDED_VALUE = 1
_DELTA = (
    "delta temporality of {}: set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative, or let a "
    "collector make it cumulative (deltatocumulative)"
)


@dataclass(frozen=True, slots=True)
class OtlpSample:
    """One value of one series."""

    labels: Mapping[str, str]
    t_ms: int
    value: float
    is_end: bool = False
    """Whether the series ends with it."""


@dataclass(slots=True)
class Refusals:
    """Refused points, counted by reason."""

    points: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, count: int) -> None:
        if count:
            self.points[reason] = self.points.get(reason, 0) + count


def samples(request: Request, promoted: Collection[str], refused: Refusals) -> Iterator[OtlpSample]:
    """Yield the samples of a request.

    Args:
        request: as it was read.
        promoted: attributes of resources that are labels of all their series.
        refused: gets what is left out.
    """
    for resource in request.resource_metrics:
        yield from _of_resource(resource, promoted, refused)


def _of_resource(
    resource: ResourceMetrics, promoted: Collection[str], refused: Refusals
) -> Iterator[OtlpSample]:
    attributes = _texts(resource.resource.attributes)
    identity = _identity(attributes)
    shared = {label_name(key): value for key, value in attributes.items() if key in promoted}
    latest_ms = 0
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for sample in _of_metric(metric, shared, identity, refused):
                latest_ms = max(latest_ms, sample.t_ms)
                yield sample
    info = {label_name(key): value for key, value in attributes.items() if key not in _IDENTIFYING}
    info.pop("", None)
    if latest_ms and identity and info:
        yield OtlpSample({**info, **identity, METRIC_NAME: TARGET_INFO}, latest_ms, 1.0)


def _identity(attributes: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if _SERVICE_NAME in attributes:
        parts = [attributes.get(_SERVICE_NAMESPACE, ""), attributes[_SERVICE_NAME]]
        found["job"] = "/".join(filter(None, parts))
    if _INSTANCE in attributes:
        found["instance"] = attributes[_INSTANCE]
    return {name: value for name, value in found.items() if value}


def _of_metric(
    metric: Metric, shared: Mapping[str, str], identity: Mapping[str, str], refused: Refusals
) -> Iterator[OtlpSample]:
    kind = metric.WhichOneof("data")
    name = metric_name(metric.name, metric.unit, _kind(metric, kind))
    if kind is None:
        return
    data = getattr(metric, kind)
    points = data.data_points
    if not name:
        refused.add(f"no name can be made of {metric.name[:100]!r}", len(points))
    elif kind == "exponential_histogram":
        refused.add(f"exponential histogram {metric.name[:100]}: use explicit buckets", len(points))
    elif (
        kind in {"sum", "histogram"}
        and data.aggregation_temporality != AGGREGATION_TEMPORALITY_CUMULATIVE
    ):
        refused.add(_DELTA.format(metric.name[:100]), len(points))
    elif kind == "histogram":
        for histogram in points:
            yield from _of_histogram(name, histogram, _labels(histogram, shared, identity))
    elif kind == "summary":
        for summary in points:
            yield from _of_summary(name, summary, _labels(summary, shared, identity))
    else:
        for point in points:
            labels = {**_labels(point, shared, identity), METRIC_NAME: name}
            value = float(
                point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            )
            yield OtlpSample(labels, _time_ms(point), value, _ends(point))


def _kind(metric: Metric, kind: str | None) -> MetricKind:
    if kind == "sum":
        return MetricKind.COUNTER if metric.sum.is_monotonic else MetricKind.OTHER
    return MetricKind.GAUGE if kind == "gauge" else MetricKind.OTHER


def _of_histogram(
    name: str, point: HistogramDataPoint, labels: Mapping[str, str]
) -> Iterator[OtlpSample]:
    t_ms, ends = _time_ms(point), _ends(point)
    if point.HasField("sum"):
        yield OtlpSample({**labels, METRIC_NAME: f"{name}_sum"}, t_ms, point.sum, ends)
    yield OtlpSample({**labels, METRIC_NAME: f"{name}_count"}, t_ms, float(point.count), ends)
    bucket = {**labels, METRIC_NAME: f"{name}_bucket"}
    total = 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        total += count
        yield OtlpSample({**bucket, "le": positional(bound)}, t_ms, float(total), ends)
    yield OtlpSample({**bucket, "le": "+Inf"}, t_ms, float(point.count), ends)


def _of_summary(
    name: str, point: SummaryDataPoint, labels: Mapping[str, str]
) -> Iterator[OtlpSample]:
    t_ms, ends = _time_ms(point), _ends(point)
    yield OtlpSample({**labels, METRIC_NAME: f"{name}_sum"}, t_ms, point.sum, ends)
    yield OtlpSample({**labels, METRIC_NAME: f"{name}_count"}, t_ms, float(point.count), ends)
    for each in point.quantile_values:
        of_quantile = {**labels, METRIC_NAME: name, "quantile": positional(each.quantile)}
        yield OtlpSample(of_quantile, t_ms, each.value, ends)


def _time_ms(point: NumberDataPoint | HistogramDataPoint | SummaryDataPoint) -> int:
    return int(point.time_unix_nano // 1_000_000)


def _ends(point: NumberDataPoint | HistogramDataPoint | SummaryDataPoint) -> bool:
    return bool(point.flags & _NO_RECORDED_VALUE)


def _labels(
    point: NumberDataPoint | HistogramDataPoint | SummaryDataPoint,
    shared: Mapping[str, str],
    identity: Mapping[str, str],
) -> dict[str, str]:
    """Return a point's labels; values of attributes with equal names are joined, as upstream does."""
    found: dict[str, str] = {}
    for key, value in sorted(_texts(point.attributes).items()):
        name = label_name(key)
        if name and not name.startswith("__"):
            found[name] = f"{found[name]};{value}" if name in found else value
    return {
        name: value for name, value in {**shared, **found, **identity}.items() if name and value
    }


def _texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {each.key: _text(each.value) for each in attributes}


def _text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind is None:
        return ""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"))


def _plain(value: AnyValue) -> object:
    match value.WhichOneof("value"):
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            number = value.double_value
            return number if math.isfinite(number) else str(number)
        case "array_value":
            return [_plain(each) for each in value.array_value.values]
        case "kvlist_value":
            return {each.key: _plain(each.value) for each in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
    return value.string_value

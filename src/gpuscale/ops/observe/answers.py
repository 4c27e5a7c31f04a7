"""Metrics API answers as entries in a Decision document's `observed`.

An answer that the controller's client could not decode is an error, as it is there.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go.
"""

from collections.abc import Mapping, Sequence

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.objects.metric_values import (
    items_of,
    milli_of,
    read_external_values,
    read_object_value,
    read_pod_values,
    time_ms,
)
from gpuscale.hpa.decisions import MAX_SPAN_S
from gpuscale.hpa.kernel import MAX_INT32
from gpuscale.kube import mapping_of, text_of

Entry = dict[str, object]


def observed_entry(spec: MetricSpec, answer: Mapping[str, object], now_ms: int) -> Entry:
    """Return an API's answer for a metric, with ages in place of timestamps."""
    try:
        items = items_of(answer)
        match spec:
            case PodsMetric():
                return {"pods": _pod_values(items, now_ms)}
            case ObjectMetric():
                read_object_value(items)
                return {"value": str(items[0].get("value"))}
            case ExternalMetric():
                read_external_values(items)
                return {"samples": [str(item.get("value")) for item in items]}
            case ResourceMetric() | ContainerResourceMetric():
                return {"pods": _pod_usages(items, spec.name, now_ms)}
    except ValueError as error:
        return {"error": str(error)}


def age_s(time: object, now_ms: int) -> float:
    """Return the age of an API timestamp in seconds; a missing one is Go's year 1."""
    return min(max(now_ms - time_ms(time), 0) / 1000, MAX_SPAN_S)


def count(value: object) -> int:
    """Return a replica count; Go omits a 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_INT32)


def conditions_of(body: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    """Return the conditions in an object's status."""
    conditions = mapping_of(body.get("status")).get("conditions")
    return tuple(map(mapping_of, conditions if isinstance(conditions, list) else ()))


def _pod_values(items: Sequence[Mapping[str, object]], now_ms: int) -> list[Entry]:
    """Return each pod's value; if a pod has two, the last one counts."""
    found: dict[str, Entry] = {}
    for item, value in zip(items, read_pod_values(items), strict=True):
        name, age = value.object_name, age_s(item.get("timestamp"), now_ms)
        found[name] = {"pod": name, "value": str(item.get("value")), "age": age}
        if item.get("windowSeconds", item.get("window")) is not None:
            found[name]["window"] = value.window_ms / 1000
    return list(found.values())


def _pod_usages(items: Sequence[Mapping[str, object]], resource: str, now_ms: int) -> list[Entry]:
    found: dict[str, Entry] = {}
    for item in items:
        name = _name(mapping_of(item.get("metadata")))
        found[name] = {
            "pod": name,
            "containers": _containers(item.get("containers"), resource),
            "age": age_s(item.get("timestamp"), now_ms),
            "window": _go_seconds(item.get("window")),
        }
    return list(found.values())


def _containers(containers: object, resource: str) -> dict[str, object]:
    """Return each container's usage; None if it reports none of the resource."""
    found: dict[str, object] = {}
    for each in containers if isinstance(containers, list) else ():
        body = mapping_of(each)
        used = mapping_of(body.get("usage")).get(resource)
        found.setdefault(_name(body), None if used is None else _quantity(used))
    return found


def _name(body: Mapping[str, object]) -> str:
    name = text_of(body.get("name"))
    if not name:
        raise ValueError("the answer has an item without a name")
    return name


def _quantity(value: object) -> str:
    """Check that a text is a quantity, and return it as written."""
    milli_of(value)
    return str(value)


def _go_seconds(window: object) -> float:
    """Return the seconds of a Go duration such as `1m0.5s`."""
    return min(parse_duration_ms(text_of(window)) / 1000, float(MAX_SPAN_S))
